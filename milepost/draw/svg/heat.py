"""A heat map: an image of one pixel a cell, stretched; with axes and a bar of its colours.

The image is a PNG with a palette of 255 colours; colour 0 is clear, for gaps. What has both signs is drawn from blue
over white to red around zero, the rest in viridis.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence

from milepost.draw.figure import Figure, Numbers
from milepost.draw.svg.axis import as_percent, linear, rounded, words_width
from milepost.draw.svg.colours import SIGNED, VIRIDIS, shade
from milepost.draw.svg.shapes import BOTTOM, EDGE, LEFT, SIZE, TOP, Frame, finite, number, upright, whole, word

BAR = 76
"""Pixels for the bar and its numbers."""
TALLEST, CELL = 400, 26


def heat(figure: Figure, width: int, keys: bool) -> str:
    """The map as `<svg>`; a bar of its colours is its legend."""
    rows, columns = len(figure.z), len(figure.z[0]) if figure.z else 0
    if not rows or not columns:
        raise ValueError(f"a heat map has rows and columns, got {rows} x {columns}")
    named = max((words_width(name, SIZE) for name in figure.y_names), default=0.0)
    left = min(max(LEFT, named + 34), width * 0.4)
    wide = width - left - BAR
    if figure.square:
        cell = min(wide / columns, TALLEST / rows, CELL * 2)
        wide, tall = cell * columns, cell * rows
    else:
        tall = max(min(170.0, rows * 44.0), min(TALLEST - 90, rows * wide / columns, rows * float(CELL)))
    frame = Frame(left, TOP, wide, tall)
    low, high, colours = scale(figure)
    picture = base64.b64encode(png(figure.z, low, high, colours)).decode()
    box = f'x="{frame.left:.1f}" y="{frame.top:.1f}" width="{frame.width:.1f}" height="{frame.height:.1f}"'
    image = (
        f'<image class="map" {box} preserveAspectRatio="none" image-rendering="pixelated" '
        f'href="data:image/png;base64,{picture}"/><rect {box} fill="none" stroke="currentColor" stroke-opacity=".35"/>'
    )
    columns_svg, extra = _columns(figure, frame, columns)
    bar = _bar(figure, frame, low, high, colours)
    body = (
        image
        + _framed(figure, frame, rows, columns)
        + columns_svg
        + _rows(figure, frame, rows)
        + upright([figure.y_title], frame)
        + bar
    )
    about = {"rows": rows, "columns": columns, "low": low, "high": high}
    return whole(figure, width, frame.bottom + BOTTOM + extra, frame, body, "", about)


def scale(figure: Figure) -> tuple[float, float, tuple[str, ...]]:
    """The lowest and the highest number that has a colour, over all that a reader can choose, and the colours."""
    values = finite(row for z in ([one.z for one in figure.alternatives] or [figure.z]) for row in z)
    low = min(values, default=0.0) if figure.low is None else figure.low
    high = max(values, default=1.0) if figure.high is None else figure.high
    return (-max(-low, high), max(-low, high), SIGNED) if low < 0 < high else (low, high, VIRIDIS)


def levels(rows: Sequence[Numbers], low: float, high: float, most: int) -> list[list[int | None]]:
    """Each number as a level from 0 to ``most``; None is a gap."""
    by = (most - 0.001) / (high - low) if high > low else 0.0
    return [[None if v is None else max(0, min(most, int((v - low) * by + 0.5))) for v in row] for row in rows]


def palette(colours: tuple[str, ...]) -> bytes:
    """The 255 colours of a map, from the lowest number to the highest."""
    return b"".join(bytes(shade(n / 254, colours)) for n in range(255))


def _framed(figure: Figure, frame: Frame, rows: int, columns: int) -> str:
    """The framed cell, and upright marks at the edges of columns."""
    wide, tall = frame.width / columns, frame.height / rows
    dotted = 'stroke="#fff" stroke-width="2" stroke-dasharray="2 4"'
    edges = [frame.left + mark.at * wide for mark in figure.marks]
    out = [f'<path d="M{x:.1f} {frame.top:.1f}v{frame.height:.1f}" {dotted}/>' for x in edges]
    if figure.cell is not None:
        row, column = figure.cell
        place = (
            f'x="{frame.left + column * wide:.1f}" y="{frame.top + row * tall:.1f}" width="{wide:.1f}" '
            f'height="{tall:.1f}"'
        )
        out.append(f'<rect class="framed" {place} fill="none" stroke="#d97706" stroke-width="3"/>')
    return "".join(out)


def png(rows: Sequence[Numbers], low: float, high: float, colours: tuple[str, ...]) -> bytes:
    """One pixel for each number, as PNG."""
    lines = b"".join(
        b"\0" + bytes([0 if level is None else 1 + level for level in row]) for row in levels(rows, low, high, 254)
    )
    count, across = len(rows), len(rows[0])
    head = struct.pack(">IIBBBBB", across, count, 8, 3, 0, 0, 0)
    inside = {
        b"IHDR": head,
        b"PLTE": b"\0\0\0" + palette(colours),
        b"tRNS": b"\0",
        b"IDAT": zlib.compress(lines, 6),
        b"IEND": b"",
    }
    chunks = (
        struct.pack(">I", len(d)) + name + d + struct.pack(">I", zlib.crc32(name + d)) for name, d in inside.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _columns(figure: Figure, frame: Frame, count: int) -> tuple[str, float]:
    """What stands under the columns, and how much taller the figure is for it."""
    cell, out, extra = frame.width / count, [], 0.0
    if figure.x_names:
        size = _size(figure.x_names, cell)
        longest = max(words_width(name, size) for name in figure.x_names)
        turned = longest > max(cell - 3, size)
        every = max(1, round(13 / cell + 0.49)) if turned else 1
        for n, name in enumerate(figure.x_names):
            if n % every == 0:
                x = frame.left + (n + 0.5) * cell
                where = (x + 4, frame.bottom + 14, "end") if turned else (x, frame.bottom + 16, "middle")
                out.append(word(name, *where, turned=turned, size=size))
        extra = max(0.0, longest * 0.72 - 8) if turned else 0.0
    else:
        for value in _ticks(figure.x, frame.width):
            x = frame.left + (figure.x.index(value) + 0.5) * cell
            tick = f'<path d="M{x:.1f} {frame.bottom:.1f}v5" {EDGE}/>'
            out.append(tick + word(number(value), x, frame.bottom + 18, "middle"))
    out.append(word(figure.x_title, frame.left + frame.width / 2, frame.bottom + 36 + extra, "middle"))
    return "".join(out), extra


def _size(names: Sequence[str], cell: float) -> float:
    """Of words beside cells, in pixels: single letters shrink with their cells, so that all of them can be read."""
    return max(7.0, min(float(SIZE), cell)) if all(len(name) <= 2 for name in names) else float(SIZE)


def _rows(figure: Figure, frame: Frame, count: int) -> str:
    cell, out = frame.height / count, []
    if figure.y_names:
        size = _size(figure.y_names, cell)
        every = max(1, math.ceil(size / cell - 0.05))
        some = [(n, name) for n, name in enumerate(figure.y_names) if n % every == 0]
        out = [
            word(name, frame.left - 7, frame.top + (n + 0.5) * cell + size / 3, "end", size=size) for n, name in some
        ]
    else:
        for value in _ticks(figure.y, frame.height):
            y = frame.top + (figure.y.index(value) + 0.5) * cell
            tick = f'<path d="M{frame.left:.1f} {y:.1f}h-4" {EDGE}/>'
            out.append(tick + word(number(value), frame.left - 7, y + 4, "end"))
    return "".join(out)


def _ticks(values: Numbers, pixels: float) -> list[float]:
    """Round numbers among the values."""
    known = [v for v in values if v is not None]
    step = rounded(max(known[-1] - known[0], 1.0) / max(1.0, pixels / 55), True)
    return [v for v in known if v % step == 0]


def _bar(figure: Figure, frame: Frame, low: float, high: float, colours: tuple[str, ...]) -> str:
    """The colours from the highest number down, with numbers."""
    x, steps = frame.right + 14, 32
    tall = frame.height / steps
    shades = ["{:02x}{:02x}{:02x}".format(*shade(1 - (n + 0.5) / steps, colours)) for n in range(steps)]
    out = [
        f'<path d="M{x:.1f} {frame.top + n * tall:.1f}h10v{tall + 0.6:.1f}h-10z" fill="#{colour}"/>'
        for n, colour in enumerate(shades)
    ]
    if high <= low:
        return "".join(out) + word(number(low), x + 16, frame.top + frame.height / 2 + 4)
    axis = linear([low, high], frame.bottom, frame.top, tight=True)
    ticks = (as_percent(axis) if figure.percent else axis).ticks
    out += [word(label, x + 16, max(frame.top + 9, min(frame.bottom, axis.at(value) + 4))) for value, label in ticks]
    return "".join(out)
