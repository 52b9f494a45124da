"""Tasks: small languages in which position or distance decides the next token. One file each.

A task makes rows of tokens of any length from 8 on, and says which of them are scored. A model is trained on a task
at the trained length, and scored at longer ones by likelihood, beside ``CHANCE``: the loss of a reader who knows the
language but not the position. Growing tasks (see growing) are trained on problems of any size up to the trained length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from milepost.lab.tasks import (
    addition,
    antecedent,
    chain,
    copy,
    counting,
    index,
    parity,
    previous,
    recall,
    reverse,
    sort,
    sum,
    who,
)

if TYPE_CHECKING:
    from milepost.lab.train import Batches, Recipe

TASKS = {
    "copy": copy,
    "previous": previous,
    "recall": recall,
    "index": index,
    "counting": counting,
    "who": who,
    "antecedent": antecedent,
    "reverse": reverse,
    "sort": sort,
    "sum": sum,
    "parity": parity,
    "addition": addition,
    "chain": chain,
}
GROWING = ("reverse", "sort", "sum", "parity", "addition", "chain")
"""Tasks of length generalisation: tested with the largest problem that a text holds."""
Numbers = np.ndarray[Any, Any]


def rows(task: str, length: int, count: int, seed: int, **how: Any) -> tuple[Numbers, Numbers, float]:
    """Tokens (count x length + 1), which of the next tokens are scored (count x length), and the loss of chance."""
    page: Any = TASKS[task]
    rng = np.random.default_rng((seed, length))
    ids, scored = zip(*(page.row(rng, length, **how) for _ in range(count)), strict=True)
    return np.stack(ids), np.stack(scored), page.CHANCE


def batches(task: str, recipe: Recipe) -> Batches:
    """Rows of the trained length, new at every step; only scored tokens count."""
    return lambda step: rows(task, recipe.length, recipe.rows, seed=(recipe.seed + 1) * 1_000_003 + step)[:2]
