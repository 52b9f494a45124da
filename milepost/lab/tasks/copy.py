"""copy: a string, a bar, and the same string again. Every letter of the second one stands half the text back.

n letters | the same n letters
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]
LETTERS = np.arange(97, 123)
CHANCE = math.log(len(LETTERS))
"""The loss of one who knows the letters, and not which."""


def row(rng: np.random.Generator, length: int) -> tuple[Numbers, Numbers]:
    """Tokens (length + 1) and which of the next ones are scored (length)."""
    n = length // 2
    word = rng.choice(LETTERS, n)
    ids = np.concatenate([word, [ord("|")], word, np.full(length - 2 * n, ord("."))])
    scored = np.zeros(length, dtype=bool)
    scored[n : 2 * n] = True
    return ids, scored
