"""What all drawings are made of: words, the frame of a plot, a legend, and the `<svg>` around them.

Words and grid take the ink of what is around them (`currentColor`), lines have colours that stand out from white and
from a dark page: one drawing serves both. No style and no script is in it, so that a page can forbid both. All words
are escaped. It is drawn for a width in pixels, so that words stay as large on a phone.

The frame of the plot is written down as data-* attributes: a page finds the number under a pointer by them. What
belongs to an entry of the legend is a group with its `data-label`: a page hides it by that.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from milepost.draw.figure import GREY, Figure, Numbers
from milepost.draw.svg import colours
from milepost.draw.svg.axis import Axis, words_width
from milepost.draw.svg.colours import CALM, COLOURS, DASHES, RED

CLEAR = 'class="halo"'
"""Words with a rim of the page's colour."""
RIM = 'stroke="#fff" stroke-width="4" stroke-linejoin="round" paint-order="stroke"'
INK, PAPER = ' color="#1c1c1c"', '<rect width="100%" height="100%" fill="#fff"/>'
"""The colours of a drawing that is a file of its own."""
FAMILY = "system-ui, -apple-system, Segoe UI, Noto Sans SC, PingFang SC, sans-serif"
SIZE, LINE = 12, 15
"""Of words, and from line to line, in pixels."""
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 30, 46
TITLE = 27
"""Pixels for a line of the y axis's title, and between numbers and plot."""
FEW = 6
"""Points, from which on they are one path and not a circle each: a drawing has hundreds."""
GRID, EDGE = 'stroke="currentColor" stroke-opacity=".14"', 'stroke="currentColor" stroke-opacity=".5"'


@dataclass(frozen=True)
class Frame:
    """Where the plot is, in pixels from the left and the top."""

    left: float
    top: float
    width: float
    height: float

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.top + self.height

    @property
    def right(self) -> float:
        """The right edge."""
        return self.left + self.width


@dataclass(frozen=True)
class Ink:
    """A line's colour, dash and width, and the shape of its points, if these are drawn."""

    colour: str
    dash: str
    mark: str
    hollow: bool
    width: float

    def stroke(self) -> str:
        """As attributes of a path."""
        dash = f' stroke-dasharray="{self.dash}"' if self.dash else ""
        return f'stroke="{self.colour}" stroke-width="{self.width:g}"{dash}'

    def points(self, *places: tuple[float, float]) -> str:
        """Its points at some places."""
        line = self.hollow or self.mark in ("cross", "star")
        ink = f'fill="none" stroke="{self.colour}" stroke-width="2"' if line else f'fill="{self.colour}"'
        if self.mark in ("", "circle") and (line or len(places) < FEW):
            return "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" {ink}/>' for x, y in places)
        if self.mark in ("", "circle"):  # the round ends of lines without length
            path = "".join(f"M{x:.1f} {y:.1f}h.01" for x, y in places)
            return f'<path d="{path}" stroke="{self.colour}" stroke-width="8" stroke-linecap="round"/>'
        path = "".join(f"M{x:.1f} {y:.1f}{SHAPES[self.mark]}" for x, y in places)
        return f'<path d="{path}" {ink}/>' if path else ""


SHAPES = {
    "square": "m-3.5-3.5h7v7h-7z",
    "diamond": "m-4.5 0l4.5-4.5l4.5 4.5l-4.5 4.5z",
    "triangle": "m-4.5 3.5l4.5-8l4.5 8z",
    "cross": "m-3.5-3.5l7 7m0-7l-7 7",
    "star": "m-4 0h8m-4-4v8m-3-7l6 6m0-6l-6 6",
}
"""From the middle of a point."""


def look(figure: Figure, name: str) -> Ink:
    """How a line looks: as its style says, or the next colour, and the next dash where colours come again."""
    style, warns = figure.style(name), name in figure.red
    calm = [label for label, first in figure.labels().items() if first not in figure.red]
    at = 0 if warns else calm.index(style.label)
    if warns or style.colour is not None:
        number = COLOURS.index(RED) if style.colour is None else style.colour
        colour = colours.GREY if number == GREY else COLOURS[number % len(COLOURS)]
        dash = style.dash
    else:
        colour, dash = CALM[at % len(CALM)], style.dash or at // len(CALM)
    mark = style.mark or ("circle" if name in figure.points else "")
    return Ink(colour, DASHES[dash % len(DASHES)], mark, style.hollow, 3.5 if style.thick else 2)


def labelled(label: str, body: str) -> str:
    """What belongs to an entry of the legend."""
    return f'<g data-label="{escape(label)}">{body}</g>'


def whole(
    figure: Figure, width: int, height: float, frame: Frame, body: str, after: str, about: dict[str, Any]
) -> str:  # fmt: skip
    """The drawing around a body: title, description, and the frame for a pointer."""
    titles = wrapped(figure.title, width / 1.3)  # bold, and larger than other words
    down = 18 * (len(titles) - 1)
    data = {
        "left": frame.left,
        "top": frame.top + down,
        "width": frame.width,
        "height": frame.height,
        "kind": figure.kind,
        **about,
    }
    attributes = " ".join(
        f'data-{name}="{value if isinstance(value, str) else format(value, ".6g")}"' for name, value in data.items()
    )
    lines = "".join(
        f'<text x="0" y="{16 + 18 * n}" font-size="14" font-weight="600">{escape(line)}</text>'
        for n, line in enumerate(titles)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + down:.0f}" '
        f'viewBox="0 0 {width} {height + down:.0f}" role="img" aria-label="{escape(figure.title)}" fill="currentColor" '
        f'font-family="{FAMILY}" font-size="{SIZE}" {attributes}>{lines}<g transform="translate(0 '
        f'{down})">{body}{after}</g></svg>'
    )


def wrapped(text: str, room: float) -> list[str]:
    """Words in lines that are no wider than ``room`` pixels, as far as that can be known."""
    lines = [""]
    for piece in re.findall(r"\s*[^\s\u2e80-\uffff]+|\s*[\u2e80-\uffff]", text):
        if lines[-1] and words_width(lines[-1] + piece, SIZE) > room:
            lines.append(piece.lstrip())
        else:
            lines[-1] += piece
    return lines


def word(
    text: str, x: float, y: float, anchor: str = "start", *, halo: bool = False, turned: bool = False, size: float =
    SIZE, ink: str = ""
) -> str:  # fmt: skip
    """Words at a place. A halo of the page's colour (class ``halo``) keeps them apart from what is behind them."""
    about = f' text-anchor="{anchor}"' if anchor != "start" else ""
    about += f" {CLEAR}" if halo else ""
    about += f' fill="{ink}"' if ink else ""
    about += f' font-size="{size:.1f}"' if size < SIZE else ""
    about += f' transform="rotate(-45 {x:.1f} {y:.1f})"' if turned else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{about}>{escape(text)}</text>' if text else ""


def upright(titles: Sequence[str], frame: Frame) -> str:
    """The title of the y axis, in one or more lines."""
    y, out = frame.top + frame.height / 2, []
    for n, text in enumerate(titles):
        x = 13 + LINE * n
        turned = f'transform="rotate(-90 {x} {y:.1f})"'
        out.append(f'<text x="{x}" y="{y:.1f}" text-anchor="middle" {turned}>{escape(text)}</text>' if text else "")
    return "".join(out)


def margin(titles: Sequence[str], axis: Axis) -> float:
    """Pixels to the left of a plot: for the lines of its y axis's title, and for the axis's numbers."""
    numbers = max((words_width(label, SIZE) for _, label in axis.ticks), default=0.0)
    return max(LEFT, TITLE + LINE * (len(titles) - 1) + numbers)


def across(axis: Axis, frame: Frame) -> str:
    """A line across the plot for each number of the y axis, which stands before it."""
    return "".join(
        f'<path d="M{frame.left:.1f} {axis.at(value):.1f}H{frame.right:.1f}" {GRID}/>'
        + word(label, frame.left - 7, axis.at(value) + 4, "end")
        for value, label in axis.ticks
    )


def down(axis: Axis, frame: Frame, below: int) -> str:
    """A line down the plot for each number of the x axis, which stands so many pixels below it."""
    return "".join(
        f'<path d="M{axis.at(value):.1f} {frame.top:.1f}V{frame.bottom:.1f}" {GRID}/>'
        + word(label, axis.at(value), frame.bottom + below, "middle")
        for value, label in axis.ticks
    )


def swatch(look: Ink, x: float, y: float) -> str:
    """A piece of a line, or one of its points, for a legend."""
    line = f'<path d="M{x:.1f} {y:.1f}h22" {replace(look, width=2.5).stroke()}/>'
    return line + (look.points((x + 11, y)) if look.mark else "")


def keys(entries: Iterable[tuple[str, Ink, bool]], left: float, right: float) -> tuple[str, float]:
    """A legend of (name, look, whether it is drawn as dots alone), wrapped into rows: its SVG, and its height."""
    out, x, y = [], left, 12.0
    for name, look, dots in entries:
        room = 30 + words_width(name, SIZE) + 16
        if x + room > right + 16 and x > left:
            x, y = left, y + 20
        drawn = look.points((x + 11, y - 4)) if dots else swatch(look, x, y - 4)
        out.append(f'<g data-key="{escape(name)}">{drawn}{word(name, x + 28, y)}</g>')
        x += room
    return "".join(out), y + 8


def legend(figure: Figure, left: float, right: float, top: float) -> tuple[str, float]:
    """The legend of a figure's lines below its plot, and its height; nothing where there is one line alone."""
    entries = [
        (label, look(figure, first), first in figure.points or figure.kind != "lines")
        for label, first in figure.labels().items()
    ]
    drawn, below = keys(entries, left, right) if len(entries) > 1 else ("", 0.0)
    return f'<g transform="translate(0 {top:.0f})">{drawn}</g>', below


def number(value: float) -> str:
    """A number for an axis, short."""
    if value == 0:
        return "0"
    size = abs(value)
    if size >= 1e6 or size < 1e-3:
        text = f"{value:.2g}"
        digits, _, power = text.partition("e")
        return f"{digits}e{int(power)}" if power else text
    return f"{value:.10g}" if size >= 1000 or value == int(value) else f"{value:.4g}"


def finite(rows: Iterable[Numbers]) -> list[float]:
    """Every number that is there."""
    return [v for row in rows for v in row if v is not None and math.isfinite(v)]
