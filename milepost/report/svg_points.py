"""Points, a row for each name, with the interval in which each may lie: what is compared stands below each other, whatever the names' length."""

from __future__ import annotations

from milepost.report.figure import Figure
from milepost.report.svg import BOTTOM, CALM, LINE, RIGHT, SIZE, TOP, Frame, keys, whole, word, wrapped
from milepost.report.svg_axis import linear, logarithmic, words_width

ROW, ASIDE = 26, 10
"""Pixels: the least height of a row, and between names and plot."""


def points(figure: Figure, width: int) -> str:
    """The rows as `<svg>`."""
    named, sides = figure.lines or {}, figure.sides or {}
    names = [wrapped(name, 0.42 * width) for name in figure.y_names]
    left = ASIDE + max((words_width(line, SIZE) for lines in names for line in lines), default=0.0)
    heights = [max(ROW, LINE * len(lines) + 8, 12 * len(named)) for lines in names]
    frame = Frame(left, TOP, width - left - RIGHT, sum(heights))
    shown = [v for values in named.values() for v in values] + [v for pairs in sides.values() for pair in pairs for v in pair] + [m.at for m in figure.marks]
    axis = (logarithmic if figure.log_x else linear)([v for v in shown if v is not None], frame.left, frame.right)
    parts = []
    for tick, label in axis.ticks:
        x = axis.at(tick)
        parts.append(f'<path d="M{x:.1f} {frame.top:.1f}V{frame.bottom:.1f}" stroke="currentColor" stroke-opacity=".14"/>')
        parts.append(word(label, x, frame.bottom + 16, "middle"))
    for mark in figure.marks:
        x = axis.at(mark.at)
        parts.append(f'<path d="M{x:.1f} {frame.top:.1f}V{frame.bottom:.1f}" stroke="currentColor" stroke-opacity=".7" stroke-dasharray="3 4"/>')
    top = frame.top
    for row, (lines, height) in enumerate(zip(names, heights, strict=True)):
        middle = top + height / 2
        parts += [word(line, left - ASIDE, middle + 4 + LINE * (n - (len(lines) - 1) / 2), "end") for n, line in enumerate(lines)]
        for n, (name, values) in enumerate(named.items()):
            value, y, colour = values[row], middle + 10 * (n - (len(named) - 1) / 2), CALM[n % len(CALM)]
            low, high = sides[name][row] if name in sides else (None, None)
            if low is not None and high is not None:
                a, b = axis.at(low), axis.at(high)
                parts.append(f'<path d="M{a:.1f} {y:.1f}H{b:.1f}M{a:.1f} {y - 4:.1f}v8M{b:.1f} {y - 4:.1f}v8" stroke="{colour}" stroke-width="2"/>')
            if value is not None:
                parts.append(f'<circle cx="{axis.at(value):.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>')
        top += height
    parts.append(word(figure.x_title, (frame.left + frame.right) / 2, frame.bottom + 34, "middle"))
    legend, below = keys([(name, CALM[n % len(CALM)], "", True) for n, name in enumerate(named)], 0, width - RIGHT) if len(named) > 1 else ("", 0.0)
    after = f'<g transform="translate(0 {frame.bottom + BOTTOM:.0f})">{legend}</g>'
    return whole(figure, width, frame.bottom + BOTTOM + below, frame, "".join(parts), after, {})
