"""Tasks: small languages in which what to say next is decided by place or distance. One file each.

A task makes rows of tokens of any length from 8 on, and says which of them are scored. A model is trained on a task at the trained
length, and scored at longer ones by likelihood, beside the loss of one who knows the language but not the place ("chance").
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from milepost.lab.kinds import Trial
    from milepost.lab.model import Decoder
    from milepost.lab.plan import Plan
    from milepost.lab.train import Batches, Recipe

TASKS = ("copy", "previous", "recall", "index", "counting", "who", "antecedent")
"""Every task; the file has the same name."""
Numbers = np.ndarray[Any, Any]


def rows(task: str, length: int, count: int, seed: int, **how: Any) -> tuple[Numbers, Numbers, float]:
    """Tokens (count x length + 1), which of the next tokens are scored (count x length), and the loss of chance."""
    page = import_module(f"milepost.lab.tasks.{task}")
    rng = np.random.default_rng((seed, length))
    ids, scored = zip(*(page.row(rng, length, **how) for _ in range(count)), strict=True)
    return np.stack(ids), np.stack(scored), float(page.chance(length))


def batches(task: str, recipe: Recipe) -> Batches:
    """Rows of the trained length, new at every step; only scored tokens count."""
    return lambda step: rows(task, recipe.length, recipe.rows, seed=(recipe.seed + 1) * 1_000_003 + step)[:2]


def score(plan: Plan, trial: Trial, model: Decoder, strategy: str = "none") -> list[dict[str, Any]]:
    """Loss and accuracy at each length, beside chance."""
    from milepost.lab.tasks.scoring import measure

    return measure(plan, trial, model, strategy)
