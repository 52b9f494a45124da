"""Stretching RoPE: what longer texts gain, and what short ones pay, on small models and on a checkpoint.

    gain    the loss of the model as it is minus that of the stretched one, at 8 (checkpoint: 2) times the trained
            length
    cost    the rise of the loss of texts of the trained length when the model is set for that, as a share

Interpolation is stretched twice in small models, too (`pi-local`): by as much as the checkpoint, which it is beside.
A cost of at most 2% counts as none, as in `recommend`. The checkpoint is the core of a rule, and small models may limit
it: at the short lengths that those are trained on, hardly a pair turns often, and YaRN is nearly interpolation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from milepost.claims.checkpoint import TIMES
from milepost.claims.experiment import (
    Claim,
    Clause,
    Lab,
    Measurement,
    Need,
    Number,
    Plot,
    StretchedCheckpoint,
    core,
    gap,
    least,
    limit,
    losses,
    mean_over,
    measure_each,
    points,
)
from milepost.claims.groups.practice.lengths import ROPE, by_length
from milepost.claims.groups.relative.heads import ROPE_MODELS
from milepost.encodings.rope import RoPE
from milepost.lab.measure import Texts
from milepost.measure.losses import TOLERATED_RISE, same_targets
from milepost.scaling import NTK, Linear, Scaling, YaRN
from milepost.spectrum import geometric

AGAIN = Need("again", ("rope",))
PLAIN = ("linear", "ntk", "yarn")
FACTOR = 8
SIZE = 64


def gains(lab: Lab, method: str, need: Need = ROPE, times: int = FACTOR) -> dict[str, Number]:
    """The gain at so many times the trained length, and the cost, of a method in small models."""
    none, stretched = lab.runs(need, "rope"), lab.runs(need, "rope", method)
    home = none[0]["trained_length"]
    gain, paid = gap(stretched, none, times * home), gap(none, stretched, home, field="fixed_by_window")
    base = float(losses(none, home).mean())
    return {"gain": gain, "cost": Number(paid.value / base, paid.sides[0] / base, paid.sides[1] / base, paid.over)}


def on_small(method: str, need: Need = ROPE, times: int = FACTOR) -> Callable[[Lab], Measurement]:
    """An experiment: a method on small models."""

    def measure(lab: Lab) -> Measurement:
        lines = {"none": lab.runs(need, "rope"), method: lab.runs(need, "rope", method)}
        figure = by_length("Loss of the same tokens, set for each length", lines)
        return Measurement(gains(lab, method, need, times), (figure,), lab.source(need))

    return measure


def on_checkpoint(method: str) -> Callable[[StretchedCheckpoint], Measurement]:
    """An experiment: a method on a checkpoint."""

    def measure(checkpoint: StretchedCheckpoint) -> Measurement:
        numbers = {"real gain": checkpoint.gain(method), "real cost": checkpoint.cost(method)}
        figure = points(f"{method} on {checkpoint.subject.name}", "nats; share", numbers, 0.0)
        return Measurement(numbers, (figure,), (checkpoint.note,))

    return measure


def _frequencies_left(scaling: Scaling) -> list[float]:
    """What a scaling leaves of every pair's frequency, as a share."""
    plain = geometric(SIZE)
    return [b / a for a, b in zip(plain.frequencies, scaling(plain).frequencies, strict=True)]


def measure_waves() -> Measurement:
    """Wavelengths of every pair under position interpolation, over what they were."""
    plain = geometric(SIZE)
    ratios = [b / a for a, b in zip(plain.wavelengths, Linear(FACTOR)(plain).wavelengths, strict=True)]
    return Measurement({"longer": min(ratios), "near": max(ratios)}, (_plot_spectra(),))


def measure_fastest() -> Measurement:
    """The fastest and the slowest pair under NTK-aware scaling, over what they were."""
    left = _frequencies_left(NTK(FACTOR))
    return Measurement({"fastest": left[0], "slowest": left[-1]}, (_plot_spectra(),))


def _plot_spectra() -> Plot:
    scalings = {"linear": Linear(FACTOR), "ntk": NTK(FACTOR), "yarn": YaRN(FACTOR, 2048)}
    lines = {name: _frequencies_left(scaling) for name, scaling in scalings.items()}
    title = f"What is left of each pair's frequency, {FACTOR} times (yarn: trained at 2048)"
    return Plot("lines", title, "pair", "share", list(range(SIZE // 2)), lines)


def measure_temperature(lab: Lab) -> Measurement:
    """YaRN with and without its temperature, in the same models at 8 times the trained length."""
    small = on_small("yarn")(lab)
    plan = lab.plans["text"]

    def gain() -> Number:
        texts, trained = Texts.of(plan, plan.read()), plan.shape.length
        with_it = YaRN(FACTOR, trained)
        scalings = (with_it, replace(with_it, attention_factor=1.0))
        by_model = []
        for model in lab.models(ROPE_MODELS, "rope"):
            readers = [model.with_encoding(repr(RoPE(plan.shape.head_dim, scaling=s))).eval() for s in scalings]
            length = FACTOR * trained
            with_loss, without = (same_targets(r, texts.windows, length, plan.targets).mean(1) for r in readers)
            by_model.append(without - with_loss)
        return mean_over(np.array(by_model), "files", texts.files)

    return replace(small, numbers={**small.numbers, **measure_each({"temperature": gain})})


def measure_checkpoint_temperature(checkpoint: StretchedCheckpoint) -> Measurement:
    """The same on a checkpoint."""
    plain = on_checkpoint("yarn")(checkpoint)
    gain = checkpoint.gain("yarn", against="yarn, no temperature")
    return replace(plain, numbers={**plain.numbers, "real temperature": gain})


def measure_trade(lab: Lab) -> Measurement:
    """What short texts pay for each method."""
    costs = {method: gains(lab, method)["cost"] for method in PLAIN}
    figure = points("What texts of the trained length pay, set for 8 times", "share of the loss", costs, 0.0)
    return Measurement({"cost": least(costs.values())}, (figure,), lab.source(ROPE))


def measure_checkpoint_trade(checkpoint: StretchedCheckpoint) -> Measurement:
    """The same on a checkpoint."""
    costs = {method: checkpoint.cost(method) for method in PLAIN}
    title = f"What texts of the trained length pay, {checkpoint.subject.name}"
    return Measurement({"real cost": least(costs.values())}, (points(title, "share of the loss", costs, 0.0),))


def _both_ranges(words: str) -> tuple[Clause, ...]:
    """Gains far and costs next to nothing: on the checkpoint, and in small models too."""
    return tuple(
        clause
        for role, real, where in ((core, "real ", "on the checkpoint"), (limit, "", "in small models"))
        for clause in (
            role(
                f"{real}gain",
                "at least",
                0.0,
                f"the fall of the loss at the longer length with {words} {where}, in nats",
            ),
            role(
                f"{real}cost",
                "at most",
                TOLERATED_RISE,
                f"the rise of the loss of short texts with {words} {where}, as a share",
            ),
        )
    )


CLAIMS = (
    Claim(
        "pi-local",
        "Position interpolation delays wrapping and hurts local detail.",
        "位置插值延缓相位绕回，但损害局部细节。",
        "001 §5.4, 002",
        "Wavelengths with and without interpolation by 8. Small models with rope and a checkpoint, interpolated "
        "without training: how the loss changes at the trained length, and at twice that.",
        (
            core("longer", "at least", 1.01, "the smallest growth of any pair's wavelength"),
            core("real cost", "at least", 0.0, "the rise of the loss of short texts on the checkpoint, as a share"),
            limit("real gain", "at least", 0.0, "the fall of the loss of longer texts on the checkpoint, in nats"),
            limit("cost", "at least", 0.0, "the rise of the loss of short texts in small models, as a share"),
            limit("gain", "at least", 0.0, "the fall of the loss of longer texts in small models, in nats"),
        ),
        exact=measure_waves,
        trained=on_small("linear", AGAIN, TIMES),
        checkpoint=on_checkpoint("linear"),
        needs=(AGAIN,),
    ),
    Claim(
        "ntk-both",
        "NTK-aware scaling keeps high frequencies and serves both ranges.",
        "NTK-aware 缩放保留高频，长短距离兼顾。",
        "001 §5.4",
        "The fastest pair under NTK-aware scaling by 8. Small models with rope and a checkpoint, scaled this way "
        "without training: how the loss changes at a longer length, and at the trained one.",
        (
            core("fastest", "at least", 0.99, "the share that is left of the fastest pair's frequency"),
            *_both_ranges("ntk"),
        ),
        exact=measure_fastest,
        trained=on_small("ntk"),
        checkpoint=on_checkpoint("ntk"),
        needs=(ROPE,),
    ),
    Claim(
        "yarn-balance",
        "YaRN balances both ranges by scaling plus temperature.",
        "YaRN 通过频率缩放加温度调节平衡长短距离。",
        "001 §5.4",
        "Small models with rope and a checkpoint under YaRN, with its temperature and without, without further "
        "training.",
        (
            *_both_ranges("yarn"),
            limit(
                "temperature",
                "at least",
                0.0,
                "the fall of the loss by the temperature at the longer length in small models, in nats",
            ),
            limit(
                "real temperature",
                "at least",
                0.0,
                "the fall of the loss by the temperature on the checkpoint, in nats",
            ),
        ),
        trained=measure_temperature,
        checkpoint=measure_checkpoint_temperature,
        needs=(ROPE, ROPE_MODELS),
    ),
    Claim(
        "trade",
        "All such methods trade short-range for long-range quality.",
        "这些方法本质上都是用短距离性能换取长距离外推。",
        "002",
        "How much the loss of texts of the trained length rises in small models and on a checkpoint that are set for "
        f"more by {', '.join(PLAIN)}; the smallest rise decides.",
        (
            core(
                "real cost",
                "at least",
                0.0,
                "the smallest rise of the loss of short texts on the checkpoint, as a share",
            ),
            limit("cost", "at least", 0.0, "the smallest rise of the loss of short texts in small models, as a share"),
        ),
        trained=measure_trade,
        checkpoint=measure_checkpoint_trade,
        needs=(ROPE,),
    ),
)
