"""previous: letters, and now and then an equals sign, after which the letter before it comes again: the nearest one.

q x d=d k w=w ...
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
    ids = rng.choice(LETTERS, length + 1)
    places = np.arange(2, length, 4) + rng.integers(0, 2)
    places = places[places < length]
    ids[places] = ord("=")
    ids[places + 1] = ids[places - 1]
    scored = np.zeros(length, dtype=bool)
    scored[places] = True
    return ids, scored
