"""Growing tasks: problems of any size up to what a text holds, for length generalisation.

Kazemnejad et al., "The Impact of Positional Encoding on Length Generalization in Transformers", 2023, arXiv:2305.19466:
models are trained on problems up to a size, and asked larger ones. A training text holds a problem of any size up to
the largest that fits, and dots after it; a tested text holds the largest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]
Tokens = Sequence[int] | Numbers
DOT, BAR = ord("."), ord("|")


def draw_size(rng: np.random.Generator, largest: int, whole: bool) -> int:
    """The size of a problem: the largest, or any up to it."""
    return largest if whole else int(rng.integers(1, largest + 1))


def write_row(
    length: int, problem: Sequence[int] | Numbers, answer: Sequence[int] | Numbers
) -> tuple[Numbers, Numbers]:
    """Tokens (length + 1) and which of the next ones are scored (length): those of the answer."""
    ids = np.full(length + 1, DOT)
    first, end = len(problem), len(problem) + len(answer)
    ids[:first], ids[first:end] = problem, answer
    scored = np.zeros(length, dtype=bool)
    scored[first - 1 : end - 1] = True
    return ids, scored
