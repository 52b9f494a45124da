"""heads: what trained heads do by distance.

    falls     scores q R_d k of a trained head, of the same queries and keys set at distances d: the mean over 1 to 8,
              minus that over the far half of the trained length
    octaves   log2 of (1 + the mean distance) of the most far-sighted head over that of the most short-sighted one, mean
              over layers

The first is measured in models with rope, the second in models with alibi that have 2, 4, 8 and 16 heads. All models
read the same windows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from milepost.claims.experiment import Lab, Measurement, Need, Numbers, Plot, mean_loss, mean_over, shares
from milepost.lab.measure import Texts
from milepost.lab.model import Decoder
from milepost.layout import Layout
from milepost.measure.attention import HeadStatistics, statistics

ROPE_MODELS = Need("text", ("rope",), weights=True)
BANDS = {n: Need(f"heads-{n}", ("alibi",), weights=True) for n in (2, 4, 8, 16)}
NEAR = (1, 2, 4, 8)
WINDOWS = 16


def measure_falls(lab: Lab) -> Measurement:
    """The share of trained heads whose scores are smaller far away than near by."""
    trained = lab.plans["text"].shape.length
    windows = _windows(lab, trained)
    far = tuple(trained // 2 + n * trained // 8 for n in range(4))
    by_model = [by_distance(model, windows, (*NEAR, *far)) for model in lab.models(ROPE_MODELS, "rope")]
    falls = np.array([fall(scores, len(NEAR)) for scores in by_model])  # seeds x heads
    number = shares([float(v) for v in (falls > 0).mean(1)], falls.size, "heads")
    first = by_model[0]
    lines = {
        "mean of all": first.mean(0),
        "head that falls most": first[int(falls[0].argmax())],
        "head that falls least": first[int(falls[0].argmin())],
    }
    figure = Plot(
        "lines",
        "Mean scores of trained heads by distance, first seed",
        "distance",
        "score / sqrt(D)",
        [*NEAR, *far],
        {name: [float(v) for v in line] for name, line in lines.items()},
        log_x=True,
    )
    where = f"at distances {far[0]} to {far[-1]}"
    note = f"the mean score of trained heads {where} is lower than at 1 to 8 by {falls.mean():.2g} on average"
    return Measurement({"heads": number}, (figure,), (note,))


def scores_at(model: Decoder, windows: Tensor, distances: tuple[int, ...]) -> Iterator[tuple[list[Tensor], int]]:
    """By layer: scores (B H keys) of the last query of each window with all of its keys, set at each of the distances.

    With them comes the size of a head.
    """
    pos = Layout.dense(windows.shape[1]).pos
    for q, k, enc, _ in model.looks(windows):
        last, keys = (enc.turn(x.double(), -pos) for x in (q, k))  # type: ignore[operator]
        last, count = last[..., -1:, :], keys.shape[2]
        turned = (enc.turn(keys, torch.full((1, count), -d)) for d in distances)  # type: ignore[operator]
        yield [(last * key).sum(-1) for key in turned], q.shape[-1]


@torch.no_grad()
def by_distance(model: Decoder, windows: Tensor, distances: tuple[int, ...]) -> Numbers:
    """Mean scores (heads of all layers x distances) of the last query of each window with all of its keys."""
    layers = [
        torch.stack([(scores / size**0.5).mean((0, 2)) for scores in at], -1)
        for at, size in scores_at(model, windows, distances)
    ]
    return torch.cat(layers).numpy()


def fall(scores: Numbers, near: int) -> Numbers:
    """By how much each head's (heads x distances) far scores lie below the ``near`` first ones."""
    falls: Numbers = scores[:, :near].mean(1) - scores[:, near:].mean(1)
    return falls


def measure_bands(lab: Lab) -> Measurement:
    """How many octaves trained heads cover, by their number."""
    covered = {
        n: np.array([_octaves(model, _windows(lab, model.shape.length)) for model in lab.models(need, "alibi")])
        for n, need in BANDS.items()
    }
    numbers = [mean_over(values, "texts") for values in covered.values()]
    figure = Plot(
        "lines",
        "Octaves between the most short-sighted and the most far-sighted trained head",
        "heads",
        "octaves",
        list(covered),
        {"trained": [number.value for number in numbers]},
        {"trained": [number.sides[0] for number in numbers]},
        {"trained": [number.sides[1] for number in numbers]},
        log_x=True,
    )
    runs = {n: lab.runs(need, "alibi") for n, need in BANDS.items()}
    losses = [f"{n} heads {mean_loss(some, some[0]['trained_length']).value:.4f}" for n, some in runs.items()]
    note = f"loss at the trained length, nats a token: {', '.join(losses)}"
    return Measurement({"trained": mean_over(covered[max(BANDS)] - covered[min(BANDS)], "texts")}, (figure,), (note,))


@torch.no_grad()
def _octaves(model: Decoder, windows: Tensor) -> list[float]:
    """The octaves that the heads cover in each window."""
    return [
        octaves(
            [
                head
                for layer, (q, k, enc, f) in enumerate(model.looks(window[None]))
                for head in statistics(q, k, enc, layer, features=f)
            ]
        )
        for window in windows
    ]


def octaves(heads: list[HeadStatistics]) -> float:
    """How many octaves of distance the heads of a layer cover, mean over layers."""
    layers = [[1 + head.mean for head in layer] for _, layer in groupby(heads, key=lambda head: head.layer)]
    return fmean(math.log2(max(layer) / min(layer)) for layer in layers)


def _windows(lab: Lab, length: int) -> Tensor:
    plan = lab.plans["text"]
    return torch.from_numpy(Texts.of(plan, plan.read()).windows[:WINDOWS, :length])
