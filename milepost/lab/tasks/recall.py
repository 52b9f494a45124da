"""recall: a pair of key and value stands somewhere in the text; the text ends with the key. A small passkey test.

x f #Kv e t ... b ?K -> v           the pair stands at a set depth, or a random one, so that distances go up to the
length
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]
LETTERS, KEYS, VALUES = np.arange(97, 123), np.arange(65, 91), np.arange(128, 144)
CHANCE = math.log(len(VALUES))
"""The loss of one who knows that a value comes, and not which."""


def row(rng: np.random.Generator, length: int, depth: float | None = None) -> tuple[Numbers, Numbers]:
    """Tokens (length + 1) and which of the next ones are scored (length); the pair is at ``depth``, from 0 to 1."""
    ids = rng.choice(LETTERS, length + 1)
    room = length - 6
    place = int(rng.integers(0, room + 1)) if depth is None else round(depth * room)
    key, value = rng.choice(KEYS), rng.choice(VALUES)
    ids[place : place + 3] = ord("#"), key, value
    ids[-3:] = ord("?"), key, value
    scored = np.zeros(length, dtype=bool)
    scored[-1] = True
    return ids, scored
