"""Rule: how measured numbers become a verdict. A rule is a list of clauses; each compares a number with a bound.

    control   the experiment can answer the question at all: for example, a model with positions learns the task
    core      what the claim says
    limit     what it says beyond that: everywhere, at any depth, without exception

    fails                 the controls are true, and a clause of the core is clearly false
    holds with a limit    controls and core are true, and a limit is clearly false
    holds                 all clauses are true
    not decided here      otherwise: an interval straddles its bound, or a number was not measured

A clause is clear when the whole interval lies on one side of the bound. The sentence of a rule and its verdict are made
from the same clauses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

VERDICTS = ("holds", "holds with a limit", "fails", "not decided here")
Role = Literal["control", "core", "limit"]
Side = Literal["at most", "at least"]


class NotMeasured(ValueError):  # noqa: N818
    """A number that can't be measured here: the message says why, and becomes evidence."""


@dataclass(frozen=True)
class Number:
    """A measured number with its 95% interval; without one it is exact. ``over`` names what the interval is over."""

    value: float
    low: float | None = None
    high: float | None = None
    over: str = ""

    @property
    def sides(self) -> tuple[float, float]:
        """The ends of its interval; the value itself where it is exact."""
        return (self.value if self.low is None else self.low, self.value if self.high is None else self.high)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        low, high = self.sides
        return {"value": self.value, "low": low, "high": high, "over": self.over}

    def __sub__(self, other: Number) -> Number:
        """The difference of two numbers that were measured apart: its interval has room for both intervals."""
        (low, high), (other_low, other_high) = self.sides, other.sides
        return Number(self.value - other.value, low - other_high, high - other_low, self.over)

    def __str__(self) -> str:
        if self.low is None and self.high is None:
            return f"{self.value:.3g}"
        low, high = self.sides
        return f"{self.value:.3g} ({low:.3g} to {high:.3g}; {self.over})"


def _extreme(pick: Callable[..., Any], numbers: Iterable[Number]) -> Number:
    known = list(numbers)
    low, high = (pick(number.sides[side] for number in known) for side in (0, 1))
    return Number(pick(number.value for number in known), low, high, pick(known, key=lambda number: number.value).over)


least = partial(_extreme, min)
"""The smallest of several numbers: from their smallest lower end to their smallest upper end. So it is clearly above a
bound where all of them are, and clearly below where one of them is. Each number has its own 95%."""
most = partial(_extreme, max)
"""The largest of several numbers, likewise."""


@dataclass(frozen=True)
class Clause:
    """``words`` name the number, as a noun."""

    role: Role
    number: str
    side: Side
    bound: float
    words: str

    def says(self, numbers: Mapping[str, Number]) -> bool | None:
        """Whether the clause is true; None where that is not clear, or not measured."""
        low, high = numbers[self.number].sides if self.number in numbers else (math.nan, math.nan)
        if not low <= high:
            return None
        true, false = (
            (high <= self.bound, low > self.bound) if self.side == "at most" else (low >= self.bound, high < self.bound)
        )
        return true if true or false else None

    def __str__(self) -> str:
        return f"{self.words}{',' if ', ' in self.words else ''} is {self.side} {self.bound:.3g}"


control = partial(Clause, "control")
core = partial(Clause, "core")
limit = partial(Clause, "limit")
Rule = tuple[Clause, ...]


def verdict(rule: Rule, numbers: Mapping[str, Number]) -> str:
    """One of the four verdicts."""
    truths = {
        role: [clause.says(numbers) for clause in rule if clause.role == role] for role in ("control", "core", "limit")
    }
    if not all(truths["control"]):
        return "not decided here"
    if False in truths["core"]:
        return "fails"
    if False in truths["limit"] and None not in truths["core"]:
        return "holds with a limit"
    return "not decided here" if None in truths["core"] + truths["limit"] else "holds"


def sentence(rule: Rule) -> str:
    """The rule in words."""
    parts = {role: [str(clause) for clause in rule if clause.role == role] for role in ("control", "core", "limit")}
    sentences = [f"The result counts only if {_joined(parts['control'])}."] if parts["control"] else []
    these = "one of these" if len(parts["core"]) > 1 else "that"
    sentences.append(f"The claim holds if {_joined(parts['core'])}; it fails if {these} is clearly false.")
    if parts["limit"]:
        sentences.append(f"It holds with a limit if it is clearly false that {_joined(parts['limit'], 'or that')}.")
    return " ".join([*sentences, "It is not decided if an interval straddles its bound, or a number was not measured."])


def _joined(words: Sequence[str], by: str = "and") -> str:
    return f", {by} ".join(words)
