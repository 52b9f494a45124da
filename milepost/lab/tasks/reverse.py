"""reverse: a string, a bar, and the string from its end to its beginning (arXiv:2305.19466)."""

from __future__ import annotations

import math

import numpy as np

from milepost.lab.tasks.growing import BAR, Numbers, draw_size, write_row

LETTERS = np.arange(97, 123)
CHANCE = math.log(len(LETTERS))
"""The loss of one who knows the letters, and not which."""


def row(rng: np.random.Generator, length: int, whole: bool = False) -> tuple[Numbers, Numbers]:
    """Tokens (length + 1) and which of the next ones are scored (length)."""
    word = rng.choice(LETTERS, draw_size(rng, length // 2, whole))
    return write_row(length, [*word, BAR], word[::-1])
