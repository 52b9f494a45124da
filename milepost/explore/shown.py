"""Shown: what a view answers with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milepost.report.figure import Figure, Mark

if TYPE_CHECKING:
    from milepost.explore.words import Words
    from milepost.portrait import Panel


@dataclass(frozen=True)
class Shown:
    """Figures, a sentence that says what is to be seen, and the modules whose formulas they show (besides the encoding's own).

    ``table`` has a row of names, and rows of cells.
    """

    figures: tuple[Figure, ...]
    sentence: str
    modules: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()


def drawn(panel: Panel, words: Words, *, square: bool = False) -> Figure:
    """A panel of a portrait as a figure, in the reader's language."""
    title, x_title, y_title = map(words.phrase, (panel.title, panel.x_title, panel.y_title))
    if panel.kind == "heat":
        return Figure("heat", title, x_title, y_title, panel.x, panel.y or [], panel.z or [], square=square)
    lines = {words.phrase(name): values for name, values in (panel.lines or {}).items()}
    marks = () if panel.mark is None else (Mark("x", panel.mark, f"{panel.mark:g}"),)
    return Figure("lines", title, x_title, y_title, panel.x, lines=lines, log_y=panel.log_y, marks=marks)


def letters(names: Sequence[str]) -> tuple[str, ...]:
    """Names for an axis: spaces and line ends made visible."""
    return tuple({" ": "␣", "\n": "↵", "\t": "⇥"}.get(name, name) for name in names)
