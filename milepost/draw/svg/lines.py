"""Lines and points over x, with their intervals as bands, axes, marks and a legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from milepost.draw.figure import Figure
from milepost.draw.svg.axis import Axis, as_percent, linear, logarithmic, thinned, words_width
from milepost.draw.svg.colours import RED
from milepost.draw.svg.shapes import (  # fmt: skip
    BOTTOM,
    EDGE,
    LEFT,
    RIGHT,
    SIZE,
    TOP,
    Frame,
    Ink,
    across,
    labelled,
    legend,
    look,
    margin,
    upright,
    whole,
    word,
    wrapped,
)

Places = Sequence[tuple[float, float]]
Gapped = Sequence[tuple[float, float] | None]
DIRECT, ASIDE = 8, 480
"""Labels that stand at the ends of their lines instead of in a legend, at most, and the width that gives them room."""


def lines(figure: Figure, width: int, keys: bool) -> str:
    """The lines as `<svg>`."""
    height = (220 if width <= 420 else 250 if width <= 640 else 320) + (120 if len(figure.labels()) > DIRECT else 0)
    ends = () if figure.log_y else (figure.low, figure.high)
    others = [*(mark.at for mark in figure.marks if mark.axis == "y"), *ends]
    known = [*figure.numbers(), *(v for v in others if v is not None)]
    y_axis = (logarithmic if figure.log_y else linear)(known, TOP + height, TOP)
    y_axis = as_percent(y_axis) if figure.percent else y_axis
    titles = wrapped(figure.y_title, height)
    left = margin(titles, y_axis)
    direct = not keys and width >= ASIDE and 1 < len(figure.labels()) <= DIRECT
    right = RIGHT + min(width * 0.3, max(words_width(label, SIZE) for label in figure.labels())) if direct else RIGHT
    frame = Frame(left, TOP, width - left - right, height)
    xs = [v for name in figure.named for v in figure.x_of(name) if v is not None] or [
        v for v in figure.x if v is not None
    ]
    tight = len(figure.points) < len(figure.named)
    x_axis = (logarithmic if figure.log_x else linear)(xs, frame.left, frame.right, whole=not figure.log_x, tight=tight)
    parts, drawn = (
        [
            _grid(figure, frame, x_axis, y_axis, width),
            upright(titles, frame),
            '<g fill="none" stroke-linejoin="round">',
        ],
        {},
    )
    for name, values in figure.named.items():
        places = _placed(figure.x_of(name), values, x_axis, y_axis)
        drawn[name] = [place for place in places if place is not None]
        style = look(figure, name)
        body = _band(figure, name, x_axis, y_axis, style) + _line(figure, name, places, style)
        parts.append(labelled(figure.style(name).label, body))
    parts += [
        "</g>",
        _marks(figure, frame, x_axis, y_axis, list(drawn.values())),
        _ends(figure, frame, drawn) if direct else "",
    ]
    about = {
        "x0": x_axis.low,
        "x1": x_axis.high,
        "log": int(figure.log_x),
        "y0": y_axis.low,
        "y1": y_axis.high,
        "logy": int(figure.log_y),
    }
    after, below = legend(figure, LEFT, width - RIGHT, frame.bottom + BOTTOM) if keys else ("", 0.0)
    return whole(figure, width, frame.bottom + BOTTOM + below, frame, "".join(parts), after, about)


def _placed(xs: Sequence[float | None], ys: Sequence[float | None], x_axis: Axis, y_axis: Axis) -> Gapped:
    return [None if x is None or y is None else (x_axis.at(x), y_axis.at(y)) for x, y in zip(xs, ys, strict=True)]


def _line(figure: Figure, name: str, places: Gapped, style: Ink) -> str:
    """A path with the points that stand alone, or with all points, or points alone."""
    there = [place for place in places if place is not None]
    dots = style.points(*(there if style.mark else _lone(places)))
    if name in figure.points:
        return dots
    return f'<path d="{_path(places, figure.stepped)}" {style.stroke()}/>{dots}'


def _path(places: Gapped, stepped: bool) -> str:
    """Straight or stepped from place to place, broken at gaps."""
    out, last = [], None
    for place in places:
        if place is not None:
            x, y = round(place[0], 1), round(place[1], 1)
            out.append(f"M{x} {y}" if last is None else f"H{x}V{y}" if stepped else _step(x - last[0], y - last[1]))
            last = (x, y)
        else:
            last = None
    return "".join(out)


def _step(across: float, down: float) -> str:
    """A piece of a path in few letters: drawings have thousands."""
    return f"l{across:.1f} {down:.1f}".replace(".0", "").replace(" -", "-")


def _band(figure: Figure, name: str, x_axis: Axis, y_axis: Axis, style: Ink) -> str:
    """The interval around a line, broken at gaps; of a place alone, an upright bar."""
    sides = figure.sides_of(name)
    if not sides:
        return ""
    low, high = (_placed(figure.x_of(name), [pair[n] for pair in sides], x_axis, y_axis) for n in (0, 1))
    out, bars, run = [], [], []
    for below, above in (*zip(low, high, strict=True), (None, None)):
        if below is not None and above is not None:
            run.append((below, above))
            continue
        if len(run) == 1:
            bars.append(f"M{run[0][0][0]:.1f} {run[0][0][1]:.1f}V{run[0][1][1]:.1f}")
        elif run:
            out.append(_outline([top for _, top in run] + [bottom for bottom, _ in reversed(run)]))
        run = []
    shade = (
        f'<path class="band" d="{"".join(out)}" fill="{style.colour}" '
        f'fill-opacity="{".13" if len(figure.labels()) <= DIRECT else ".07"}"/>'
        if out
        else ""
    )
    return shade + (
        f'<path class="band" d="{"".join(bars)}" stroke="{style.colour}" stroke-opacity=".45"/>' if bars else ""
    )


def _outline(places: Places) -> str:
    """A closed path in steps of a pixel: thousands of places are as many bytes."""
    (x, y), *rest = [(round(x), round(y)) for x, y in places]
    steps = (f"{u - v} {w - z}" for (v, z), (u, w) in pairwise([(x, y), *rest]))
    return f"M{x} {y}l{' '.join(steps).replace(' -', '-')}z"


def _lone(places: Gapped) -> list[tuple[float, float]]:
    """Places with a gap on both sides, through which no line goes."""
    around = [None, *places, None]
    return [
        place for at, place in enumerate(places) if place is not None and around[at] is None and around[at + 2] is None
    ]


def _grid(figure: Figure, frame: Frame, x_axis: Axis, y_axis: Axis, width: int) -> str:
    out = [across(y_axis, frame)]
    ticks = x_axis.ticks
    if figure.x_names:
        ticks = tuple((v, figure.x_names[n]) for n, v in enumerate(figure.x) if v is not None)
    elif figure.x_ticks:
        ticks = thinned(
            [(v, f"{v:.10g}") for v in figure.x_ticks if x_axis.low <= v <= x_axis.high * (1 + 1e-9)], x_axis, SIZE
        )
    for value, label in ticks:
        x = x_axis.at(value)
        out.append(f'<path d="M{x:.1f} {frame.bottom:.1f}v5" {EDGE}/>')
        out.append(word(label, min(x, width - words_width(label, SIZE) / 2), frame.bottom + 18, "middle"))
    out.append(f'<path d="M{frame.left:.1f} {frame.bottom:.1f}H{frame.right:.1f}" {EDGE}/>')
    out.append(word(figure.x_title, (frame.left + frame.right) / 2, frame.bottom + 36, "middle"))
    return "".join(out)


def _marks(figure: Figure, frame: Frame, x_axis: Axis, y_axis: Axis, drawn: Sequence[Places]) -> str:
    """Dotted lines with their names: an upright one has its name at its foot, or at its head where fewer lines are in
    the way.
    """
    out = []
    for row, mark in enumerate(figure.marks):
        ink = RED if mark.red else ""
        line = f'stroke="{ink or "currentColor"}" stroke-opacity="{".9" if ink else ".55"}" stroke-dasharray="3 4"'
        if mark.axis == "y":
            y = y_axis.at(mark.at)
            name = word(mark.name, frame.left + 6, y - 5, halo=True, ink=ink)
            out.append(f'<path d="M{frame.left:.1f} {y:.1f}H{frame.right:.1f}" {line}/>{name}')
            continue
        if not x_axis.low * (1 - 1e-9) <= mark.at <= x_axis.high * (1 + 1e-9):
            continue
        x = x_axis.at(mark.at)
        side, step = ("end", -5) if x > frame.left + frame.width / 2 else ("start", 5)
        wide = words_width(mark.name, SIZE)
        ends = sorted((x + step, x + step + (wide if step > 0 else -wide)))
        heights = (frame.bottom - 8 - 15 * row, frame.top + 12 + 15 * row)
        y = min(heights, key=lambda y: sum(_near(one, ends, y - SIZE / 2) for one in drawn))
        name = word(mark.name, x + step, y, side, halo=True, ink=ink)
        out.append(f'<path d="M{x:.1f} {frame.top:.1f}V{frame.bottom:.1f}" {line}/>{name}')
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


def _ends(figure: Figure, frame: Frame, drawn: Mapping[str, Places]) -> str:
    """Each label at the end of its line, in its colour; moved apart where ends are close.

    A line that ends earlier has none.
    """
    ends = []
    for label, first in figure.labels().items():
        last = max(
            (drawn[name][-1] for name in drawn if figure.style(name).label == label and drawn[name]), default=None
        )
        if (
            last is not None
            and last[0] > frame.right - 1
            and words_width(label, SIZE) <= 0.3 * (frame.width + frame.left)
        ):
            ends.append((last[1], label, first))
    ends.sort()
    heights = [end[0] + 4 for end in ends]
    for n in range(1, len(heights)):
        heights[n] = max(heights[n], heights[n - 1] + 14)
    over = max(0.0, heights[-1] - frame.bottom - 4) if heights else 0.0
    for n in reversed(range(len(heights))):
        heights[n] = min(heights[n], (heights[n + 1] - 14) if n + 1 < len(heights) else heights[n] - over)
    return "".join(
        labelled(label, word(label, frame.right + 8, y, ink=look(figure, first).colour))
        for y, (_, label, first) in zip(heights, ends, strict=True)
    )
