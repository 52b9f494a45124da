"""who: who did what to whom? Both names stand beside the verb; their order alone tells them apart.

A v B .  C w D .  ...  s v -> A          or          o v -> B
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]
NAMES, VERBS = np.arange(65, 91), np.arange(128, 250)
SUBJECT, OBJECT, STOP = 115, 111, 46


def row(rng: np.random.Generator, length: int) -> tuple[Numbers, Numbers]:
    """Tokens (length + 1) and which of the next ones are scored (length)."""
    count = (length - 2) // 4
    verbs = rng.permutation(VERBS)[:count] if count <= len(VERBS) else rng.choice(VERBS, count)
    told = [(*rng.choice(NAMES, 2, replace=False), verb) for verb in verbs]
    asked = int(rng.integers(0, count))
    first, second, verb = max(
        ((n, t) for n, t in enumerate(told) if t[2] == told[asked][2]), key=lambda found: found[0]
    )[1]
    which = bool(rng.integers(0, 2))
    ids = [token for a, b, v in told for token in (a, v, b, STOP)]
    ids = [
        *([STOP] * (length + 1 - len(ids) - 3)),
        *ids,
        SUBJECT if which else OBJECT,
        verb,
        first if which else second,
    ]
    scored = np.zeros(length, dtype=bool)
    scored[-1] = True
    return np.array(ids), scored


def chance(length: int) -> float:
    """One who found the sentence, and not the order."""
    return math.log(2)
