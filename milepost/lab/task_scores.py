"""Scoring a model on a task: the likelihood of the right answers, how often they were the likeliest, and in how many
rows all of them were (exact match).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from milepost.lab import tasks
from milepost.lab.measure import model_for
from milepost.lab.model import Decoder
from milepost.lab.plan import TextPlan
from milepost.lab.trial import Trial
from milepost.measure.intervals import mean

Numbers = np.ndarray[Any, Any]
TESTED = 96
"""Rows that a model is scored on at each length."""
DEPTHS = (0.0, 0.5, 1.0)
"""Where the pair of a recall stands: first in the text (the largest distance), in the middle, or at its end."""
SEED = 7
AT_ONCE = 1 << 13
"""Tokens in one call of the model."""


def score(plan: TextPlan, trial: Trial, model: Decoder, strategy: str = "none") -> list[dict[str, Any]]:
    """Loss, accuracy and chance at each length, on rows that were not trained on; of recall also at set depths."""
    results = []
    for length in plan.lengths:
        reader = model_for(plan, trial, model, strategy, length)
        result = _score_length(reader, trial.data, length)
        if trial.data == "recall" and result["loss"] is not None:
            result["by_depth"] = [
                {"depth": depth, **_score_length(reader, "recall", length, depth=depth)} for depth in DEPTHS
            ]
        results.append(result)
    return results


def _score_length(model: Decoder, task: str, length: int, **how: Any) -> dict[str, Any]:
    whole = {"whole": True} if task in tasks.GROWING else {}
    ids, scored, chance = tasks.rows(task, length, TESTED, seed=SEED, **how, **whole)
    about = {"length": length, "chance": chance, "rows": len(ids)}
    note = "table ends" if model.end is not None and length > model.end else ""
    if not note:
        losses, right = scores(model, ids, scored)
        note = "" if np.isfinite(losses).all() else "the loss is no number"
    if note:
        return {**about, **dict.fromkeys(("loss", "low", "high", "accuracy", "exact")), "tokens": 0, "note": note}
    counts = scored.sum(1)
    loss = mean(losses, np.arange(len(losses)), counts=counts)
    accuracy = float(right.sum() / counts.sum())
    interval = {"loss": loss.value, "low": loss.low, "high": loss.high}
    exact = float((right == counts).mean())
    return {**about, **interval, "accuracy": accuracy, "exact": exact, "tokens": loss.tokens}


@torch.no_grad()
def scores(model: Decoder, ids: Numbers, scored: Numbers) -> tuple[Numbers, Numbers]:
    """The summed loss and the right answers of each row, over its scored tokens."""
    losses, right = [], []
    step = max(1, AT_ONCE // ids.shape[1])
    for first in range(0, len(ids), step):
        rows, marks = (torch.from_numpy(a[first : first + step]).to(model.device) for a in (ids, scored))
        logits = model(rows[:, :-1])
        each = F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten(), reduction="none").view(marks.shape)
        hit = logits.argmax(-1) == rows[:, 1:]
        losses.append((each.double() * marks).sum(1).cpu().numpy())
        right.append((hit & marks).sum(1).cpu().numpy())
    return np.concatenate(losses), np.concatenate(right)
