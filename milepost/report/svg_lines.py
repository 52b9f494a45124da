"""Lines and points over x, with axes, marks and a legend."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from milepost.report.figure import Figure
from milepost.report.lab_style import DASHES
from milepost.report.svg import BOTTOM, CALM, LEFT, LINE, RED, RIGHT, SIZE, TOP, Frame, keys, upright, whole, word, wrapped
from milepost.report.svg_axis import Axis, linear, logarithmic, words_width

Places = Sequence[tuple[float, float]]
TITLE = 27
"""Pixels for a line of the y axis's title, and between numbers and plot."""


def lines(figure: Figure, width: int) -> str:
    """The lines as `<svg>`."""
    named = figure.lines or {}
    legend, below = keys([(name, *_look(figure, n, name)) for n, name in enumerate(named)], LEFT, width - RIGHT) if len(named) > 1 else ("", 0.0)
    height = 250 if width > 420 else 220
    shown = [v for values in named.values() for v in values if v is not None] + [mark.at for mark in figure.marks if mark.axis == "y"]
    shown += [v for v in (figure.low, figure.high) if v is not None and not figure.log_y]
    y_axis = (logarithmic if figure.log_y else linear)(shown, TOP + height, TOP)
    titles = wrapped(figure.y_title, height)
    left = max(LEFT, TITLE + LINE * (len(titles) - 1) + max((words_width(label, SIZE) for _, label in y_axis.ticks), default=0.0))
    frame = Frame(left, TOP, width - left - RIGHT, height)
    xs = [v for v in figure.x if v is not None]
    x_axis = (logarithmic if figure.log_x else linear)(xs, frame.left, frame.right, whole=not figure.log_x, tight=len(figure.points) < len(named))
    parts, drawn = [_grid(figure, frame, x_axis, y_axis), upright(titles, frame)], []
    for n, (name, values) in enumerate(named.items()):
        colour, dash, dots = _look(figure, n, name)
        places = [None if x is None or y is None else (x_axis.at(x), y_axis.at(y)) for x, y in zip(figure.x, values, strict=True)]
        drawn.append([p for p in places if p is not None])
        lone = [p for p in places if p is not None] if dots else _lone(places)
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in lone]
        if not dots:
            stroke = f' stroke-dasharray="{dash}"' if dash else ""
            parts.append(f'<path d="{_path(places, figure.stepped)}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"{stroke}/>')
    parts.append(_marks(figure, frame, x_axis, y_axis, drawn))
    about = {"x0": x_axis.low, "x1": x_axis.high, "log": int(figure.log_x)}
    after = f'<g transform="translate(0 {frame.bottom + BOTTOM:.0f})">{legend}</g>'
    return whole(figure, width, frame.bottom + BOTTOM + below, frame, "".join(parts), after, about)


def _look(figure: Figure, number: int, name: str) -> tuple[str, str, bool]:
    """A line's colour, its dash where colours come again, and whether it is drawn as dots."""
    calm = [other for other in figure.lines or {} if other not in figure.red]
    at = number if name in figure.red else calm.index(name)
    dash = {"dash": "6 4", "dot": "2 3", "dashdot": "6 3 2 3"}.get(DASHES[(at // len(CALM) - 1) % 3], "") if at >= len(CALM) else ""
    return RED if name in figure.red else CALM[at % len(CALM)], dash, name in figure.points


def _path(places: Sequence[tuple[float, float] | None], stepped: bool) -> str:
    """Straight or stepped from place to place, broken at gaps."""
    out, last = [], None
    for place in places:
        if place is None:
            last = None
            continue
        x, y = place
        out.append(f"M{x:.1f} {y:.1f}" if last is None else f"H{x:.1f}V{y:.1f}" if stepped else f"L{x:.1f} {y:.1f}")
        last = place
    return "".join(out)


def _lone(places: Sequence[tuple[float, float] | None]) -> list[tuple[float, float]]:
    """Places with a gap on both sides, through which no line goes."""
    around = [None, *places, None]
    return [place for at, place in enumerate(places) if place is not None and around[at] is None and around[at + 2] is None]


def _grid(figure: Figure, frame: Frame, x_axis: Axis, y_axis: Axis) -> str:
    out = []
    for value, label in y_axis.ticks:
        y = y_axis.at(value)
        out.append(f'<path d="M{frame.left:.1f} {y:.1f}H{frame.right:.1f}" stroke="currentColor" stroke-opacity=".14"/>')
        out.append(word(label, frame.left - 7, y + 4, "end"))
    names = figure.x_names
    ticks = [(v, names[n]) for n, v in enumerate(figure.x) if v is not None] if names else x_axis.ticks
    for value, label in ticks:
        x = x_axis.at(value)
        out.append(f'<path d="M{x:.1f} {frame.bottom:.1f}v5" stroke="currentColor" stroke-opacity=".5"/>')
        out.append(word(label, min(x, frame.right + RIGHT - words_width(label, SIZE) / 2), frame.bottom + 18, "middle"))
    out.append(f'<path d="M{frame.left:.1f} {frame.bottom:.1f}H{frame.right:.1f}" stroke="currentColor" stroke-opacity=".5"/>')
    out.append(word(figure.x_title, (frame.left + frame.right) / 2, frame.bottom + 36, "middle"))
    return "".join(out)


def _marks(figure: Figure, frame: Frame, x_axis: Axis, y_axis: Axis, drawn: Sequence[Places]) -> str:
    """Dotted lines with their names: the name of one that stands upright is at its foot, or at its head where fewer lines are in the way."""
    out = []
    for row, mark in enumerate(figure.marks):
        line = 'stroke="currentColor" stroke-opacity=".55" stroke-dasharray="3 4"'
        if mark.axis == "y":
            y = y_axis.at(mark.at)
            out.append(f'<path d="M{frame.left:.1f} {y:.1f}H{frame.right:.1f}" {line}/>{word(mark.name, frame.left + 6, y - 5, halo=True)}')
            continue
        x = x_axis.at(mark.at)
        side, step = ("end", -5) if x > frame.left + frame.width / 2 else ("start", 5)
        ends = sorted((x + step, x + step + (words_width(mark.name, SIZE) if step > 0 else -words_width(mark.name, SIZE))))
        y = min((frame.bottom - 8 - 15 * row, frame.top + 12 + 15 * row), key=lambda y: sum(_near(one, ends, y - SIZE / 2) for one in drawn))
        out.append(f'<path d="M{x:.1f} {frame.top:.1f}V{frame.bottom:.1f}" {line}/>{word(mark.name, x + step, y, side, halo=True)}')
    return "".join(out)


def _near(places: Places, ends: Sequence[float], y: float) -> bool:
    """Whether a line comes within the height of a word of ``y``, anywhere between two ends."""
    first, last = ends
    for (x0, y0), (x1, y1) in pairwise(places):
        left, right = max(first, x0), min(last, x1)
        if left <= right and x1 > x0:
            low, high = sorted(y0 + (y1 - y0) * (at - x0) / (x1 - x0) for at in (left, right))
            if low - SIZE < y < high + SIZE:
                return True
    return False
