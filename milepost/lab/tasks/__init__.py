"""Tasks: small languages in which what to say next is decided by place or distance. One file each.

A task makes rows of tokens of any length, and says which of them are scored. A model is trained on a task at the trained length, and
scored at longer ones by likelihood, beside the loss of one who knows the language but not the place ("chance").
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from milepost.lab.model import Decoder
    from milepost.lab.plan import Plan, Trial

TASKS = ("copy", "previous", "recall", "index", "counting", "who", "antecedent")
"""Every task; the file has the same name."""
Numbers = np.ndarray[Any, Any]


def rows(task: str, length: int, count: int, seed: int) -> tuple[Numbers, Numbers, float]:
    """Tokens (count x length + 1), which of the next tokens are scored (count x length), and the loss of chance."""
    page = import_module(f"milepost.lab.tasks.{task}")
    rng = np.random.default_rng((seed, length))
    ids, scored = zip(*(page.row(rng, length) for _ in range(count)), strict=True)
    return np.stack(ids), np.stack(scored), float(page.chance(length))


def train(plan: Plan, trial: Trial, model: Decoder, folder: Path, tell: Any) -> dict[str, Any]:
    """Train a model on a task: only scored tokens count."""
    from milepost.lab.tasks.learn import learn

    return learn(plan, trial, model, folder, tell)


def score(plan: Plan, trial: Trial, model: Decoder) -> list[dict[str, Any]]:
    """Loss and accuracy at each length, beside chance."""
    from milepost.lab.tasks.learn import measure

    return measure(plan, trial, model)
