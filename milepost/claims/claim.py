"""Claim: one statement of the notes, the experiment that decides it, and the rule by which it does.

An experiment has up to four parts, each a function that returns a `Measurement`. The most expensive one is its kind:

    exact        algebra in float64, in seconds
    timed        time and memory on this machine, in seconds
    trained      small models of the lab
    checkpoint   a real model that the reader gives

A part that was not run gives no numbers: the rule then decides only if the others suffice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from milepost.claims.checkpoint import StretchedCheckpoint
from milepost.claims.needs import Need
from milepost.claims.rule import NotMeasured, Number, Rule
from milepost.claims.trained import Lab

Lines = Mapping[str, Sequence[float | None]]
PARTS = ("exact", "timed", "trained", "checkpoint")


@dataclass(frozen=True)
class Plot:
    """A picture as plain data: lines over ``x``, or points with intervals over names. ``mark`` is the rule's bound."""

    kind: Literal["lines", "points"]
    title: str
    x_title: str
    y_title: str
    x: Sequence[Any]
    lines: Lines
    low: Lines = field(default_factory=dict)
    high: Lines = field(default_factory=dict)
    log_x: bool = False
    log_y: bool = False
    mark: float | None = None


@dataclass(frozen=True)
class Measurement:
    """What one part of an experiment measured: the numbers of the rule, pictures, and notes for the evidence."""

    numbers: Mapping[str, Number | float]
    figures: tuple[Plot, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """``statement`` and ``chinese`` say the same; ``source`` is the seed document and its section.

    ``exact_decides``: the verdict follows from the exact part alone; the other parts add evidence.
    """

    id: str
    statement: str
    chinese: str
    source: str
    experiment: str
    rule: Rule
    exact: Callable[[], Measurement] | None = None
    timed: Callable[[], Measurement] | None = None
    trained: Callable[[Lab], Measurement] | None = None
    checkpoint: Callable[[StretchedCheckpoint], Measurement] | None = None
    needs: tuple[Need, ...] = ()
    exact_decides: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that its experiment has."""
        return tuple(part for part in PARTS if getattr(self, part) is not None)

    @property
    def kind(self) -> str:
        """The most expensive of its parts."""
        return self.parts[-1]


def points(
    title: str, y_title: str, numbers: Mapping[str, Number], mark: float | None = None, *, log_y: bool = False
) -> Plot:
    """A picture of numbers with their intervals, side by side."""
    values = list(numbers.values())
    low, high = ({"measured": [number.sides[side] for number in values]} for side in (0, 1))
    shown = {"measured": [number.value for number in values]}
    return Plot("points", title, "", y_title, list(numbers), shown, low, high, log_y=log_y, mark=mark)


def measure_each(measures: Mapping[str, Callable[[], Number]]) -> dict[str, Number]:
    """The numbers that can be measured here; the others are left out, and the rule reports them as not measured."""
    numbers: dict[str, Number] = {}
    for name, measure in measures.items():
        try:
            numbers[name] = measure()
        except NotMeasured:
            continue
    return numbers
