"""sum: digits, a bar, and their sum modulo ten (arXiv:2305.19466)."""

from __future__ import annotations

import math

import numpy as np

from milepost.lab.tasks.growing import BAR, Numbers, draw_size, write_row

ZERO, BASE = 48, 10
CHANCE = math.log(BASE)
"""The loss of one who knows that a digit comes, and not which."""


def row(rng: np.random.Generator, length: int, whole: bool = False) -> tuple[Numbers, Numbers]:
    """Tokens (length + 1) and which of the next ones are scored (length)."""
    digits = rng.integers(0, BASE, draw_size(rng, length - 1, whole))
    return write_row(length, [*(ZERO + digits), BAR], [ZERO + int(digits.sum()) % BASE])
