"""Learning a task, and being scored on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from milepost.diagnose.intervals import mean
from milepost.lab import saved, tasks
from milepost.lab.model import Decoder
from milepost.lab.plan import Plan, Trial
from milepost.lab.train import Recipe, train

TESTED = 96
"""Rows that a model is scored on at each length."""


def learn(plan: Plan, trial: Trial, model: Decoder, folder: Path, tell: Any) -> dict[str, Any]:
    """Train on rows of the trained length, new at every step."""
    recipe = Recipe(plan.steps, plan.rows, plan.shape.length, seed=trial.seed)

    def batches(step: int) -> tuple[Any, Any]:
        ids, scored, _ = tasks.rows(trial.data, recipe.length, recipe.rows, seed=(trial.seed + 1) * 1_000_003 + step)
        return ids, scored

    def told(step: int, loss: float, speed: float) -> None:
        tell({"step": step, "of": plan.steps, "loss": loss, "tokens_per_s": speed})

    done = train(model, batches, recipe, state=folder / "state.pt", tell=told)
    saved.save(model, folder, seed=trial.seed, steps=plan.steps, task=trial.data)
    return done


@torch.no_grad()
def measure(plan: Plan, trial: Trial, model: Decoder) -> list[dict[str, Any]]:
    """Loss, accuracy and chance at each length, on rows that were not trained on."""
    found = []
    for length in plan.lengths:
        ids, scored, chance = tasks.rows(trial.data, length, TESTED, seed=7)
        about: dict[str, Any] = {"length": length, "chance": chance}
        try:
            lost, right = _scores(model, ids, scored)
        except ValueError as error:
            if "past the end" not in str(error):
                raise
            found.append({**about, "loss": None, "note": "table ends"})
            continue
        one = mean(lost[:, None], np.arange(len(lost)))
        found.append({**about, "loss": one.value, "low": one.low, "high": one.high, "accuracy": float(right.mean()), "rows": len(ids)})
    return found


def _scores(model: Decoder, ids: Any, scored: Any) -> tuple[Any, Any]:
    """Mean loss and share of right answers of each row."""
    lost, right = [], []
    for first in range(0, len(ids), 16):
        rows, marks = torch.from_numpy(ids[first : first + 16]), torch.from_numpy(scored[first : first + 16])
        logits = model(rows[:, :-1])
        each = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="none").view(marks.shape)
        hit = (logits.argmax(-1) == rows[:, 1:]).float()
        count = marks.sum(1)
        lost.append(((each * marks).sum(1) / count).double().numpy())
        right.append(((hit * marks).sum(1) / count).numpy())
    return np.concatenate(lost), np.concatenate(right)
