"""Measure: the loss of a trained model on text, under every protocol, as plain data.

    loss_by_length      the same last tokens under growing context (see measure/losses), each length with a strategy's
                        setting for it
    fixed               the same with the one setting that the longest length needs: what short texts pay for it
    second_by_length    the same on a second text, where the plan names one: it may be of another language
    loss_by_position    one long pass; for encodings that depend on the length, a pass for each bucket
    disjoint, sliding   the two other protocols

A length past a table's end is recorded as such, and does not end the run; so is a loss that is no number.
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
from milepost.lab.model import Decoder
from milepost.lab.plan import TextPlan
from milepost.lab.train import Diverged, Recipe, from_text, train
from milepost.lab.trial import Trial
from milepost.measure.attention import statistics, to_rows
from milepost.measure.intervals import mean
from milepost.measure.losses import buckets, by_position, disjoint, same_targets, sliding

Numbers = np.ndarray[Any, Any]
Row = dict[str, Any]
LOOKED_AT = 8
"""Windows that statistics of attention are made of."""
SLOWER = 48
"""Windows that the slower protocols (by position, disjoint, sliding) are measured on: the first ones."""
TUNING_RATE = 0.1
"""Of the rates of training."""


@dataclass(frozen=True)
class Texts:
    """Stretches of test files (windows x longest + 1), the file of each, and how long a token is."""

    windows: Numbers
    files: Numbers
    bytes_per_token: float

    @staticmethod
    def of(plan: TextPlan, text: corpus.Corpus) -> Texts:
        """What a plan tests on."""
        files, windows = zip(*corpus.windows(text.test, plan.longest, plan.windows), strict=True)
        return Texts(np.stack(windows), np.array(files), text.bytes_per_token)

    def first(self, count: int) -> Texts:
        """The first so many windows."""
        return Texts(self.windows[:count], self.files[:count], self.bytes_per_token)


def measure_strategy(
    plan: TextPlan, trial: Trial, model: Decoder, strategy: str, texts: Texts, second: Texts | None = None
) -> Row:
    """All that is measured of a model under one strategy; on ``second`` its loss by length alone."""
    reader = model_for(plan, trial, model, strategy, plan.longest)
    far = plan.longest if reader.end is None else min(plan.longest, reader.end)
    result = {
        "spec": repr(reader.encodings[0]),
        **_by_length(plan, texts, lambda length: model_for(plan, trial, model, strategy, length)),
        "loss_by_position": _by_position(plan, texts.first(SLOWER), reader, far),
    }
    if second is not None:
        rows = _by_length(plan, second, lambda length: model_for(plan, trial, model, strategy, length))
        result["second_by_length"] = rows["loss_by_length"]
    if strategy != "none":
        fixed = _by_length(plan, texts, lambda length: reader)
        return {**result, "fixed": fixed["loss_by_length"], "fixed_by_window": fixed["loss_by_window"]}
    looks = [
        {"length": length, "heads": _attention(reader, texts.windows, length)}
        for length in sorted({min(plan.shape.length, far), far})
    ]
    few = texts.first(SLOWER)
    strides = [(length, max(1, length // 2)) for length in plan.lengths]
    return {
        **result,
        "attention": [look for look in looks if look["heads"]],
        "disjoint": [{"length": n, **_by_protocol(disjoint, reader, few, n)} for n in plan.lengths],
        "sliding": [{"length": n, "stride": s, **_by_protocol(sliding, reader, few, n, s)} for n, s in strides],
    }


def measure_tuned(
    plan: TextPlan, trial: Trial, model: Decoder, strategy: str, texts: Texts, row: Numbers, state: Path
) -> Row:
    """The strategy's setting for the longest length, trained for some steps at that length on ``row``."""
    reader = model.with_encoding(strategies.served(trial.spec, strategy, plan.shape, plan.longest))
    rows = max(1, plan.rows * plan.shape.length // plan.longest)
    recipe = Recipe(plan.tune, rows, plan.longest, rate=TUNING_RATE, seed=trial.seed, bfloat16=plan.bfloat16)
    about = {"spec": repr(reader.encodings[0]), "tuned_steps": plan.tune}
    try:
        train(reader, from_text(row, recipe), recipe, state=state)
    except Diverged as error:
        return {**about, "loss_by_length": [], "loss_by_position": [], "failed": str(error)}
    places = _by_position(plan, texts.first(SLOWER), reader, plan.longest)
    return {**about, **_by_length(plan, texts, lambda length: reader), "loss_by_position": places}


def model_for(plan: TextPlan, trial: Trial, model: Decoder, strategy: str, length: int) -> Decoder:
    """The model as a strategy sets it for a length."""
    if strategy == "none":
        return model
    return model.with_encoding(strategies.served(trial.spec, strategy, plan.shape, length)).eval()


def _by_length(plan: TextPlan, texts: Texts, reader_for: Callable[[int], Decoder]) -> Row:
    """Loss of the same targets at each length, and of each window by itself, for paired differences."""
    rows, by_window = [], {}
    for length in plan.lengths:
        reader = reader_for(length)
        losses = None if _ends(reader, length) else same_targets(reader, texts.windows, length, plan.targets)
        rows.append({"length": length, **_interval(losses, texts)})
        if losses is not None and np.isfinite(losses).all():
            by_window[str(length)] = [round(float(value), 6) for value in losses.mean(1)]
    files = texts.files.tolist()
    return {"loss_by_length": rows, "loss_by_window": by_window, "window_files": files, "targets": plan.targets}


def _by_position(plan: TextPlan, texts: Texts, reader: Decoder, far: int) -> list[Row]:
    edges = buckets(far, plan.shape.length)
    by_bucket = by_position(reader, texts.windows, edges, length_dependent=reader.length_dependent)
    return [{"start": a, "end": e, **_interval(losses, texts)} for (a, e), losses in zip(edges, by_bucket, strict=True)]


def _by_protocol(protocol: Callable[..., Numbers], reader: Decoder, texts: Texts, length: int, *stride: int) -> Row:
    """A protocol on each window as a text of its own."""
    if _ends(reader, length):
        return _interval(None, texts)
    losses = [protocol(reader, window, length, *stride).reshape(-1) for window in texts.windows]
    return _interval(np.stack(losses), texts)


def _attention(model: Decoder, windows: Numbers, length: int) -> list[Row]:
    """How far each head looks in texts of this length, over a few windows; nothing where weights are no numbers."""
    with torch.no_grad():
        layers = model.looks(torch.from_numpy(windows[:LOOKED_AT, :length]).to(model.device))
        heads = [
            head
            for layer, ((q, k, enc, f), window) in enumerate(zip(layers, model.windows, strict=True))
            for head in statistics(q, k, enc, layer, window=window, features=f)
        ]
    return to_rows(heads) if all(math.isfinite(head.mean + head.entropy) for head in heads) else []


def _ends(reader: Decoder, length: int) -> bool:
    return reader.end is not None and length > reader.end


def _interval(losses: Numbers | None, texts: Texts) -> Row:
    """A mean with its interval; or why there is none."""
    if losses is None or not np.isfinite(losses).all():
        none = dict.fromkeys(("loss", "perplexity", "low", "high", "bits_per_byte"))
        return {**none, "tokens": 0, "note": "table ends" if losses is None else "the loss is no number"}
    loss = mean(losses, texts.files)
    return {
        "loss": loss.value,
        "perplexity": math.exp(loss.value) if loss.value < 700 else None,
        "low": loss.low,
        "high": loss.high,
        "bits_per_byte": loss.value / math.log(2) / texts.bytes_per_token,
        "tokens": loss.tokens,
    }
