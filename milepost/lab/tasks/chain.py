"""chain: each variable is another one or its opposite; which sign has the one that is asked for? (LEGO)

a+1 b-a c+b ... ?b -> -

Zhang et al., "Unveiling Transformers with LEGO", 2022, arXiv:2206.04301; a task of arXiv:2305.19466. Departure: clauses
stand in the order of the chain, and one sign is asked for.
"""

from __future__ import annotations

import math

import numpy as np

from milepost.lab.tasks.growing import Numbers, draw_size, write_row

FIRST, VARIABLES = 128, 100
ONE, PLUS, MINUS, ASK = ord("1"), ord("+"), ord("-"), ord("?")
CHANCE = math.log(2)
"""The loss of one who knows that a sign comes, and not which."""


def row(rng: np.random.Generator, length: int, whole: bool = False) -> tuple[Numbers, Numbers]:
    """Tokens (length + 1) and which of the next ones are scored (length)."""
    links = draw_size(rng, min(VARIABLES, (length - 2) // 3), whole)
    names = FIRST + rng.permutation(VARIABLES)[:links]
    signs = rng.choice([1, -1], links)
    clauses: list[int] = []
    for place, (name, sign) in enumerate(zip(names.tolist(), signs.tolist(), strict=True)):
        clauses += [name, PLUS if sign > 0 else MINUS, int(names[place - 1]) if place else ONE]
    asked = int(rng.integers(links))
    answer = PLUS if signs[: asked + 1].prod() > 0 else MINUS
    return write_row(length, [*clauses, ASK, int(names[asked])], [answer])
