"""Claim: one statement of the notes, the experiment that decides it, and the rule by which it does.

An experiment has up to four parts, each a function that returns what it `Found`. Which of them a claim has is its kind:

    exact        algebra in float64, in seconds
    timed        time and memory of this machine, in seconds
    trained      small models of the lab
    checkpoint   a real model that the reader gives

A part that was not run leaves its numbers out: the rule then decides only if the others suffice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from milepost.claims.rule import Number, Rule

if TYPE_CHECKING:
    from milepost.claims.needs import Need
    from milepost.claims.real import Real
    from milepost.claims.trained import Lab

Lines = Mapping[str, Sequence[float | None]]
PARTS = ("exact", "timed", "trained", "checkpoint")


class NotMeasured(ValueError):  # noqa: N818
    """A part that can't be run here: the message says why, and is the row's evidence."""


@dataclass(frozen=True)
class Figure:
    """One picture as plain data: lines over ``x``, or points with intervals over names. ``mark`` is the rule's threshold."""

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

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Found:
    """What an experiment measured: the numbers of the rule, pictures, and what else was seen."""

    numbers: Mapping[str, Number | float]
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """``statement`` and ``chinese`` say the same; ``source`` is the seed document and its section.

    ``exact_decides``: what its other parts measure can't change the verdict, and is told beside it.
    """

    id: str
    statement: str
    chinese: str
    source: str
    experiment: str
    rule: Rule
    exact: Callable[[], Found] | None = None
    timed: Callable[[], Found] | None = None
    trained: Callable[[Lab], Found] | None = None
    checkpoint: Callable[[Real], Found] | None = None
    needs: tuple[Need, ...] = ()
    exact_decides: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts that its experiment has."""
        return tuple(part for part in PARTS if getattr(self, part) is not None)

    @property
    def kind(self) -> str:
        """The dearest of its parts."""
        return self.parts[-1]


def points(
    title: str, y_title: str, numbers: Mapping[str, Number], mark: float | None = None, *, log_y: bool = False
) -> Figure:
    """A picture of numbers with their intervals, one beside another."""
    names, values = list(numbers), list(numbers.values())
    sides = [one.sides for one in values]
    drawn = {"measured": [one.value for one in values]}
    low, high = ({"measured": [side[n] for side in sides]} for n in (0, 1))
    return Figure("points", title, "", y_title, names, drawn, low, high, log_y=log_y, mark=mark)


def collected(numbers: Mapping[str, Number | Callable[[], Number]]) -> dict[str, Number]:
    """Numbers, some of which are still to be asked for: those that can't be measured are left out, and the rule will miss them."""
    found: dict[str, Number] = {}
    for name, one in numbers.items():
        try:
            found[name] = one if isinstance(one, Number) else one()
        except NotMeasured:
            continue
    return found
