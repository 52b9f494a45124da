"""addition: two numbers of n digits and their sum, modulo 10^n (arXiv:2305.19466).

Departure: digits stand from the ones on, so that a carry is known when it is needed; the paper has them the usual way,
with a scratchpad.
"""

from __future__ import annotations

import math

import numpy as np

from milepost.lab.tasks.growing import Numbers, draw_size, write_row

ZERO, BASE, PLUS, EQUALS = 48, 10, ord("+"), ord("=")
CHANCE = math.log(BASE)
"""The loss of one who knows that a digit comes, and not which."""


def row(rng: np.random.Generator, length: int, whole: bool = False) -> tuple[Numbers, Numbers]:
    """Tokens (length + 1) and which of the next ones are scored (length)."""
    size = draw_size(rng, (length - 1) // 3, whole)
    a, b = rng.integers(0, BASE, (2, size))
    result, carry = [], 0
    for one, other in zip(a.tolist(), b.tolist(), strict=True):
        carry, digit = divmod(one + other + carry, BASE)
        result.append(ZERO + digit)
    return write_row(length, [*(ZERO + a), PLUS, *(ZERO + b), EQUALS], result)
