"""A figure as SVG text: no browser and no library, so that a page, a notebook and a file show the same picture.

A kind of figure is a page of its own: `lines`, `points`, `scatter`, `heat`, `dials`; `shapes` is what they are made of.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from milepost.draw.figure import Figure
from milepost.draw.svg.dials import dials
from milepost.draw.svg.heat import heat
from milepost.draw.svg.lines import lines
from milepost.draw.svg.points import points
from milepost.draw.svg.scatter import scatter
from milepost.draw.svg.shapes import CLEAR, INK, PAPER, RIM

KINDS = {"lines": lines, "points": points, "scatter": scatter, "heat": heat, "dials": dials}
GAP = 16
"""Pixels between figures of a sheet."""


def draw(figure: Figure, width: int = 640, *, legend: bool = True) -> str:
    """The figure as an `<svg>` of ``width`` pixels; without ``legend`` for a page that has one of its own."""
    if not 160 <= width <= 4000:
        raise ValueError(f"a figure is drawn 160 to 4000 pixels wide, got {width}")
    return KINDS[figure.kind](figure, width, legend)


def sheet(figures: Sequence[Figure], width: int = 460) -> str:
    """Several figures as one file, two in a row, each of ``width`` pixels."""
    if not figures:
        raise ValueError("a sheet has at least one figure, got none")
    drawn = [draw(figure, width) for figure in figures]
    heights = [int(found.group(1)) for drawing in drawn if (found := re.search(r'height="(\d+)"', drawing))]
    rows = [max(heights[at : at + 2]) + GAP for at in range(0, len(drawn), 2)]
    placed = "".join(
        drawing.replace("<svg ", f'<svg x="{(at % 2) * (width + GAP)}" y="{sum(rows[: at // 2])}" ', 1)
        for at, drawing in enumerate(drawn)
    )
    wide, high = width + (width + GAP) * (len(drawn) > 1), sum(rows)
    size = f'viewBox="0 0 {wide} {high}" width="{wide}" height="{high}"'
    return alone(f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{placed}</svg>')


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
