"""index: what stands at index k? The one task that asks for an absolute place.

k, then letters from index 0 on, ... ? -> the letter at index k

Each k has a token of its own and is below 32, so that a model trained on 34 tokens or more has met all of them: in
longer texts the words are the same, and the question is further away.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]
LETTERS, FIRST, INDICES = np.arange(97, 123), 128, 32
CHANCE = math.log(len(LETTERS))
"""The loss of one who knows that a letter comes, and not which."""


def row(rng: np.random.Generator, length: int) -> tuple[Numbers, Numbers]:
    """Tokens (length + 1) and which of the next ones are scored (length)."""
    letters = rng.choice(LETTERS, length - 2)
    k = int(rng.integers(0, min(len(letters), INDICES)))
    ids = np.concatenate([[FIRST + k], letters, [ord("?"), letters[k]]])
    scored = np.zeros(length, dtype=bool)
    scored[-1] = True
    return ids, scored
