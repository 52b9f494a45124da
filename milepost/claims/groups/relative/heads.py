"""heads: what trained heads do by distance.

    falls     scores q R_d k of a trained head, of the same queries and keys set at distances d: the mean over 1 to 8, less that over the far half
              of the trained length
    octaves   log2 of (1 + the mean distance) of the most far-sighted head over that of the most short-sighted one, mean over layers

The first is asked of models with rope, the second of models with alibi that have 2, 4, 8 and 16 heads. Of each model the windows are the same.
"""

from __future__ import annotations

import math
from itertools import groupby
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from milepost.claims.claim import Figure, Found
from milepost.claims.groups.practice.lengths import ROPE_ITSELF
from milepost.claims.needs import Need
from milepost.claims.rule import Number
from milepost.claims.seeds import both, mean_loss, shares
from milepost.claims.trained import Lab
from milepost.lab.measure import Texts
from milepost.lab.model import Decoder
from milepost.layout import Layout
from milepost.measure.attention import HeadStatistics, statistics
from milepost.measure.intervals import mean

Numbers = np.ndarray[Any, Any]
BANDS = {n: Need(f"heads-{n}", ("alibi",), weights=True) for n in (2, 4, 8, 16)}
NEAR = (1, 2, 4, 8)
LOOKED_AT = 16
"""Windows."""


def falls_found(lab: Lab) -> Found:
    """In which share of trained heads scores are smaller far away than near by."""
    plan = lab.plans["text"]
    trained = plan.shape.length
    windows = _windows(lab, trained)
    far = tuple(trained // 2 + n * trained // 8 for n in range(4))
    by_model = [by_distance(model, windows, (*NEAR, *far)) for model in lab.models(ROPE_ITSELF, "rope")]
    falls = np.array([fall(scores, len(NEAR)) for scores in by_model])  # seeds x heads
    number = shares([float(v) for v in (falls > 0).mean(1)], falls.size, "heads")
    steepest, flattest = int(falls[0].argmax()), int(falls[0].argmin())
    lines = {
        "mean of all": by_model[0].mean(0),
        "head that falls most": by_model[0][steepest],
        "head that falls least": by_model[0][flattest],
    }
    figure = Figure(
        "lines", "Mean scores of trained heads by distance, first seed", "distance", "score / sqrt(D)", [*NEAR, *far],
        {name: [float(v) for v in line] for name, line in lines.items()}, log_x=True,
    )  # fmt: skip
    note = f"of trained heads the mean score at distances {far[0]} to {far[-1]} lies below that at 1 to 8 by {falls.mean():.2g} on average"
    return Found({"heads": number}, (figure,), (note,))


@torch.no_grad()
def by_distance(model: Decoder, windows: Tensor, distances: tuple[int, ...]) -> Numbers:
    """Mean scores (heads of all layers x distances) of the last query of each window with all of its keys, as if they were at these distances."""
    pos, found = Layout.dense(windows.shape[1]).pos, []
    for q, k, enc in model.looks(windows):
        last, keys = (enc.turn(x.double(), -pos) for x in (q, k))  # type: ignore[operator]
        last = last[..., -1:, :] / q.shape[-1] ** 0.5
        at = [(last * enc.turn(keys, torch.full((1, keys.shape[2]), -d))).sum(-1).mean((0, 2)) for d in distances]  # type: ignore[operator]
        found.append(torch.stack(at, -1))
    return torch.cat(found).numpy()


def fall(scores: Numbers, near: int) -> Numbers:
    """By how much each head's (heads x distances) far scores lie below the ``near`` first ones."""
    found: Numbers = scores[:, :near].mean(1) - scores[:, near:].mean(1)
    return found


def bands_found(lab: Lab) -> Found:
    """How many octaves trained heads cover, by their number."""
    covered = {
        n: np.array([_octaves(model, _windows(lab, model.shape.length)) for model in lab.models(need, "alibi")])
        for n, need in BANDS.items()
    }
    numbers = {n: _over_texts(values) for n, values in covered.items()}
    most, least = max(BANDS), min(BANDS)
    figure = Figure(
        "lines", "Octaves between the most short-sighted and the most far-sighted trained head", "heads", "octaves", list(numbers),
        {"trained": [one.value for one in numbers.values()]}, {"trained": [one.sides[0] for one in numbers.values()]},
        {"trained": [one.sides[1] for one in numbers.values()]}, log_x=True,
    )  # fmt: skip
    lost = [
        f"{n} heads {mean_loss(runs, runs[0]['trained_length']).value:.4f}"
        for n, need in BANDS.items()
        if (runs := lab.runs(need, "alibi"))
    ]
    note = f"loss at the trained length, nats a token: {', '.join(lost)}"
    return Found({"trained": _over_texts(covered[most] - covered[least])}, (figure,), (note,))


def _octaves(model: Decoder, windows: Tensor) -> list[float]:
    """Of each window."""
    found = []
    for window in windows:
        with torch.no_grad():
            looks = model.looks(window[None])
        found.append(
            octaves([head for layer, (q, k, enc) in enumerate(looks) for head in statistics(q, k, enc, layer)])
        )
    return found


def octaves(heads: list[HeadStatistics]) -> float:
    """How many octaves of distance the heads of a layer cover, mean over layers."""
    layers = [[1 + head.mean for head in layer] for _, layer in groupby(heads, key=lambda head: head.layer)]
    return fmean(math.log2(max(layer) / min(layer)) for layer in layers)


def _windows(lab: Lab, length: int) -> Tensor:
    plan = lab.plans["text"]
    return torch.from_numpy(Texts.of(plan, plan.read()).windows[:LOOKED_AT, :length])


def _over_texts(values: Numbers) -> Number:
    """Values (seeds x windows)."""
    one = mean(values.mean(0)[:, None], np.arange(values.shape[1]))
    return both([float(v) for v in values.mean(1)], one.low, one.high, f"{values.shape[1]} texts")
