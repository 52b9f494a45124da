"""Measure: what a trained model loses on text, under every protocol, as plain data.

    loss_by_length      the same last tokens under growing context (see measure/losses), for each strategy with a setting that fits each length
    fixed               the same with the one setting that the longest length needs: what short texts pay for it
    loss_by_position    one long pass; for encodings that depend on the length, a pass for each bucket
    disjoint, sliding   the two other protocols

Lengths past a table's end are kept as such, not as a crash; so is a loss that is no number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from milepost.lab import corpus, strategies
from milepost.lab.kinds import Trial
from milepost.lab.model import Decoder
from milepost.lab.plan import Plan
from milepost.lab.train import Diverged, Recipe, from_text, train
from milepost.measure.attention import statistics, to_rows
from milepost.measure.intervals import mean
from milepost.measure.losses import buckets, by_position, disjoint, same_targets, sliding

Numbers = np.ndarray[Any, Any]
Row = dict[str, Any]
LOOKED_AT = 8
"""Windows that statistics of attention are made of."""
TUNING_RATE = 3e-4


@dataclass(frozen=True)
class Texts:
    """Stretches of test files (windows x longest + 1), the file of each, and how long a token is."""

    windows: Numbers
    files: Numbers
    bytes_per_token: float

    @staticmethod
    def of(plan: Plan, text: corpus.Corpus) -> Texts:
        """What a plan tests on."""
        cut = corpus.windows(text.test, plan.longest, plan.windows)
        return Texts(
            np.stack([tokens for _, tokens in cut]), np.array([number for number, _ in cut]), text.bytes_per_token
        )


def measured(plan: Plan, trial: Trial, model: Decoder, strategy: str, texts: Texts) -> Row:
    """All that is asked of a model under one strategy."""
    reader = served(plan, trial, model, strategy, plan.longest)
    far = plan.longest if reader.end is None else min(plan.longest, reader.end)
    edges = buckets(far, plan.shape.length)
    by_place = by_position(reader, texts.windows, edges, length_dependent=reader.length_dependent)
    result = {
        "spec": repr(reader.encodings[0]),
        **_by_length(plan, texts, lambda length: served(plan, trial, model, strategy, length)),
        "loss_by_position": [
            {"start": a, "end": e, **_said(lost, texts)} for (a, e), lost in zip(edges, by_place, strict=True)
        ],
    }
    if strategy != "none":
        one = _by_length(plan, texts, lambda length: reader)
        return {**result, "fixed": one["loss_by_length"], "fixed_by_window": one["loss_by_window"]}
    looked_at = sorted({min(plan.shape.length, far), far})
    looks = [{"length": n, "heads": _attention(reader, texts.windows, n)} for n in looked_at]
    others = {"disjoint": _apart(plan, reader, texts), "sliding": _over(plan, reader, texts)}
    return {**result, "attention": [look for look in looks if look["heads"]], **others}


def tuned(plan: Plan, trial: Trial, model: Decoder, strategy: str, texts: Texts, row: Numbers, state: Path) -> Row:
    """The strategy's setting for the longest length, trained for some steps at that length on ``row``."""
    reader = model.with_encoding(strategies.served(trial.encoding, strategy, plan.shape, plan.longest))
    rows = max(1, plan.rows * plan.shape.length // plan.longest)
    recipe = Recipe(plan.tune, rows, plan.longest, rate=TUNING_RATE, seed=trial.seed)
    about = {"spec": repr(reader.encodings[0]), "tuned_steps": plan.tune}
    try:
        train(reader, from_text(row, recipe), recipe, state=state)
    except Diverged as error:
        return {**about, "loss_by_length": [], "loss_by_position": [], "failed": str(error)}
    edges = buckets(plan.longest, plan.shape.length)
    by_place = by_position(reader, texts.windows, edges, length_dependent=reader.length_dependent)
    places = [{"start": a, "end": e, **_said(lost, texts)} for (a, e), lost in zip(edges, by_place, strict=True)]
    return {**about, **_by_length(plan, texts, lambda length: reader), "loss_by_position": places}


def served(plan: Plan, trial: Trial, model: Decoder, strategy: str, length: int) -> Decoder:
    """The model as a strategy sets it for a length."""
    if strategy == "none":
        return model
    return model.with_encoding(strategies.served(trial.encoding, strategy, plan.shape, length)).eval()


def _by_length(plan: Plan, texts: Texts, at: Callable[[int], Decoder]) -> Row:
    """Loss of the same targets at each length, and of each window by itself, for paired differences."""
    rows, held = [], {}
    for length in plan.lengths:
        reader = at(length)
        lost = None if _ends(reader, length) else same_targets(reader, texts.windows, length, plan.targets)
        rows.append({"length": length, **_said(lost, texts)})
        if lost is not None and np.isfinite(lost).all():
            held[str(length)] = [round(float(v), 6) for v in lost.mean(1)]
    return {
        "loss_by_length": rows,
        "loss_by_window": held,
        "window_files": texts.files.tolist(),
        "targets": plan.targets,
    }


def _apart(plan: Plan, reader: Decoder, texts: Texts) -> list[Row]:
    return [
        {"length": n, **_said(None if _ends(reader, n) else _each(disjoint, reader, texts.windows, n), texts)}
        for n in plan.lengths
    ]


def _over(plan: Plan, reader: Decoder, texts: Texts) -> list[Row]:
    found = []
    for n in plan.lengths:
        stride = max(1, n // 2)
        found.append(
            {
                "length": n,
                "stride": stride,
                **_said(None if _ends(reader, n) else _each(sliding, reader, texts.windows, n, stride), texts),
            }
        )
    return found


def _each(protocol: Callable[..., Numbers], model: Decoder, windows: Numbers, *how: int) -> Numbers:
    """A protocol on each window as a text of its own (windows x tokens)."""
    return np.stack([protocol(model, window, *how).reshape(-1) for window in windows])


def _attention(model: Decoder, windows: Numbers, length: int) -> list[Row]:
    """How far each head looks in texts of this length, over a few windows; nothing where weights are no numbers."""
    with torch.no_grad():
        layers = model.looks(torch.from_numpy(windows[:LOOKED_AT, :length]).to(model.device))
        found = [head for layer, (q, k, enc) in enumerate(layers) for head in statistics(q, k, enc, layer)]
    return to_rows(found) if all(math.isfinite(head.mean + head.entropy) for head in found) else []


def _ends(reader: Decoder, length: int) -> bool:
    return reader.end is not None and length > reader.end


def _said(lost: Numbers | None, texts: Texts) -> Row:
    """A mean with its interval; or why there is none."""
    if lost is None or not np.isfinite(lost).all():
        none = dict.fromkeys(("loss", "perplexity", "low", "high", "bits_per_byte"))
        return {**none, "tokens": 0, "note": "table ends" if lost is None else "the loss is no number"}
    one = mean(lost, texts.files)
    perplexity = math.exp(one.value) if one.value < 700 else None
    bits = one.value / math.log(2) / texts.bytes_per_token
    return {
        "loss": one.value,
        "perplexity": perplexity,
        "low": one.low,
        "high": one.high,
        "bits_per_byte": bits,
        "tokens": one.tokens,
    }
