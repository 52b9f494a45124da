"""Rule: how a measurement becomes a verdict. A rule is a list of clauses, each a measured number held against a threshold.

    control   the experiment can tell at all, such as: a model with positions learns the task
    core      what the claim says
    limit     what it says beyond that: everywhere, at any depth, without exception

    fails                 controls hold, and a clause of the core is clearly broken
    holds with a limit    controls and core hold, and a limit is clearly broken
    holds                 all hold
    not decided here      otherwise: an interval straddles its threshold, or a number was not measured

A clause is clear when the whole interval lies on one side. The sentence of a rule is made from the same clauses as its verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

VERDICTS = ("holds", "holds with a limit", "fails", "not decided here")
Role = Literal["control", "core", "limit"]
Side = Literal["at most", "at least"]


@dataclass(frozen=True)
class Number:
    """A measured number with its 95% interval; without one it is exact. ``over`` says what the interval is over."""

    value: float
    low: float | None = None
    high: float | None = None
    over: str = ""

    @property
    def sides(self) -> tuple[float, float]:
        """From where to where it may lie."""
        return (self.value if self.low is None else self.low, self.value if self.high is None else self.high)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        low, high = self.sides
        return {"value": self.value, "low": low, "high": high, "over": self.over}

    def __str__(self) -> str:
        if self.low is None and self.high is None:
            return f"{self.value:.3g}"
        low, high = self.sides
        return f"{self.value:.3g} ({low:.3g} to {high:.3g}; {self.over})"


def least(numbers: Iterable[Number]) -> Number:
    """The smallest of several: from their smallest lower side to their smallest upper one, so that it is clear of a bound where all of them are above it, or
    one is below. Each of them has 95% for itself."""
    return _extreme(min, numbers)


def most(numbers: Iterable[Number]) -> Number:
    """The largest of several, likewise."""
    return _extreme(max, numbers)


def _extreme(pick: Callable[..., Any], numbers: Iterable[Number]) -> Number:
    held = list(numbers)
    low, high = (pick(one.sides[side] for one in held) for side in (0, 1))
    return Number(pick(one.value for one in held), low, high, pick(held, key=lambda one: one.value).over)


@dataclass(frozen=True)
class Clause:
    """``words`` name the number, as a noun."""

    role: Role
    number: str
    side: Side
    bound: float
    words: str

    def says(self, found: Mapping[str, Number]) -> bool | None:
        """Whether it is so; None where that is not clear, or not measured."""
        if self.number not in found:
            return None
        low, high = found[self.number].sides
        if not low <= high:  # no numbers
            return None
        below, above = (
            (high <= self.bound, low > self.bound) if self.side == "at most" else (high < self.bound, low >= self.bound)
        )
        if not below and not above:
            return None
        return below if self.side == "at most" else above

    def __str__(self) -> str:
        return f"{self.words} is {self.side} {self.bound:.3g}"


def control(number: str, side: Side, bound: float, words: str) -> Clause:
    """A clause that shows that the experiment can tell."""
    return Clause("control", number, side, bound, words)


def core(number: str, side: Side, bound: float, words: str) -> Clause:
    """A clause of what is claimed."""
    return Clause("core", number, side, bound, words)


def limit(number: str, side: Side, bound: float, words: str) -> Clause:
    """A clause whose breach is a limit of the claim."""
    return Clause("limit", number, side, bound, words)


Rule = tuple[Clause, ...]


def verdict(rule: Rule, found: Mapping[str, Number]) -> str:
    """One of the four words."""
    said = {
        role: [clause.says(found) for clause in rule if clause.role == role] for role in ("control", "core", "limit")
    }
    if not all(said["control"]):
        return "not decided here"
    if False in said["core"]:
        return "fails"
    if None in said["core"]:
        return "not decided here"
    if False in said["limit"]:
        return "holds with a limit"
    return "not decided here" if None in said["limit"] else "holds"


def sentence(rule: Rule) -> str:
    """The rule in words."""
    parts = {role: [str(clause) for clause in rule if clause.role == role] for role in ("control", "core", "limit")}
    told = [f"Counts only if {_joined(parts['control'])}."] if parts["control"] else []
    told.append(f"Holds if {_joined(parts['core'])}; fails where one of these is clearly not so.")
    if parts["limit"]:
        told.append(f"Holds with a limit where it is clearly not so that {_joined(parts['limit'], 'or that')}.")
    return " ".join([*told, "Not decided where an interval straddles its threshold, or a number was not measured."])


def _joined(words: Sequence[str], by: str = "and") -> str:
    return f", {by} ".join(words)
