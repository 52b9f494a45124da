"""Clocks: a dial for each thing that turns.

The seen part of a full turn is blue, what is met beyond it red; a full circle has seen it all.
"""

from __future__ import annotations

import math
from html import escape

from milepost.draw.figure import Dial, Figure
from milepost.draw.svg.colours import CALM, RED
from milepost.draw.svg.shapes import TOP, Frame, Ink, keys, whole, word

CELL, ROUND = 74.0, 24.0


def dials(figure: Figure, width: int, legend: bool) -> str:
    """The dials in rows, as `<svg>`."""
    across = max(1, int(width / CELL))
    rows = math.ceil(len(figure.dials) / across)
    wide = width / across
    frame = Frame(0, TOP + 2, width, rows * (CELL + 16))
    out = []
    for n, dial in enumerate(figure.dials):
        x, y = wide * (n % across + 0.5), frame.top + (CELL + 16) * (n // across) + ROUND + 4
        out.append(f'<g class="{"dial unseen" if dial.unseen else "dial"}">{_dial(dial, x, y)}</g>')
    looks = {False: Ink(CALM[0], "", "", False, 2.5), True: Ink(RED, "", "", False, 2.5)}
    named = [(name, looks[name in figure.red], False) for name in (*figure.points, *figure.red)]
    drawn, below = keys(named, 4, width)
    after = f'<g transform="translate(0 {frame.bottom + 6:.0f})">{drawn}</g>'
    return whole(figure, width, frame.bottom + 6 + below, frame, "".join(out), after, {"across": across})


def _dial(dial: Dial, x: float, y: float) -> str:
    seen = min(dial.seen, 1.0)
    face = (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{ROUND}" fill="none" stroke="currentColor" stroke-opacity=".18" '
        'stroke-width="6"/>'
    )
    arcs = _arc(x, y, 0.0, seen, CALM[0])
    if dial.unseen:
        arcs += _arc(x, y, seen, min(dial.met, 1.0), RED)
    turn = dial.met * 2 * math.pi
    hand = f"M{x:.1f} {y:.1f}L{x + 14 * math.sin(turn):.1f} {y - 14 * math.cos(turn):.1f}"
    line = (
        f'<path d="{hand}" stroke="{RED if dial.unseen else "currentColor"}" stroke-width="2" stroke-linecap="round"/>'
    )
    numbers = f"{dial.name}: {dial.seen:.3g} → {dial.met:.3g}"  # for a pointer
    title = f"<title>{escape(numbers)}</title>"
    names = word(dial.name, x, y + ROUND + 17, "middle") + word(dial.note, x, y + ROUND + 31, "middle")
    return f"{title}{face}{arcs}{line}{names}"


def _arc(x: float, y: float, first: float, last: float, colour: str) -> str:
    """A part of the circle, in turns from the top, clockwise."""
    if last - first >= 1 - 1e-9:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{ROUND}" fill="none" stroke="{colour}" stroke-width="6"/>'
    if last - first <= 1e-4:
        return ""
    turns = (2 * math.pi * turn for turn in (first, last))
    (ax, ay), (bx, by) = ((x + ROUND * math.sin(angle), y - ROUND * math.cos(angle)) for angle in turns)
    arc = f"M{ax:.1f} {ay:.1f}A{ROUND} {ROUND} 0 {int(last - first > 0.5)} 1 {bx:.1f} {by:.1f}"
    return f'<path d="{arc}" fill="none" stroke="{colour}" stroke-width="6"/>'
