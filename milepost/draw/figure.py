"""Figure: one picture as plain data. `draw.svg` draws it, a page shows its numbers, a file holds them.

lines    names and their values over x, each with an interval (``sides``) where it is known; some as points
points   values in a row for each of ``y_names``, with the interval (``sides``) of each
scatter  points at an x and a y of their own, with the intervals of both and their names beside them
heat     rows of numbers, a row for each y, a column for each x; None is a gap
dials    a clock for each of several things: what was seen of a full turn, and what is met

Nothing is computed here: the numbers come from whoever made the figure.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

Numbers = Sequence[float | None]
Sides = Sequence[tuple[float | None, float | None]]
GREY = -1
"""The colour of what is only there to compare with."""
DIGITS = 5
"""Of numbers that a page shows under the pointer; files have all of them."""


@dataclass(frozen=True)
class Mark:
    """A line across a figure at one value of an axis, with its name.

    In a heat map the value is a column's left edge.
    """

    axis: Literal["x", "y"]
    at: float
    name: str
    red: bool = False


@dataclass(frozen=True)
class Dial:
    """A clock: turns ``seen`` in training and ``met`` at the target;

    ``unseen`` where what is met past ``seen`` is new.
    """

    name: str
    note: str
    seen: float
    met: float
    unseen: bool


@dataclass(frozen=True)
class Style:
    """How a line differs from the others. What is left open follows from its place among them.

    Lines of one ``label`` have one entry in the legend, and are shown and hidden together; a page can show the labels
    of one ``group`` alone. ``colour`` and ``dash`` count from 0, which is solid among the dashes.
    """

    label: str = ""
    group: str = ""
    colour: int | None = None
    dash: int = 0
    mark: str = ""
    hollow: bool = False
    thick: bool = False


@dataclass(frozen=True)
class Alternative:
    """One of several maps in the same axes and colours: its numbers, words for each row or cell, and a framed cell."""

    label: str
    z: Sequence[Numbers]
    notes: Sequence[str | Sequence[str]] = ()
    cell: tuple[int, int] | None = None


@dataclass(frozen=True)
class Figure:
    """One picture. ``points`` are the names among ``lines`` that are drawn as dots; ``red`` those that warn.

    ``x_names`` and ``y_names`` stand instead of numbers, ``x_ticks`` say where numbers stand. ``xs`` are values of x
    of those lines that have their own. ``low`` and ``high`` hold the range of colours, or of a linear y axis, where
    it is not to follow the data. ``square`` gives rows and columns of a heat map the same size. ``stepped`` draws
    lines as stairs, ``percent`` writes shares as %. ``notes`` are words for each row or cell of a heat map, put into
    ``note`` where it has {} (with | between them); ``cell`` is framed; a page lets its reader choose one of the
    ``alternatives`` (the first is drawn), and one ``view`` where figures have several.
    """

    kind: Literal["lines", "points", "scatter", "heat", "dials"]
    title: str
    x_title: str = ""
    y_title: str = ""
    x: Numbers = ()
    y: Numbers = ()
    z: Sequence[Numbers] = ()
    lines: Mapping[str, Numbers] | None = None
    sides: Mapping[str, Sides] | None = None
    xs: Mapping[str, Numbers] | None = None
    x_sides: Mapping[str, Sides] | None = None
    styles: Mapping[str, Style] | None = None
    points: tuple[str, ...] = ()
    red: tuple[str, ...] = ()
    x_names: tuple[str, ...] = ()
    y_names: tuple[str, ...] = ()
    x_ticks: tuple[float, ...] = ()
    marks: tuple[Mark, ...] = ()
    dials: tuple[Dial, ...] = ()
    notes: Sequence[str | Sequence[str]] = ()
    note: str = "{}"
    cell: tuple[int, int] | None = None
    alternatives: tuple[Alternative, ...] = ()
    view: str = ""
    log_x: bool = False
    log_y: bool = False
    low: float | None = None
    high: float | None = None
    square: bool = False
    stepped: bool = False
    percent: bool = False

    @property
    def named(self) -> Mapping[str, Numbers]:
        """The lines; none where there are none."""
        return self.lines or {}

    def x_of(self, name: str) -> Numbers:
        """The values of x of a line."""
        return (self.xs or {}).get(name, self.x)

    def sides_of(self, name: str) -> Sides:
        """The intervals of a line, or nothing."""
        return (self.sides or {}).get(name, ())

    def numbers(self) -> list[float]:
        """All numbers of all lines, with the ends of their intervals."""
        ends = [end for name in self.named for pair in self.sides_of(name) for end in pair]
        return [v for v in (*(v for values in self.named.values() for v in values), *ends) if v is not None]

    def style(self, name: str) -> Style:
        """The style of a line, with its label."""
        style = (self.styles or {}).get(name, Style())
        return style if style.label else replace(style, label=name)

    def labels(self) -> dict[str, str]:
        """Every entry of a legend, and the first line that has it."""
        found: dict[str, str] = {}
        for name in self.named:
            found.setdefault(self.style(name).label, name)
        return found

    def said(self, say: Callable[[str], str]) -> Figure:
        """The same figure with its titles and the names of its lines as ``say`` says them."""
        lines = None if self.lines is None else {say(name): values for name, values in self.lines.items()}
        return replace(self, title=say(self.title), x_title=say(self.x_title), y_title=say(self.y_title), lines=lines)

    def to_json(self) -> dict[str, Any]:
        """Plain data. The numbers are the figure's own, not copies: a heat map has tens of thousands."""
        inner = {name: tuple(map(asdict, getattr(self, name))) for name in ("marks", "dials", "alternatives")}
        styles = {name: asdict(style) for name, style in (self.styles or {}).items()}
        return {**{field.name: getattr(self, field.name) for field in fields(self)}, **inner, "styles": styles or None}

    def to_pointer(self) -> dict[str, Any]:
        """What a page needs to say the numbers under a pointer: with few digits, and nothing that is empty."""
        sides = {} if self.kind == "lines" else self.sides or {}
        data: dict[str, Any] = {
            "kind": self.kind,
            "x_title": self.x_title,
            "y_title": self.y_title,
            "x": few(self.x),
            "y": few(self.y),
            "x_names": self.x_names,
            "y_names": self.y_names,
            "percent": self.percent,
            "dials": tuple(map(asdict, self.dials)),
            "lines": {name: few(values, 4) for name, values in self.named.items()},
            "xs": {name: few(self.x_of(name)) for name in self.named if self.x_of(name) != self.x},
            "sides": {name: [few(pair, 4) for pair in pairs] for name, pairs in sides.items()},
            "x_sides": {name: [few(pair, 4) for pair in pairs] for name, pairs in (self.x_sides or {}).items()},
            "labels": {name: label for name in self.named if (label := self.style(name).label) != name},
            "z": () if self.alternatives else tuple(map(few, self.z)),
            "notes": () if self.alternatives else self.notes,
            "note": self.note,
        }
        return {name: value for name, value in data.items() if value}

    def to_csv(self) -> str:
        """The numbers as a table: x and a column for each line, a row for each y of a heat map, or a row for each
        dial.
        """
        out = io.StringIO()
        write = csv.writer(out, lineterminator="\n").writerow
        if self.kind == "dials":
            write(["name", "note", "seen_turns", "met_turns", "unseen"])
            for dial in self.dials:
                write([_cell(dial.name), _cell(dial.note), dial.seen, dial.met, dial.unseen])
        elif self.kind == "heat":
            write([_cell(f"{self.y_title} \\ {self.x_title}"), *map(_cell, self.x_names or self.x)])
            for name, row in zip(self.y_names or self.y, self.z, strict=True):
                write([_cell(name), *row])
        elif self.kind == "points":
            write(["", *(_cell(f"{name}{of}") for name in self.named for of in ("", ", low", ", high"))])
            for at, title in enumerate(self.y_names):
                cells = [
                    (values[at], *(self.sides_of(name) or [(None, None)] * (at + 1))[at])
                    for name, values in self.named.items()
                ]
                write([_cell(title), *(value for cell in cells for value in cell)])
        else:
            write([_cell(self.x_title), *map(_cell, self.named)])
            for at, x in enumerate(self.x):
                write([_cell(self.x_names[at]) if self.x_names else x, *(values[at] for values in self.named.values())])
        return out.getvalue()


def few(values: Numbers, digits: int = DIGITS) -> list[float | None]:
    """The same numbers with few digits."""
    short = (None if value is None else float(f"{value:.{digits}g}") for value in values)
    return [int(value) if value is not None and value.is_integer() and abs(value) < 1e15 else value for value in short]


def _cell(value: str | float | None) -> str | float | None:
    """A word that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
