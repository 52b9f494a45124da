"""Axes: from numbers to pixels, with ticks at round numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
LETTERS = {
    **dict.fromkeys(" .,:;'|ijlI", 0.34), **dict.fromkeys('()[]ftr-/!"', 0.46), **dict.fromkeys("mwMW@%", 1.0),
    **dict.fromkeys("+=<>~±×−≈→#&^", 0.84),
}  # fmt: skip
"""Widths of letters that are not as most, in sizes of the font."""


@dataclass(frozen=True)
class Axis:
    """From ``low`` at pixel ``first`` to ``high`` at pixel ``last``; ``ticks`` are values with their words."""

    low: float
    high: float
    first: float
    last: float
    log: bool
    ticks: tuple[tuple[float, str], ...]

    def at(self, value: float) -> float:
        """The pixel of a value."""
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        share = ((math.log(value) if self.log else value) - low) / (high - low)
        return self.first + share * (self.last - self.first)


def linear(values: Sequence[float], first: float, last: float, *, whole: bool = False, tight: bool = False) -> Axis:
    """An axis over the values, with some room unless ``tight``; ``whole`` has ticks at whole numbers only."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if high - low < 1e-12 * max(1.0, abs(high), abs(low)):
        low, high = low - 0.5, high + 0.5
    elif not tight:
        low, high = low - 0.04 * (high - low), high + 0.04 * (high - low)
    step = rounded((high - low) / max(2.0, abs(last - first) / (70 if tight else 46)), whole)
    begin = math.ceil(low / step - 1e-9)
    ticks = [n * step for n in range(begin, begin + 200) if n * step <= high + 1e-9 * step]
    return Axis(low, high, first, last, False, tuple((t, short(t, step)) for t in ticks))


def logarithmic(
    values: Sequence[float], first: float, last: float, *, whole: bool = False, tight: bool = False
) -> Axis:  # fmt: skip
    """A logarithmic axis over the values above zero."""
    above = [v for v in values if v > 0]
    low, high = min(above, default=1.0), max(above, default=10.0)
    if not tight or high / low < 1 + 1e-9:
        low, high = low / 1.3, high * 1.3
    begin, end = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, math.ceil((end - begin) * 34 / max(1.0, abs(last - first))))
    powers = [10.0**e for e in range(begin, end + 1) if e % every == 0]
    ticks = [power for power in powers if low <= power * (1 + 1e-9) and power <= high * (1 + 1e-9)]
    if len(ticks) < 3:
        ticks = [m * 10.0**e for e in range(begin, end + 1) for m in (1, 2, 5) if low <= m * 10.0**e <= high]
    if len(ticks) < 2:
        return Axis(low, high, first, last, True, linear([low, high], first, last, tight=True).ticks)
    return Axis(low, high, first, last, True, tuple((t, short(t, t)) for t in ticks))


def as_percent(axis: Axis) -> Axis:
    """The same axis of shares, its ticks written as %."""
    return replace(axis, ticks=tuple((value, f"{100 * value:.10g}%") for value, _ in axis.ticks))


def thinned(ticks: Sequence[tuple[float, str]], axis: Axis, size: float) -> tuple[tuple[float, str], ...]:
    """The ticks that have room beside each other: the first and the last, and those between that do not touch."""
    shown: list[tuple[float, str]] = []
    for tick in (*ticks[-1:], *ticks[:-1]):
        room = (
            abs(axis.at(tick[0]) - axis.at(other[0])) - (words_width(tick[1] + other[1], size) / 2 + 6)
            for other in shown
        )
        if all(space > 0 for space in room):
            shown.append(tick)
    return tuple(sorted(shown))


def rounded(step: float, whole: bool) -> float:
    """The next round step."""
    power = 10.0 ** math.floor(math.log10(step))
    size = next(s * power for s in STEPS if s * power >= step * (1 - 1e-9))
    return max(1.0, math.ceil(size)) if whole else size


def short(value: float, step: float) -> str:
    """A tick's words: as many digits as its step needs."""
    if abs(value) < step * 1e-6:
        return "0"
    if abs(value) >= 1e6 or abs(value) < 1e-4:
        power = math.floor(math.log10(abs(value)) + 1e-12)
        digits = f"{value / 10.0**power:.3g}"
        return f"1e{power}" if digits == "1" else f"{digits}e{power}"
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    decimals += 1 if abs(step * 10**decimals - round(step * 10**decimals)) > 1e-6 else 0  # a step of 2.5 needs one more
    return f"{value:.{decimals}f}"


def words_width(text: str, size: float) -> float:
    """How wide words are at most, in pixels.

    The reader's font is not known here: letters are taken to be as wide as in DejaVu Sans, which is wide among those
    of screens.
    """
    return size * sum(1.0 if ord(c) > 0x2E7F else LETTERS.get(c, 0.79 if c.isupper() else 0.64) for c in text)
