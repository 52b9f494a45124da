"""counting: bits, and now and then the question how many ones there were so far, modulo eight.

0 1 1 0 ?2 1 0 ?3 ...
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]
ZERO, ONE, ASK, FIRST, MODULUS = 48, 49, 63, 128, 8
CHANCE = math.log(MODULUS)
"""The loss of one who knows that a count comes, and not which."""


def row(rng: np.random.Generator, length: int) -> tuple[Numbers, Numbers]:
    """Tokens (length + 1) and which of the next ones are scored (length)."""
    ids: list[int] = []
    scored: list[bool] = []
    ones = 0
    while len(ids) < length + 1:
        if len(ids) % 4 == 3 and len(ids) < length:
            ids += [ASK, FIRST + ones % MODULUS]
            scored += [False, True]
        else:
            bit = int(rng.integers(0, 2))
            ones += bit
            ids.append(ZERO + bit)
            scored.append(False)
    return np.array(ids[: length + 1]), np.array(scored[1 : length + 1])
