"""Stretching RoPE: what texts beyond the trained length gain, and what short ones pay. On small models, and on a real one.

    gain    what the model as it is loses more than the stretched one at 8 times the trained length (a real one: 2 times)
    cost    what a text of the trained length pays when the model is set for that, as a share of its loss

A cost of at most 2% counts as none, as in `recommend`. What the checkpoint shows is the core of a rule, and what small models show may limit it: at the
short lengths that those are trained on, hardly a pair turns often, and YaRN is nearly interpolation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from milepost.checkpoints.recommendation.recommend import HURTS
from milepost.claims.claim import Claim, Figure, Found, collected, points
from milepost.claims.groups.practice.lengths import ROPE, ROPE_ITSELF, by_length
from milepost.claims.real import Real
from milepost.claims.rule import Clause, Number, core, least, limit
from milepost.claims.seeds import both, gap, losses
from milepost.claims.trained import Lab
from milepost.encodings.rope import RoPE
from milepost.lab.measure import Texts
from milepost.measure.intervals import mean
from milepost.measure.losses import same_targets
from milepost.scaling.linear import Linear
from milepost.scaling.ntk import NTK
from milepost.scaling.yarn import YaRN
from milepost.spectrum import geometric

PLAIN = ("linear", "ntk", "yarn")
FACTOR = 8
SIZE = 64


def gains(lab: Lab, method: str) -> dict[str, Number]:
    """The gain and the cost of a method in small models."""
    none, stretched = lab.runs(ROPE, "rope"), lab.runs(ROPE, "rope", method)
    home = none[0]["trained_length"]
    gained, paid = gap(stretched, none, FACTOR * home), gap(none, stretched, home, field="fixed_by_window")
    base = float(losses(none, home).mean())
    return {"gain": gained, "cost": Number(paid.value / base, paid.sides[0] / base, paid.sides[1] / base, paid.over)}


def on_small(method: str) -> Callable[[Lab], Found]:
    """A function that measures a method on small models."""

    def found(lab: Lab) -> Found:
        both_lines = {"none": lab.runs(ROPE, "rope"), method: lab.runs(ROPE, "rope", method)}
        return Found(
            gains(lab, method),
            (by_length("Loss of the same tokens, set for each length", both_lines),),
            lab.source(ROPE),
        )

    return found


def on_real(method: str) -> Callable[[Real], Found]:
    """A function that measures a method on a checkpoint."""

    def found(real: Real) -> Found:
        numbers = {"real gain": real.gain(method), "real cost": real.cost(method)}
        note = f"on {real.subject.name}, trained at {real.trained}, read at {real.target}"
        return Found(numbers, (points(f"{method} on {real.subject.name}", "nats; share", numbers, 0.0),), (note,))

    return found


def waves_found() -> Found:
    """Wavelengths of every pair under position interpolation, over what they were."""
    plain = geometric(SIZE)
    ratios = [b / a for a, b in zip(plain.wavelengths, Linear(FACTOR)(plain).wavelengths, strict=True)]
    return Found({"longer": min(ratios), "near": max(ratios)}, (_spectra(),))


def kept_found() -> Found:
    """The fastest and the slowest pair under NTK-aware scaling, over what they were."""
    plain = geometric(SIZE)
    kept = [b / a for a, b in zip(plain.frequencies, NTK(FACTOR)(plain).frequencies, strict=True)]
    return Found({"fastest": kept[0], "slowest": kept[-1]}, (_spectra(),))


def _spectra() -> Figure:
    """What each scaling leaves of every pair's frequency."""
    plain, scalings = geometric(SIZE), {"linear": Linear(FACTOR), "ntk": NTK(FACTOR), "yarn": YaRN(FACTOR, 2048)}
    lines = {
        name: [b / a for a, b in zip(plain.frequencies, one(plain).frequencies, strict=True)]
        for name, one in scalings.items()
    }
    return Figure(
        "lines",
        f"What is left of each pair's frequency, {FACTOR} times (yarn: trained at 2048)",
        "pair",
        "share",
        list(range(SIZE // 2)),
        lines,
    )


def temperature_found(lab: Lab) -> Found:
    """YaRN with and without its temperature, in the same models at 8 times the trained length."""
    small = on_small("yarn")(lab)
    numbers, plan = dict(small.numbers), lab.plans["text"]

    def warmer() -> Number:
        texts, trained = Texts.of(plan, plan.read()), plan.shape.length
        by_model = []
        for model in lab.models(ROPE_ITSELF, "rope"):
            warm = YaRN(FACTOR, trained)
            rope = RoPE(plan.shape.head_dim)
            readers = [
                model.with_encoding(repr(RoPE(rope.head_dim or 0, scaling=one)))
                for one in (warm, replace(warm, attention_factor=1.0))
            ]
            with_it, without = (
                same_targets(reader.eval(), texts.windows, FACTOR * trained, plan.targets).mean(1) for reader in readers
            )
            by_model.append(without - with_it)
        lost = np.array(by_model)
        one = mean(lost.mean(0)[:, None], texts.files)
        return both([float(v) for v in lost.mean(1)], one.low, one.high, f"{len(set(texts.files.tolist()))} files")

    numbers |= collected({"temperature": warmer})
    return Found(numbers, small.figures, small.notes)


def real_temperature_found(real: Real) -> Found:
    """The same on a checkpoint."""
    plain = on_real("yarn")(real)
    return Found(
        {**plain.numbers, "real temperature": real.gain("yarn", against="yarn, no temperature")},
        plain.figures,
        plain.notes,
    )


def trade_found(lab: Lab) -> Found:
    """What short texts pay for each method."""
    costs = {method: gains(lab, method)["cost"] for method in PLAIN}
    return Found(
        {"cost": least(costs.values())},
        (points("What texts of the trained length pay, set for 8 times", "share of the loss", costs, 0.0),),
        lab.source(ROPE),
    )


def real_trade_found(real: Real) -> Found:
    """The same on a checkpoint."""
    costs = {method: real.cost(method) for method in PLAIN}
    return Found(
        {"real cost": least(costs.values())},
        (points(f"What texts of the trained length pay, {real.subject.name}", "share of the loss", costs, 0.0),),
    )


def _both_ranges(words: str) -> tuple[Clause, ...]:
    """Gains far and costs next to nothing: on the checkpoint, and in small models too."""
    return tuple(
        clause
        for role, real, where in ((core, "real ", "on the checkpoint"), (limit, "", "in small models"))
        for clause in (
            role(f"{real}gain", "at least", 0.0, f"what {words} gains at the longer length {where}, in nats,"),
            role(f"{real}cost", "at most", HURTS, f"what short texts pay for {words} {where}, as a share,"),
        )
    )


CLAIMS = (
    Claim(
        "pi-local",
        "Position interpolation delays wrapping and hurts local detail.",
        "位置插值延缓相位绕回，但损害局部细节。",
        "001 §5.4, 002",
        "Wavelengths with and without interpolation by 8. Small models with rope and a checkpoint, interpolated without training: what texts of the "
        "trained length pay, and what longer ones gain.",
        (
            core("longer", "at least", 1.01, "the smallest growth of any pair's wavelength"),
            core("real cost", "at least", 0.0, "what short texts pay on the checkpoint, as a share,"),
            limit("real gain", "at least", 0.0, "what longer texts gain on the checkpoint, in nats,"),
            limit("cost", "at least", 0.0, "what short texts pay in small models, as a share,"),
            limit("gain", "at least", 0.0, "what longer texts gain in small models, in nats,"),
        ),
        exact=waves_found,
        trained=on_small("linear"),
        checkpoint=on_real("linear"),
        needs=(ROPE,),
    ),
    Claim(
        "ntk-both",
        "NTK-aware scaling keeps high frequencies and serves both ranges.",
        "NTK-aware 缩放保留高频，长短距离兼顾。",
        "001 §5.4",
        "The fastest pair under NTK-aware scaling by 8. Small models with rope and a checkpoint, so scaled without training: what longer texts gain, "
        "and what short ones pay.",
        (core("fastest", "at least", 0.99, "what is left of the fastest pair's frequency"), *_both_ranges("ntk")),
        exact=kept_found,
        trained=on_small("ntk"),
        checkpoint=on_real("ntk"),
        needs=(ROPE,),
    ),
    Claim(
        "yarn-balance",
        "YaRN balances both ranges by scaling plus temperature.",
        "YaRN 通过频率缩放加温度调节平衡长短距离。",
        "001 §5.4",
        "Small models with rope and a checkpoint under YaRN, with its temperature and without, not trained again.",
        (
            *_both_ranges("yarn"),
            limit(
                "temperature",
                "at least",
                0.0,
                "what the temperature gains at the longer length in small models, in nats,",
            ),
            limit("real temperature", "at least", 0.0, "what the temperature gains on the checkpoint, in nats,"),
        ),
        trained=temperature_found,
        checkpoint=real_temperature_found,
        needs=(ROPE, ROPE_ITSELF),
    ),
    Claim(
        "trade",
        "All such methods trade short-range for long-range quality.",
        "这些方法本质上都是用短距离性能换取长距离外推。",
        "002",
        f"What texts of the trained length pay in small models and on a checkpoint set for more by {', '.join(PLAIN)}; the cheapest of them decides.",
        (
            core("real cost", "at least", 0.0, "the smallest cost to short texts on the checkpoint, as a share,"),
            limit("cost", "at least", 0.0, "the smallest cost to short texts in small models, as a share,"),
        ),
        trained=trade_found,
        checkpoint=real_trade_found,
        needs=(ROPE,),
    ),
)
