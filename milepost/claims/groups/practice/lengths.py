"""Past the trained length: how the loss of small models rises there, and where they attend.

A longer context counts as read where the loss of the same tokens is at most 2% above that at the trained length (as in
`recommend`), and as broken where it is higher.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from milepost.claims.experiment import (
    FAR,
    Claim,
    Lab,
    Measurement,
    Need,
    Number,
    Plot,
    Run,
    control,
    core,
    losses,
    mean_over,
    measure_each,
    points,
    rise,
)
from milepost.claims.groups.absolute.sinusoids import WIDTH
from milepost.claims.groups.relative.heads import ROPE_MODELS, scores_at
from milepost.encodings.sinusoidal import Sinusoidal
from milepost.lab import corpus
from milepost.lab.measure import Texts
from milepost.lab.model import Decoder
from milepost.layout import Layout
from milepost.measure.losses import TOLERATED_RISE, same_targets

SIN, ROPE = Need("text", ("sinusoidal",)), Need("text", ("rope",))
SIN_MODELS = Need("text", ("sinusoidal",), weights=True)
NOTED = (4096, 4100, 4500)
"""The notes' example: a trained length, and two positions past it."""


def by_length(title: str, lines: dict[str, list[Run]]) -> Plot:
    """Mean loss over seeds against length."""
    lengths = sorted({int(n) for runs in lines.values() for run in runs for n in run["loss_by_window"]})

    def loss(runs: list[Run], length: int) -> float | None:
        known = all(str(length) in run["loss_by_window"] for run in runs)
        return float(losses(runs, length).mean()) if known else None

    shown = {name: [loss(runs, length) for length in lengths] for name, runs in lines.items()}
    return Plot("lines", title, "tokens of context", "loss, nats a token", lengths, shown, log_x=True)


def rises(runs: list[Run]) -> dict[str, Number]:
    """The rise of the loss at 2 and at 8 times the trained length."""
    trained = runs[0]["trained_length"]
    return {f"{times} times": rise(runs, times * trained, trained) for times in (2, 8)}


def sweep_lengths(need: Need) -> Callable[[Lab], Measurement]:
    """An experiment: the rise of the loss of one encoding, by length."""

    def measure(lab: Lab) -> Measurement:
        (name,) = need.encodings
        runs = lab.runs(need, name)
        return Measurement(rises(runs), (by_length("Loss of the same tokens", {name: runs}),), lab.source(need))

    return measure


def rise_beyond(
    lab: Lab,
    models: Sequence[Decoder],
    times: int,
    windows: int,
    stretch: Callable[[Decoder], Decoder] = lambda model: model,
) -> Number:
    """The rise of the loss at so many times the trained length, farther than the sweep tests.

    ``stretch`` sets a model for that length.
    """
    plan, home = lab.plans["text"], lab.plans["text"].shape.length
    text = corpus.read(plan.text, plan.tokenizer, longest=times * home, trained=home)
    texts = Texts.of(replace(plan, lengths=(home, times * home), windows=windows), text)
    by_model = []
    for model in models:
        before = same_targets(model, texts.windows, home, plan.targets).mean(1)
        after = same_targets(stretch(model), texts.windows, times * home, plan.targets).mean(1)
        by_model.append((after - before) / before.mean())
    return mean_over(np.array(by_model), "files", texts.files)


def measure_any_length() -> Measurement:
    """The share of positions up to 1,048,575 whose codes are finite."""
    pos = torch.cat([torch.arange(0, FAR, 1001), torch.tensor([FAR])])
    return Measurement({"represented": float(torch.isfinite(Sinusoidal(WIDTH).code(pos)).all(-1).double().mean())})


def measure_sinusoidal(lab: Lab) -> Measurement:
    """The rise of the loss of sinusoidal codes, up to 16 times the trained length."""
    swept = sweep_lengths(SIN)(lab)
    windows = lab.plans["text"].windows
    far = measure_each({"16 times": lambda: rise_beyond(lab, lab.models(SIN_MODELS, "sinusoidal"), 16, windows)})
    return replace(swept, numbers={**swept.numbers, **far})


def measure_in_range(lab: Lab) -> Measurement:
    """The same models with a window of the trained length, in which no distance is new."""
    plan = lab.plans["text"]
    texts, trained = Texts.of(plan, plan.read()), plan.shape.length
    by_way: dict[str, list[np.ndarray]] = {"home": [], "whole": [], "window": []}
    for model in lab.models(ROPE_MODELS, "rope"):

        def windowed(ids: Tensor, model: torch.nn.Module = model) -> Tensor:
            logits: Tensor = model(ids, Layout.dense(ids.shape[1], window=trained))
            return logits

        for way, reader, times in (("home", model, 1), ("whole", model, 8), ("window", windowed, 8)):
            by_way[way].append(same_targets(reader, texts.windows, times * trained, plan.targets).mean(1))
    home = np.array(by_way["home"])
    numbers = {
        way: mean_over((np.array(by_way[way]) - home) / float(home.mean()), "files", texts.files)
        for way in ("whole", "window")
    }
    shown = {"whole text": numbers["whole"], "window of the trained length": numbers["window"]}
    title = "Loss at 8 times the trained length, against the trained length"
    return Measurement(numbers, (points(title, "rise, as a share", shown, TOLERATED_RISE),))


@torch.no_grad()
def measure_far_random(lab: Lab) -> Measurement:
    """Trained queries and keys set at two distances past the trained length, and at two as far apart inside it."""
    plan = lab.plans["text"]
    trained = plan.shape.length
    windows = torch.from_numpy(Texts.of(plan, plan.read()).windows[:, :trained])
    first, second = (max(trained + n, round(trained * place / NOTED[0])) for n, place in enumerate(NOTED[1:]))
    apart, inside = second - first, trained // 2
    by_model = []
    for model in lab.models(ROPE_MODELS, "rope"):
        by_layer = []
        for (a, b, c, d), _ in scores_at(model, windows, (first, second, inside, inside + apart)):
            far, near = (((x - y) ** 2).mean((1, 2)) for x, y in ((a, b), (c, d)))
            by_layer.append((far / near).sqrt())
        by_model.append(torch.stack(by_layer).mean(0).numpy())
    ratio = mean_over(np.array(by_model), "texts")
    note = f"distances {first} and {second} against {inside} and {inside + apart}, for models trained at {trained}"
    title = "Difference of a key's scores at two distances, past the trained length over inside"
    return Measurement({"told apart": ratio}, (points(title, "ratio", {f"{first} and {second}": ratio}, 0.5),), (note,))


CLAIMS = (
    Claim(
        "sin-extrapolates",
        'Sinusoidal codes "can represent any length", yet extrapolate badly.',
        "正弦编码“理论上可表示任意长度”，但外推效果差。",
        "001 §3.2, 002 §1",
        "Codes at positions up to 1,048,575; small models trained with sinusoidal codes, tested on the same tokens at "
        "up to 16 times the trained length.",
        (
            core("represented", "at least", 1.0, "the share of positions up to 1,048,575 that have a code"),
            core(
                "2 times", "at least", TOLERATED_RISE, "the rise of the loss at 2 times the trained length, as a share"
            ),
            core("8 times", "at least", TOLERATED_RISE, "the rise of the loss at 8 times, as a share"),
            core("16 times", "at least", TOLERATED_RISE, "the rise of the loss at 16 times, as a share"),
        ),
        exact=measure_any_length,
        trained=measure_sinusoidal,
        needs=(SIN, SIN_MODELS),
    ),
    Claim(
        "rope-breaks",
        "RoPE fails past its trained length.",
        "RoPE 超过训练长度后会失效。",
        "002",
        "Small models trained with rope, tested on the same tokens at up to 8 times the trained length.",
        (
            core(
                "2 times", "at least", TOLERATED_RISE, "the rise of the loss at 2 times the trained length, as a share"
            ),
            core("8 times", "at least", TOLERATED_RISE, "the rise of the loss at 8 times, as a share"),
        ),
        trained=sweep_lengths(ROPE),
        needs=(ROPE,),
    ),
    Claim(
        "rope-in-range",
        "RoPE stays fine past the trained length as long as distances stay in range.",
        "只要相对距离仍在训练范围内，RoPE 在更长的序列上依然有效。",
        "002 §2",
        "Small models trained with rope read 8 times the trained length, whole and through a sliding window of the "
        "trained length.",
        (
            control(
                "whole", "at least", TOLERATED_RISE, "the rise of the loss at 8 times without a window, as a share"
            ),
            core(
                "window",
                "at most",
                TOLERATED_RISE,
                "the rise of the loss at 8 times with a window of the trained length, as a share",
            ),
        ),
        trained=measure_in_range,
        needs=(ROPE_MODELS,),
    ),
    Claim(
        "rope-far-random",
        "Past the trained length, keys at 4100 and 4500 can't be told apart.",
        "超过训练长度后，模型无法区分位置 4100 和 4500 的键。",
        "002 §二",
        "Trained queries and keys of small models: how much the score of one key changes between two distances past "
        "the trained length (scaled from 4096, 4100 and 4500), over the change between two distances as far apart at "
        "half the trained length.",
        (core("told apart", "at most", 0.5, "the change of scores past the trained length over that inside it"),),
        trained=measure_far_random,
        needs=(ROPE_MODELS,),
    ),
)
