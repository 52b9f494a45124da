"""A figure as SVG text: no browser and no library, so that a page, a notebook and a file show the same picture.

Words and grid take the ink of what is around them (`currentColor`), lines have colours that stand out from white and from a dark page: one
drawing serves both. No style and no script is in it, so that a page can forbid both. All words are escaped. It is drawn for a width in
pixels, so that words stay as large on a phone.

The frame of the plot is written down as data-* attributes: a page finds the number under a pointer by them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from milepost.report.figure import Figure, Numbers
from milepost.report.lab_style import COLOURS
from milepost.report.svg_axis import words_width

RED = COLOURS[3]
CALM = tuple(colour for colour in COLOURS if colour != RED)
"""Red is for warnings."""
CLEAR = 'class="halo"'
"""Words with a rim of the page's colour."""
RIM = 'stroke="#fff" stroke-width="4" stroke-linejoin="round" paint-order="stroke"'
INK, PAPER = ' color="#1c1c1c"', '<rect width="100%" height="100%" fill="#fff"/>'
"""The colours of a drawing that is a file of its own."""
SIZE, LINE = 12, 15
"""Of words, and from line to line, in pixels."""
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 30, 46
GAP = 16
"""Between figures of a sheet."""


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


def draw(figure: Figure, width: int = 640) -> str:
    """The figure as an `<svg>` of ``width`` pixels."""
    if not 160 <= width <= 4000:
        raise ValueError(f"a figure is drawn 160 to 4000 pixels wide, got {width}")
    if figure.kind == "heat":
        from milepost.report.svg_heat import heat

        return heat(figure, width)
    if figure.kind == "dials":
        from milepost.report.svg_dials import dials

        return dials(figure, width)
    if figure.kind == "points":
        from milepost.report.svg_points import points

        return points(figure, width)
    from milepost.report.svg_lines import lines

    return lines(figure, width)


def sheet(figures: Sequence[Figure], width: int = 460) -> str:
    """Several figures as one file, two in a row, each of ``width`` pixels."""
    if not figures:
        raise ValueError("a sheet has at least one figure, got none")
    drawn = [draw(figure, width) for figure in figures]
    heights = [int(found.group(1)) for one in drawn if (found := re.search(r'height="(\d+)"', one))]
    rows = [max(heights[at : at + 2]) + GAP for at in range(0, len(drawn), 2)]
    placed = [one.replace("<svg ", f'<svg x="{(at % 2) * (width + GAP)}" y="{sum(rows[: at // 2])}" ', 1) for at, one in enumerate(drawn)]
    wide, high = width + (width + GAP) * (len(drawn) > 1), sum(rows)
    return alone(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}">{"".join(placed)}</svg>')


def alone(drawn: str) -> str:
    """A drawing as a file of its own: dark words on white."""
    head, _, rest = drawn.partition(">")
    return f"{head}{INK}>{PAPER}{rest.replace(CLEAR, RIM)}"


def in_a_page(drawn: str) -> str:
    """`alone` undone, for a page with colours of its own: of a sheet, its drawings one after another."""
    head, paper, rest = drawn.partition(f"{INK}>{PAPER}")
    if not paper:
        return drawn
    inside = rest.replace(RIM, CLEAR)
    return inside.strip().removesuffix("</svg>") if inside.startswith("<svg ") else f"{head}>{inside}"


def whole(figure: Figure, width: int, height: float, frame: Frame, body: str, after: str, about: dict[str, Any]) -> str:
    """The drawing around a body: title, description, and the frame for a pointer."""
    titles = wrapped(figure.title, width / 1.3)  # bold, and larger than other words
    down = 18 * (len(titles) - 1)
    data = {"left": frame.left, "top": frame.top + down, "width": frame.width, "height": frame.height, "kind": figure.kind, **about}
    attributes = " ".join(f'data-{name}="{value if isinstance(value, str) else format(value, ".6g")}"' for name, value in data.items())
    lines = "".join(f'<text x="0" y="{16 + 18 * n}" font-size="14" font-weight="600">{escape(line)}</text>' for n, line in enumerate(titles))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + down:.0f}" viewBox="0 0 {width} {height + down:.0f}" role="img" '
        f'aria-label="{escape(figure.title)}" fill="currentColor" font-family="system-ui, -apple-system, Segoe UI, Noto Sans SC, PingFang SC, sans-serif" '
        f'font-size="{SIZE}" {attributes}>{lines}<g transform="translate(0 {down})">{body}{after}</g></svg>'
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


def word(text: str, x: float, y: float, anchor: str = "start", *, halo: bool = False, turned: bool = False, size: float = SIZE) -> str:
    """Words at a place. A halo of the page's colour (class ``halo``) keeps them apart from what is behind them."""
    about = f' text-anchor="{anchor}"' if anchor != "start" else ""
    about += f" {CLEAR}" if halo else ""
    about += f' font-size="{size:.1f}"' if size < SIZE else ""
    about += f' transform="rotate(-45 {x:.1f} {y:.1f})"' if turned else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{about}>{escape(text)}</text>' if text else ""


def upright(titles: Sequence[str], frame: Frame) -> str:
    """The title of the y axis, in one or more lines."""
    y, out = frame.top + frame.height / 2, []
    for n, text in enumerate(titles):
        x = 13 + LINE * n
        out.append(f'<text x="{x}" y="{y:.1f}" text-anchor="middle" transform="rotate(-90 {x} {y:.1f})">{escape(text)}</text>' if text else "")
    return "".join(out)


def keys(entries: Iterable[tuple[str, str, str, bool]], left: float, right: float) -> tuple[str, float]:
    """A legend of (name, colour, dash, dots), wrapped into rows: its SVG, and its height."""
    out, x, y = [], left, 12.0
    for name, colour, dash, dots in entries:
        room = 30 + words_width(name, SIZE) + 16
        if x + room > right + 16 and x > left:
            x, y = left, y + 20
        stroke = f' stroke-dasharray="{dash}"' if dash else ""
        swatch = f'<circle cx="{x + 11:.1f}" cy="{y - 4:.1f}" r="4" fill="{colour}"/>' if dots else (
            f'<path d="M{x:.1f} {y - 4:.1f}h22" stroke="{colour}" stroke-width="2.5"{stroke}/>'
        )  # fmt: skip
        out.append(swatch + word(name, x + 28, y))
        x += room
    return "".join(out), y + 8


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
