"""What a view takes and gives: controls that a reader sets, and what is shown for them.

A control has limits. A value outside of them is refused, never clamped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from milepost.draw import Figure


@dataclass(frozen=True)
class Shown:
    """Figures, a sentence about what they show, and the modules whose formulas they use besides the encoding's own.

    ``table`` has a row of names, and rows of cells.
    """

    figures: tuple[Figure, ...]
    sentence: str
    modules: tuple[str, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Control:
    """A number from ``low`` to ``high`` (a slider), one of ``options`` (a list), or a text of at most ``high`` letters.

    ``label`` is what an argument of an encoding is called on the page: its own name, in every language.
    """

    name: str
    kind: Literal["number", "choice", "text"]
    value: Any
    low: float = 0.0
    high: float = 0.0
    step: float = 1.0
    log: bool = False
    whole: bool = True
    options: tuple[str, ...] = ()
    label: str = ""

    def read(self, text: str) -> Any:
        """The value of a typed ``text``."""
        if self.kind == "choice":
            if text not in self.options:
                raise ValueError(f"{self.label or self.name} is one of {', '.join(self.options)}, got {text[:60]!r}")
            return text
        if self.kind == "text":
            if len(text) > self.high:
                most = f"at most {self.high:.0f} characters"
                raise ValueError(f"{self.name} has {most} here, got {len(text)}; give a shorter one")
            return text
        return self.within(number(self.name, text, whole=self.whole))

    def within(self, value: float) -> float:
        """``value``, if it is inside the limits."""
        if not self.low <= value <= self.high:
            raise ValueError(f"{self.name} is a number from {self.low:.12g} to {self.high:.12g} here, got {value:.12g}")
        return value


def number(name: str, text: str, *, whole: bool) -> float:
    """A number as it is typed."""
    try:
        value: float = int(text) if whole else float(text)
        finite = math.isfinite(value)
    except OverflowError:  # a whole number that no float can hold
        finite = False
    except ValueError:
        raise ValueError(f"{name} is a {'whole ' if whole else ''}number, got {text[:60]!r}") from None
    if not finite:
        raise ValueError(f"{name} is a finite number, got {text[:60]!r}")
    return value


def slider(
    name: str, value: float, low: float, high: float, *, step: float = 1.0, log: bool = False, whole: bool = True
) -> Control:
    """A number."""
    return Control(name, "number", value, low, high, step, log, whole)


def choice(name: str, *options: str) -> Control:
    """One of several words; the first is the default."""
    return Control(name, "choice", options[0], options=options)


def text(name: str, value: str, longest: int) -> Control:
    """Words that the reader types."""
    return Control(name, "text", value, high=longest)
