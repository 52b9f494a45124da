"""antecedent: a pronoun means the name that was said last, however many there were before.

t Q e r K u i @K z ... B x @B
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]
LETTERS, NAMES, PRONOUN = np.arange(97, 123), np.arange(65, 91), 64
CHANCE = math.log(len(NAMES))
"""The loss of one who knows that a name comes, and not which."""


def row(rng: np.random.Generator, length: int) -> tuple[Numbers, Numbers]:
    """Tokens (length + 1) and which of the next ones are scored (length)."""
    ids = rng.choice(LETTERS, length + 1)
    scored = np.zeros(length, dtype=bool)
    last, free = None, 0
    for place in range(length + 1):
        if place < free:
            continue
        draw = rng.random()
        if draw < 0.15:
            last = rng.choice(NAMES)
            ids[place] = last
        elif draw < 0.25 and last is not None and place < length:
            ids[place], ids[place + 1] = PRONOUN, last
            scored[place] = True
            free = place + 2
    if not scored.any():  # a short text without a pronoun: it ends with one
        name, letter = rng.choice(NAMES), rng.choice(LETTERS)
        ids[-4:] = name, letter, PRONOUN, name
        scored[-1] = True
    return ids, scored
