"""Being scored on a task: the likelihood of the right answers, and how often they were the likeliest."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from milepost.lab import tasks
from milepost.lab.kinds import Trial
from milepost.lab.measure import served
from milepost.lab.model import Decoder
from milepost.lab.plan import Plan
from milepost.measure.intervals import mean

Numbers = np.ndarray[Any, Any]
TESTED = 96
"""Rows that a model is scored on at each length."""
DEPTHS = (0.0, 0.5, 1.0)
"""Where the pair of a recall stands: at the beginning of the text (the largest distance), in the middle, just before the question."""
SEED = 7
AT_ONCE = 1 << 13
"""Tokens in one call of the model."""


def measure(plan: Plan, trial: Trial, model: Decoder, strategy: str = "none") -> list[dict[str, Any]]:
    """Loss, accuracy and chance at each length, on rows that were not trained on; of recall also at set depths."""
    found = []
    for length in plan.lengths:
        reader = served(plan, trial, model, strategy, length)
        one = _one(reader, trial.data, length)
        if trial.data == "recall" and one["loss"] is not None:
            one["by_depth"] = [{"depth": depth, **_one(reader, "recall", length, depth=depth)} for depth in DEPTHS]
        found.append(one)
    return found


def _one(model: Decoder, task: str, length: int, **how: Any) -> dict[str, Any]:
    ids, scored, chance = tasks.rows(task, length, TESTED, seed=SEED, **how)
    about = {"length": length, "chance": chance, "rows": len(ids)}
    none = dict.fromkeys(("loss", "low", "high", "accuracy"))
    if model.end is not None and length > model.end:
        return {**about, **none, "tokens": 0, "note": "table ends"}
    lost, right = scores(model, ids, scored)
    if not np.isfinite(lost).all():
        return {**about, **none, "tokens": 0, "note": "the loss is no number"}
    counts = scored.sum(1)
    loss = mean(lost, np.arange(len(lost)), counts=counts)
    return {
        **about,
        "loss": loss.value,
        "low": loss.low,
        "high": loss.high,
        "accuracy": float(right.sum() / counts.sum()),
        "tokens": loss.tokens,
    }


@torch.no_grad()
def scores(model: Decoder, ids: Numbers, scored: Numbers) -> tuple[Numbers, Numbers]:
    """The summed loss and the right answers of each row, over its scored tokens."""
    lost, right = [], []
    step = max(1, AT_ONCE // ids.shape[1])
    for first in range(0, len(ids), step):
        rows, marks = (torch.from_numpy(a[first : first + step]).to(model.device) for a in (ids, scored))
        logits = model(rows[:, :-1])
        each = F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten(), reduction="none").view(marks.shape)
        hit = logits.argmax(-1) == rows[:, 1:]
        lost.append((each.double() * marks).sum(1).cpu().numpy())
        right.append((hit & marks).sum(1).cpu().numpy())
    return np.concatenate(lost), np.concatenate(right)
