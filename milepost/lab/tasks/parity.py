"""parity: bits, a bar, and whether the number of ones is odd (arXiv:2305.19466)."""

from __future__ import annotations

import math

import numpy as np

from milepost.lab.tasks.growing import BAR, Numbers, draw_size, write_row

ZERO = 48
CHANCE = math.log(2)
"""The loss of one who knows that a bit comes, and not which."""


def row(rng: np.random.Generator, length: int, whole: bool = False) -> tuple[Numbers, Numbers]:
    """Tokens (length + 1) and which of the next ones are scored (length)."""
    bits = rng.integers(0, 2, draw_size(rng, length - 1, whole))
    return write_row(length, [*(ZERO + bits), BAR], [ZERO + int(bits.sum()) % 2])
