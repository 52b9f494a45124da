"""Sheet: the panels of a figure, drawn by the package itself; in a page one below the other, in a file two in a row."""

from __future__ import annotations

import re
from dataclasses import replace

from figures import Figure

from milepost.report.figure import of_panel
from milepost.report.svg import alone, draw

WIDTH, GAP = 460, 16


def drawings(figure: Figure) -> list[str]:
    """Each panel as an `<svg>`."""
    return [draw(replace(of_panel(panel), log_x=figure.log_x), WIDTH) for panel in figure.panels]


def sheet(figure: Figure) -> str:
    """All panels as one file."""
    drawn = drawings(figure)
    heights = [int(re.findall(r'height="(\d+)"', one)[0]) for one in drawn]
    rows = [max(heights[at : at + 2]) + GAP for at in range(0, len(drawn), 2)]
    placed = [one.replace("<svg ", f'<svg x="{(at % 2) * (WIDTH + GAP)}" y="{sum(rows[: at // 2])}" ', 1) for at, one in enumerate(drawn)]
    wide, high = WIDTH + (WIDTH + GAP) * (len(drawn) > 1), sum(rows)
    return alone(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}">{"".join(placed)}</svg>')
