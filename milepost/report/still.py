"""Still pictures: panels as SVG, without a browser and without a script.

    svg(panel)      one panel: lines or a heat map, some kB
    sheet(panels)   several in one file, two in a row

Words and axes are drawn in the colour of the text around them (`currentColor`), so that a picture inside of a page follows its colour scheme.
A heat map is a PNG inside of the SVG, one pixel for each number. Numbers are those of the panel; nothing is computed here but where they go.
"""

from __future__ import annotations

import base64
import html
import math
import re
import struct
import textwrap
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from milepost.report.portrait import COLOURS

if TYPE_CHECKING:
    from milepost.portrait import Panel

WIDTH, LEFT, RIGHT, TOP, HEIGHT, BELOW = 460, 64, 14, 30, 200, 46
"""Of one panel in pixels: the whole width, margins, and the height of the plot and of what is below it."""
LETTER, LINE = 7.0, 17
"""About the width of a letter in a legend, and the height of its rows."""
FONT = 'font-family="system-ui, sans-serif" font-size="12"'


def svg(panel: Panel, log_x: bool = False) -> str:
    """One panel as an SVG element. ``log_x``: the horizontal axis in powers of two, as lengths are."""
    inner, height = _heat(panel) if panel.kind == "heat" else _lines(panel, log_x)
    words = textwrap.wrap(panel.title, 54)
    title = "".join(f'<text x="{LEFT}" y="{16 + LINE * at}" font-weight="600">{html.escape(line)}</text>' for at, line in enumerate(words))
    if len(words) > 1:
        inner, height = f'<g transform="translate(0 {LINE * (len(words) - 1)})">{inner}</g>', height + LINE * (len(words) - 1)
    named = f"<title>{html.escape(panel.title)}: {html.escape(panel.y_title)} by {html.escape(panel.x_title)}</title>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" fill="currentColor" {FONT}>'
    return f"{head}{named}{title}{inner}</svg>"


def sheet(panels: Sequence[Panel], log_x: bool = False) -> str:
    """Several panels in one SVG, two in a row."""
    if not panels:
        raise ValueError("a sheet needs at least one panel, got none")
    drawn = [svg(panel, log_x) for panel in panels]
    heights = [int(found.group(1)) for one in drawn if (found := re.search(r'height="(\d+)" role', one))]
    rows = [max(heights[at : at + 2]) for at in range(0, len(drawn), 2)]
    placed = [one.replace("<svg ", f'<svg x="{(at % 2) * WIDTH}" y="{sum(rows[: at // 2])}" ', 1) for at, one in enumerate(drawn)]
    wide = WIDTH * min(2, len(drawn))
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {sum(rows)}" width="{wide}" height="{sum(rows)}">{"".join(placed)}</svg>'


def _lines(panel: Panel, log_x: bool) -> tuple[str, int]:
    lines = panel.lines or {}
    known = [v for values in lines.values() for v in values if v is not None and math.isfinite(v)]
    across = _Axis(panel.x, log_x, 2, LEFT, WIDTH - RIGHT)
    up = _Axis(known or [0.0, 1.0], panel.log_y, 10, TOP + HEIGHT, TOP)
    parts = [_frame(panel, across, up)]
    if panel.mark is not None:
        at = across.place(panel.mark)
        parts.append(f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{TOP + HEIGHT}" stroke="currentColor" stroke-dasharray="2 4" opacity=".7"/>')
    x, y = float(LEFT), TOP + HEIGHT + BELOW + 10
    for number, (name, values) in enumerate(lines.items()):
        colour, dash = COLOURS[number % len(COLOURS)], "" if number < len(COLOURS) else ' stroke-dasharray="6 4"'
        parts.append(f'<path d="{_path(panel.x, values, across, up)}" fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round"{dash}/>')
        parts.extend(f'<circle cx="{across.place(x0):.1f}" cy="{up.place(y0):.1f}" r="3.5" fill="{colour}"/>' for x0, y0 in _alone(panel.x, values))
        wide = 30 + LETTER * len(name)
        if x > LEFT and x + wide > WIDTH:
            x, y = float(LEFT), y + LINE
        parts.append(f'<line x1="{x:.0f}" x2="{x + 18:.0f}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" stroke-width="2.5"{dash}/>')
        parts.append(f'<text x="{x + 23:.0f}" y="{y}">{html.escape(name)}</text>')
        x += wide
    return "".join(parts), y + 10


def _path(xs: Sequence[float], values: Sequence[float | None], across: _Axis, up: _Axis) -> str:
    """Straight lines between known values; a gap where there is none."""
    words, pen = [], "M"
    for x, value in zip(xs, values, strict=True):
        if value is None or not math.isfinite(value):
            pen = "M"
            continue
        words.append(f"{pen}{across.place(x):.1f} {up.place(value):.1f}")
        pen = "L"
    return "".join(words)


def _alone(xs: Sequence[float], values: Sequence[float | None]) -> list[tuple[float, float]]:
    """Values without a neighbour, which a line would not show."""
    known = [v is not None and math.isfinite(v) for v in values]
    near = [any(known[max(0, at - 1) : at]) or any(known[at + 1 : at + 2]) for at in range(len(known))]
    return [(x, v) for x, v, is_known, joined in zip(xs, values, known, near, strict=True) if is_known and not joined and v is not None]


def _heat(panel: Panel) -> tuple[str, int]:
    rows = panel.z or []
    known = [v for row in rows for v in row if v is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    limit = max(abs(low), abs(high)) or 1.0
    signed = low < 0 < high
    bottom, top = (-limit, limit) if signed else (low, high)
    scale = _colours("RdBu" if signed else "Viridis")
    picture = _png([[None if v is None else scale[round(255 * (v - bottom) / ((top - bottom) or 1.0))] for v in row] for row in rows])
    right = WIDTH - RIGHT - 64
    across = _Axis([panel.x[0] - 0.5, panel.x[-1] + 0.5], False, 10, LEFT, right, tight=True)
    ys = panel.y or [0.0]
    up = _Axis([ys[0] - 0.5, ys[-1] + 0.5], False, 10, TOP, TOP + HEIGHT, tight=True)  # row 0 on top
    image = (
        f'<image x="{LEFT}" y="{TOP}" width="{right - LEFT}" height="{HEIGHT}" preserveAspectRatio="none" style="image-rendering:pixelated" href="{picture}"/>'
    )
    bar = _png([[colour] for colour in reversed(scale)])
    legend = f'<image x="{right + 10}" y="{TOP}" width="10" height="{HEIGHT}" preserveAspectRatio="none" href="{bar}"/>'
    legend += "".join(
        f'<text x="{right + 24}" y="{TOP + 4 + (1 - share) * HEIGHT:.0f}">{_number(bottom + share * (top - bottom))}</text>' for share in (0, 0.5, 1)
    )
    return image + _frame(panel, across, up, right=right, grid=False) + legend, TOP + HEIGHT + BELOW


class _Axis:
    """From numbers to pixels, with round ticks; ``tight``: from the first number to the last, without rounding."""

    def __init__(self, values: Sequence[float], log: bool, base: int, start: float, end: float, tight: bool = False):
        known = [v for v in values if v > 0] if log else list(values)
        self.log, self.start, self.end = log, start, end
        low, high = min(known), max(known)
        if log:
            powers = range(math.floor(math.log(low, base) + 1e-9), math.ceil(math.log(high, base) - 1e-9) + 1)
            every = max(1, math.ceil(len(powers) / 6))
            self.ticks = [float(base) ** n for n in powers[::every]]
            self.low, self.high = math.log(low), math.log(max(high, low * base))
            return
        if low == high:
            low, high = low - 1, high + 1
        unit = 10.0 ** math.floor(math.log10((high - low) / 4))
        step = next(unit * n for n in (1, 2, 5, 10) if (high - low) / (unit * n) <= 6)
        first = math.ceil(low / step - 1e-9)
        self.ticks = [step * n for n in range(first, math.floor(high / step + 1e-9) + 1)]
        room = 0.0 if tight else 0.03 * (high - low)
        self.low, self.high = low - room, high + room

    def place(self, value: float) -> float:
        share = ((math.log(value) if self.log else value) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def shown(self) -> list[tuple[float, str]]:
        """Ticks inside of the plot: where, and what they say."""
        inside = sorted((self.start, self.end))
        return [(at, _number(tick)) for tick in self.ticks if inside[0] - 1 <= (at := self.place(tick)) <= inside[1] + 1]


def _frame(panel: Panel, across: _Axis, up: _Axis, right: float = WIDTH - RIGHT, grid: bool = True) -> str:
    foot = TOP + HEIGHT
    parts = [f'<path d="M{LEFT} {TOP}V{foot}H{right}" fill="none" stroke="currentColor" opacity=".5"/>']
    for at, word in across.shown():
        parts.append(f'<path d="M{at:.1f} {foot}v4" stroke="currentColor" opacity=".5"/><text x="{at:.1f}" y="{foot + 17}" text-anchor="middle">{word}</text>')
    for at, word in up.shown():
        line = f'<path d="M{LEFT} {at:.1f}H{right}" stroke="currentColor" opacity=".14"/>' if grid else ""
        parts.append(f'{line}<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{word}</text>')
    middle = TOP + HEIGHT / 2
    parts.append(f'<text x="{(LEFT + right) / 2:.0f}" y="{foot + 34}" text-anchor="middle" opacity=".8">{html.escape(panel.x_title)}</text>')
    parts.append(f'<text transform="translate(14 {middle:.0f}) rotate(-90)" text-anchor="middle" opacity=".8">{html.escape(panel.y_title)}</text>')
    return "".join(parts)


def _number(value: float) -> str:
    if value and (abs(value) >= 1e6 or abs(value) < 1e-3):
        return f"{value:.0e}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    return f"{value:.0f}" if value == round(value) else f"{value:.3g}"


def _colours(name: str) -> list[tuple[int, int, int]]:
    """256 steps of one of plotly's scales."""
    from plotly.colors import sample_colorscale

    found: list[Any] = sample_colorscale(name, [n / 255 for n in range(256)], colortype="tuple")
    return [(round(255 * r), round(255 * g), round(255 * b)) for r, g, b in found]


def _png(rows: Sequence[Sequence[tuple[int, int, int] | None]]) -> str:
    """A picture of colours, None being clear, as a data address."""
    raw = b"".join(b"\0" + b"".join(bytes((*colour, 255)) if colour else b"\0\0\0\0" for colour in row) for row in rows)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 6, 0, 0, 0)
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(whole).decode()
