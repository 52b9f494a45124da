"""A heat map: an image of one pixel a cell, stretched; with axes and a bar of its colours.

The image is a PNG with a palette of 255 colours; colour 0 is clear, for gaps. What has both signs is drawn from blue over white to red around
zero, the rest in viridis.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Sequence

from milepost.report.figure import Figure, Numbers
from milepost.report.svg import BOTTOM, LEFT, SIZE, TOP, Frame, finite, number, upright, whole, word
from milepost.report.svg_axis import linear, rounded, words_width

VIRIDIS = ("#440154", "#482878", "#3e4a89", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725")
SIGNED = ("#1e4d8f", "#3b7fc4", "#86b6dd", "#cfe1ef", "#f7f7f7", "#f8d5c4", "#eb9a7c", "#cf5246", "#8e1b2c")
BAR = 76
"""Pixels for the bar and its numbers."""
TALLEST, CELL = 400, 26


def heat(figure: Figure, width: int) -> str:
    """The map as `<svg>`."""
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
    values = finite(figure.z)
    low = min(values, default=0.0) if figure.low is None else figure.low
    high = max(values, default=1.0) if figure.high is None else figure.high
    colours: tuple[str, ...] = VIRIDIS
    if low < 0 < high:
        colours, high = SIGNED, max(-low, high)
        low = -high
    picture = base64.b64encode(png(figure.z, low, high, colours)).decode()
    image = (
        f'<image x="{frame.left:.1f}" y="{frame.top:.1f}" width="{frame.width:.1f}" height="{frame.height:.1f}" preserveAspectRatio="none" '
        f'image-rendering="pixelated" href="data:image/png;base64,{picture}"/>'
        f'<rect x="{frame.left:.1f}" y="{frame.top:.1f}" width="{frame.width:.1f}" height="{frame.height:.1f}" fill="none" stroke="currentColor" '
        'stroke-opacity=".35"/>'
    )
    columns_svg, extra = _columns(figure, frame, columns)
    body = image + columns_svg + _rows(figure, frame, rows) + upright([figure.y_title], frame) + _bar(frame, low, high, colours)
    return whole(figure, width, frame.bottom + BOTTOM + extra, frame, body, "", {"rows": rows, "columns": columns})


def png(rows: Sequence[Numbers], low: float, high: float, colours: tuple[str, ...]) -> bytes:
    """One pixel for each number, as PNG."""
    by = 253.999 / (high - low) if high > low else 0.0
    lines = b"".join(b"\0" + bytes([0 if v is None else 1 + max(0, min(254, int((v - low) * by + 0.5))) for v in row]) for row in rows)
    count, across = len(rows), len(rows[0])
    palette = b"\0\0\0" + b"".join(bytes(shade(n / 254, colours)) for n in range(255))
    head = struct.pack(">IIBBBBB", across, count, 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"PLTE", palette), (b"tRNS", b"\0"), (b"IDAT", zlib.compress(lines, 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(d)) + name + d + struct.pack(">I", zlib.crc32(name + d)) for name, d in chunks)


def shade(share: float, colours: tuple[str, ...]) -> tuple[int, int, int]:
    """The colour at a share of a scale, from 0 to 1."""
    place = share * (len(colours) - 1)
    at = min(int(place), len(colours) - 2)
    a, b = ([int(colour[n : n + 2], 16) for n in (1, 3, 5)] for colour in colours[at : at + 2])
    red, green, blue = (round(u + (v - u) * (place - at)) for u, v in zip(a, b, strict=True))
    return red, green, blue


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
                out.append(word(name, x + (4 if turned else 0), frame.bottom + (14 if turned else 16), "end" if turned else "middle", turned=turned, size=size))
        extra = max(0.0, longest * 0.72 - 8) if turned else 0.0
    else:
        for value in _ticks(figure.x, frame.width):
            x = frame.left + (figure.x.index(value) + 0.5) * cell
            tick = f'<path d="M{x:.1f} {frame.bottom:.1f}v5" stroke="currentColor" stroke-opacity=".5"/>'
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
        out = [word(name, frame.left - 7, frame.top + (n + 0.5) * cell + size / 3, "end", size=size) for n, name in some]
    else:
        for value in _ticks(figure.y, frame.height):
            y = frame.top + (figure.y.index(value) + 0.5) * cell
            tick = f'<path d="M{frame.left:.1f} {y:.1f}h-4" stroke="currentColor" stroke-opacity=".5"/>'
            out.append(tick + word(number(value), frame.left - 7, y + 4, "end"))
    return "".join(out)


def _ticks(values: Numbers, pixels: float) -> list[float]:
    """Round numbers among the values."""
    known = [v for v in values if v is not None]
    step = rounded(max(known[-1] - known[0], 1.0) / max(1.0, pixels / 55), True)
    return [v for v in known if v % step == 0]


def _bar(frame: Frame, low: float, high: float, colours: tuple[str, ...]) -> str:
    x, steps = frame.right + 14, 48
    tall = frame.height / steps
    out = []
    for n in range(steps):
        red, green, blue = shade(1 - (n + 0.5) / steps, colours)
        out.append(f'<rect x="{x:.1f}" y="{frame.top + n * tall:.1f}" width="10" height="{tall + 0.6:.1f}" fill="#{red:02x}{green:02x}{blue:02x}"/>')
    if high <= low:
        return "".join(out) + word(number(low), x + 16, frame.top + frame.height / 2 + 4)
    axis = linear([low, high], frame.bottom, frame.top, tight=True)
    out += [word(label, x + 16, max(frame.top + 9, min(frame.bottom, axis.at(value) + 4))) for value, label in axis.ticks]
    return "".join(out)
