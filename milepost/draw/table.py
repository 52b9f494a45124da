"""Table: a head and rows of words, whatever shows it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

Cells = tuple[list[str], list[list[str]]]
"""A head and rows, before they have a title."""
NUMBERS = ("not measured", "table ends", "")
"""Words that stand where numbers do."""


@dataclass(frozen=True)
class Table:
    """A head and rows of words. A page folds it away behind its title where ``fold`` says so; ``ruled`` sets rows of
    many words apart.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    fold: bool = False
    ruled: bool = False


def is_number(cell: str) -> bool:
    """Whether a cell stands to the right."""
    return (re.match(r"[+-]?\d", cell) is not None and re.search(r"[A-Za-z]{3}", cell) is None) or cell in NUMBERS
