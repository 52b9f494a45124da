"""Figure: one picture as plain data, whatever draws it. `svg` draws it, a page shows its numbers, a file keeps them.

lines    names and their values over x; some as points
points   values in a row for each of ``y_names``, with the interval (``sides``) of each
heat     rows of numbers, a row for each y, a column for each x; None is a gap
dials    a clock for each of several things: what was seen of a full turn, and what is met

Numbers of data come from whoever made the figure: nothing is computed here.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from milepost.portrait import Panel

Numbers = Sequence[float | None]


@dataclass(frozen=True)
class Mark:
    """A line across a figure at one value of an axis, with its name."""

    axis: Literal["x", "y"]
    at: float
    name: str


@dataclass(frozen=True)
class Dial:
    """A clock: turns ``seen`` in training and ``met`` at the target; ``unseen`` where what is met past ``seen`` is new."""

    name: str
    note: str
    seen: float
    met: float
    unseen: bool


@dataclass(frozen=True)
class Figure:
    """One picture. ``points`` are the names among ``lines`` that are drawn as dots; ``red`` those that warn.

    ``x_names`` and ``y_names`` stand instead of numbers. ``low`` and ``high`` hold the range of colours, or of a linear y axis, where it
    is not to follow the data. ``square`` gives rows and columns of a heat map the same size. ``stepped`` draws lines as stairs.
    """

    kind: Literal["lines", "points", "heat", "dials"]
    title: str
    x_title: str = ""
    y_title: str = ""
    x: Numbers = ()
    y: Numbers = ()
    z: Sequence[Numbers] = ()
    lines: Mapping[str, Numbers] | None = None
    sides: Mapping[str, Sequence[tuple[float | None, float | None]]] | None = None
    points: tuple[str, ...] = ()
    red: tuple[str, ...] = ()
    x_names: tuple[str, ...] = ()
    y_names: tuple[str, ...] = ()
    marks: tuple[Mark, ...] = ()
    dials: tuple[Dial, ...] = ()
    log_x: bool = False
    log_y: bool = False
    low: float | None = None
    high: float | None = None
    square: bool = False
    stepped: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain data. The numbers are the figure's own, not copies: a heat map has tens of thousands."""
        inner = {"marks": tuple(map(asdict, self.marks)), "dials": tuple(map(asdict, self.dials))}
        return {**{one.name: getattr(self, one.name) for one in fields(self)}, **inner}

    def to_csv(self) -> str:
        """The numbers as a table: x and a column for each line, a row for each y of a heat map, or a row for each dial."""
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
            lines, sides = self.lines or {}, self.sides or {}
            write(["", *(_cell(f"{name}{of}") for name in lines for of in ("", ", low", ", high"))])
            for at, title in enumerate(self.y_names):
                write([_cell(title), *(v for name, values in lines.items() for v in (values[at], *(sides[name][at] if name in sides else (None, None))))])
        else:
            lines = self.lines or {}
            write([_cell(self.x_title), *map(_cell, lines)])
            for at, x in enumerate(self.x):
                write([_cell(self.x_names[at]) if self.x_names else x, *(values[at] for values in lines.values())])
        return out.getvalue()


def of_panel(panel: Panel, say: Callable[[str], str] = str) -> Figure:
    """A panel of a portrait as a figure, its words as ``say`` says them. Maps of queries and keys, and of planes, are square."""
    title, x_title, y_title = say(panel.title), say(panel.x_title), say(panel.y_title)
    if panel.kind == "heat":
        square = panel.x_title in ("key position", "column")
        return Figure("heat", title, x_title, y_title, panel.x, panel.y or [], panel.z or [], square=square)
    marks = () if panel.mark is None else (Mark("x", panel.mark, f"{panel.mark:g}"),)
    lines = {say(name): values for name, values in (panel.lines or {}).items()}
    return Figure("lines", title, x_title, y_title, panel.x, lines=lines, log_y=panel.log_y, marks=marks)


def _cell(value: str | float | None) -> str | float | None:
    """A word that no spreadsheet takes for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
