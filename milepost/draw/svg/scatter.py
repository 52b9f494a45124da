"""Points at an x and a y of their own, each with its name beside it and the intervals of both."""

from __future__ import annotations

from milepost.draw.figure import Figure, Sides
from milepost.draw.svg.axis import linear, words_width
from milepost.draw.svg.shapes import (
    BOTTOM,
    EDGE,
    RIGHT,
    SIZE,
    TOP,
    Frame,
    across,
    down,
    labelled,
    look,
    margin,
    upright,
    whole,
    word,
    wrapped,
)


def scatter(figure: Figure, width: int, keys: bool) -> str:
    """The points as `<svg>`. There is no legend: names stand beside their points."""
    height = 260 if width <= 420 else 340
    wide = figure.x_sides or {}
    xs = [
        v
        for name in figure.named
        for v in (*figure.x_of(name), *(side for pair in wide.get(name, ()) for side in pair))
    ]
    y_axis = linear(figure.numbers(), TOP + height, TOP)
    titles = wrapped(figure.y_title, height)
    left = margin(titles, y_axis)
    frame = Frame(left, TOP, width - left - RIGHT, height)
    x_axis = linear([v for v in xs if v is not None], frame.left, frame.right)
    parts = [upright(titles, frame), across(y_axis, frame), down(x_axis, frame, 18)]
    parts.append(f'<path d="M{frame.left:.1f} {frame.bottom:.1f}H{frame.right:.1f}" {EDGE}/>')
    taken: list[tuple[float, float, float, float]] = []
    places = []
    for name, values in figure.named.items():
        for right, up in zip(figure.x_of(name), values, strict=True):
            if right is not None and up is not None:
                at = (x_axis.at(right), y_axis.at(up))
                places.append((name, *at))
                taken.append((at[0] - 5, at[1] - 5, at[0] + 5, at[1] + 5))
    for name, x, y in places:
        style = look(figure, name)
        wide_bars = [f"M{x_axis.at(a):.1f} {y:.1f}H{x_axis.at(b):.1f}" for a, b in _known(wide.get(name, ()))]
        tall_bars = [f"M{x:.1f} {y_axis.at(a):.1f}V{y_axis.at(b):.1f}" for a, b in _known(figure.sides_of(name))]
        path = "".join(wide_bars + tall_bars)
        bars = f'<path d="{path}" stroke="{style.colour}" stroke-opacity=".45" stroke-width="1.5"/>' if path else ""
        label = _beside(name, x, y, frame, taken)
        parts.append(labelled(figure.style(name).label, f'<g class="band">{bars}</g>{style.points((x, y))}{label}'))
    parts.append(word(figure.x_title, (frame.left + frame.right) / 2, frame.bottom + 36, "middle"))
    about = {"x0": x_axis.low, "x1": x_axis.high, "y0": y_axis.low, "y1": y_axis.high}
    return whole(figure, width, frame.bottom + BOTTOM, frame, "".join(parts), "", about)


def _known(sides: Sides) -> list[tuple[float, float]]:
    return [(low, high) for low, high in sides if low is not None and high is not None]


def _beside(name: str, x: float, y: float, frame: Frame, taken: list[tuple[float, float, float, float]]) -> str:
    """The name of a point where it touches nothing: to the right, to the left, above, below; none where all of these
    are taken.
    """
    wide = words_width(name, SIZE)
    for left, base in (
        (x + 8, y + 4),
        (x - 8 - wide, y + 4),
        (x - wide / 2, y - 9),
        (x - wide / 2, y + 18),
        (x + 6, y - 8),
        (x + 6, y + 16),
    ):
        box = (left, base - 11, left + wide, base + 3)
        inside = (
            frame.left <= box[0] and box[2] <= frame.right + RIGHT and frame.top <= box[1] and box[3] <= frame.bottom
        )
        if inside and all(box[2] < a or box[0] > c or box[3] < b or box[1] > d for a, b, c, d in taken):
            taken.append(box)
            return word(name, left, base, halo=True)
    return ""
