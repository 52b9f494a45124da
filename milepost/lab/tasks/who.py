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
CHANCE = math.log(2)
"""The loss of one who finds the sentence, and does not know the order."""


def row(rng: np.random.Generator, length: int) -> tuple[Numbers, Numbers]:
    """Tokens (length + 1) and which of the next ones are scored (length)."""
    count = (length - 2) // 4
    verbs = rng.permutation(VERBS)[:count] if count <= len(VERBS) else rng.choice(VERBS, count)
    sentences = [(*rng.choice(NAMES, 2, replace=False), verb) for verb in verbs]
    asked = verbs[int(rng.integers(0, count))]
    first, second, verb = [sentence for sentence in sentences if sentence[2] == asked][-1]
    subject = bool(rng.integers(0, 2))
    ids = [token for a, b, v in sentences for token in (a, v, b, STOP)]
    question = [SUBJECT, verb, first] if subject else [OBJECT, verb, second]
    ids = [*([STOP] * (length + 1 - len(ids) - len(question))), *ids, *question]
    scored = np.zeros(length, dtype=bool)
    scored[-1] = True
    return np.array(ids), scored
