"""index: what stands at index k? The one task that asks for an absolute place.

k of two digits, then letters from index 0 on, ... ? -> the letter at index k
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]
LETTERS, DIGITS = np.arange(97, 123), 128
BASE = 64


def row(rng: np.random.Generator, length: int) -> tuple[Numbers, Numbers]:
    """Tokens (length + 1) and which of the next ones are scored (length)."""
    letters = rng.choice(LETTERS, length - 3)
    k = int(rng.integers(0, min(len(letters), BASE * BASE)))
    ids = np.concatenate([[DIGITS + BASE + k // BASE, DIGITS + k % BASE], letters, [ord("?"), letters[k]]])
    scored = np.zeros(length, dtype=bool)
    scored[-1] = True
    return ids, scored


def chance(length: int) -> float:
    """One who knows that a letter comes, and not which."""
    return math.log(len(LETTERS))
