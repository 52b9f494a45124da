"""Points, a row for each name, with the interval in which each may lie: what is compared stands below each other,
however long the names.
"""

from __future__ import annotations

from milepost.draw.figure import Figure
from milepost.draw.svg.axis import as_percent, linear, logarithmic, words_width
from milepost.draw.svg.shapes import (
    BOTTOM,
    LINE,
    RIGHT,
    SIZE,
    TOP,
    Frame,
    down,
    labelled,
    legend,
    look,
    whole,
    word,
    wrapped,
)

ROW, ASIDE = 26, 10
"""Pixels: the least height of a row, and between names and plot."""


def points(figure: Figure, width: int, keys: bool) -> str:
    """The rows as `<svg>`."""
    named = figure.named
    names = [wrapped(name, 0.42 * width) for name in figure.y_names]
    left = ASIDE + max((words_width(line, SIZE) for lines in names for line in lines), default=0.0)
    heights = [max(ROW, LINE * len(lines) + 8, 10 * len(named) + 8) for lines in names]
    frame = Frame(left, TOP, width - left - RIGHT, sum(heights))
    others = (*(mark.at for mark in figure.marks), figure.low, figure.high)
    known = [*figure.numbers(), *(v for v in others if v is not None)]
    axis = (logarithmic if figure.log_x else linear)(known, frame.left, frame.right)
    axis = as_percent(axis) if figure.percent else axis
    parts = [down(axis, frame, 16)]
    for mark in figure.marks:
        x = axis.at(mark.at)
        upright = (
            f'<path d="M{x:.1f} {frame.top:.1f}V{frame.bottom:.1f}" stroke="currentColor" stroke-opacity=".7" '
            'stroke-dasharray="3 4"/>'
        )
        parts.append(upright + word(mark.name, x + 5, frame.top + 10, halo=True))
    tops = [frame.top + sum(heights[:row]) for row in range(len(heights))]
    for row, lines in enumerate(names):
        middle = tops[row] + heights[row] / 2
        parts += [
            word(line, left - ASIDE, middle + 4 + LINE * (n - (len(lines) - 1) / 2), "end")
            for n, line in enumerate(lines)
        ]
        if row and len(named) > 1:
            parts.append(f'<path d="M0 {tops[row]:.1f}H{frame.right:.1f}" stroke="currentColor" stroke-opacity=".08"/>')
    for n, (name, values) in enumerate(named.items()):
        sides, bars, places = figure.sides_of(name), [], []
        style = look(figure, name)
        for row, value in enumerate(values):
            y = tops[row] + heights[row] / 2 + 10 * (n - (len(named) - 1) / 2)
            low, high = sides[row] if sides else (None, None)
            if low is not None and high is not None:
                a, b = axis.at(low), axis.at(high)
                bars.append(f"M{a:.1f} {y:.1f}H{b:.1f}m0-4v8M{a:.1f} {y - 4:.1f}v8")
            if value is not None:
                places.append((axis.at(value), y))
        body = f'<path d="{"".join(bars)}" stroke="{style.colour}" stroke-width="2"/>' if bars else ""
        parts.append(labelled(figure.style(name).label, body + style.points(*places)))
    parts.append(word(figure.x_title, (frame.left + frame.right) / 2, frame.bottom + 34, "middle"))
    after, below = legend(figure, 0, width - RIGHT, frame.bottom + BOTTOM) if keys else ("", 0.0)
    about = {"rows": ",".join(f"{height:g}" for height in heights)}
    return whole(figure, width, frame.bottom + BOTTOM + below, frame, "".join(parts), after, about)
