"""Shown: what a view answers with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from milepost.draw import Figure


@dataclass(frozen=True)
class Shown:
    """Figures, a sentence about what they show, and the modules whose formulas they use besides the encoding's own.

    ``table`` has a row of names, and rows of cells.
    """

    figures: tuple[Figure, ...]
    sentence: str
    modules: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()


def letters(names: Sequence[str]) -> tuple[str, ...]:
    """Names for an axis: spaces and line ends made visible."""
    return tuple({" ": "␣", "\n": "↵", "\t": "⇥"}.get(name, name) for name in names)
