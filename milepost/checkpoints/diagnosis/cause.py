"""Why a model fails where it does: rules, each from measured facts alone. The first that holds is given, with its rule.

untrained rows     a learned table whose rows beyond about the onset are as they were initialised
positions          the same passage, with nothing before it, has a higher loss at positions past the onset
unseen angles      rotary pairs that made less than a full turn in training go farther at the onset; the passage alone
                   does not suffer
last bucket        T5: distances past the last edge share one number, which is out of line with its neighbours
more context       none of these: tokens and positions alone are read well, and it is how much is read that hurts
not known          none of these, and positions could not be tried by themselves
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from milepost.checkpoints.inspection.inspect import inspect
from milepost.checkpoints.inspection.weights import WeightFindings
from milepost.checkpoints.model.loaded import Loaded
from milepost.measure.losses import TOLERATED_RISE
from milepost.measure.onset import Onset
from milepost.rope.analysis import analyse

Row = dict[str, Any]
LEAST_ROWS = 16
"""Rows below which a table counts as one that was hardly trained at all, which proves nothing."""


@dataclass(frozen=True)
class Cause:
    """A name of the list above, what was measured, and the rule that made it the answer."""

    name: str
    sentence: str
    rule: str


def find_cause(
    subject: Loaded, tensors: WeightFindings | None, failure: Onset, shifted: Sequence[Row], attention: Sequence[Row]
) -> Cause:
    """The likely cause of a failure; ``tensors`` is what the tensors that hold positions say."""
    untrained = _untrained_rows(tensors, failure)
    if untrained is not None:
        return untrained
    moved = suffers(shifted, failure.start)
    if moved is not None:
        return Cause(
            "positions",
            "positions themselves: the loss of the same passage, with nothing before it, is "
            f"{moved['difference']:.3g} nats a token higher at position {moved['first']}",
            f"shifted: the interval of the difference is above {TOLERATED_RISE:.0%} of the loss at position 0, and "
            "above those of places before the onset",
        )
    angles = _unseen_angles(subject, failure)
    if angles is not None:
        return angles
    if tensors is not None and tensors.buckets:
        return Cause(
            "last bucket", tensors.buckets[0].sentence, "a number of a T5 table is out of line with its neighbours"
        )
    spread = _spread(attention)
    if shifted and any(row["first"] + row["passage"] > failure.start for row in shifted):
        return Cause(
            "more context",
            "how much is read, not where: the same passage alone is read well at every position that was tried"
            + spread,
            "shifted does not rise and loss by position does; no rotary pair is beyond its trained angles",
        )
    return Cause(
        "not known",
        "none that these measures can show" + spread,
        "no rule held, and positions could not be tried by themselves there",
    )


def read_tensors(subject: Loaded) -> WeightFindings | None:
    """What the tensors that hold positions say; None where there are none to read."""
    learned = bool(subject.inspection.tables) or any("t5" in layer.scheme for layer in subject.inspection.layers)
    if not learned or subject.form == "hub":
        return None
    return inspect(subject.name, weights=True).weights


def really_trained(tensors: WeightFindings | None) -> int | None:
    """How many rows of a learned table were trained, where that is fewer than it has."""
    tables = [] if tensors is None else tensors.tables
    return min((t.trained for t in tables if LEAST_ROWS <= t.trained < t.usable), default=None)


def _untrained_rows(tensors: WeightFindings | None, failure: Onset) -> Cause | None:
    size = failure.end - failure.start
    for table in () if tensors is None else tensors.tables:
        if table.trained < table.usable and abs(table.trained - failure.start) <= size:
            return Cause(
                "untrained rows", table.sentence, f"the table's untrained rows begin within {size} tokens of the onset"
            )
    return None


def suffers(shifted: Sequence[Row], start: int) -> Row | None:
    """The first place past the onset where the passage alone has a higher loss than at 0 and at any place before the
    onset.

    A model with absolute positions never met a text that begins late, and its loss may be higher anywhere: that is no
    failure of the place.
    """
    home = next((row["loss"] for row in shifted if row["first"] == 0), None)
    before = [row["high"] for row in shifted if row["first"] + row["passage"] <= start and row["high"] is not None]
    for row in shifted:
        past = row["first"] + row["passage"] > start
        if (
            past
            and home is not None
            and row["low"] is not None
            and row["low"] > max(TOLERATED_RISE * home, *before, 0.0)
        ):
            return row
    return None


def _unseen_angles(subject: Loaded, failure: Onset) -> Cause | None:
    if subject.spec is None or (
        subject.trained is None and any(rope.trained is None for rope in subject.spec.ropes().values())
    ):
        return None
    for analysis in analyse(subject.spec, failure.end):
        if analysis.unseen_pairs:
            kind = "" if analysis.kind == "all" else f" of {analysis.kind}"
            return Cause(
                "unseen angles",
                f"distances that training never had: at {failure.end} tokens {len(analysis.unseen_pairs)} of "
                f"{len(analysis.pairs)} rotary pairs{kind} meet angles that they have not seen in {analysis.trained}",
                "pairs with less than a full turn over the trained length turn farther at the onset; a passage alone "
                "does not suffer from being moved",
            )
    return None


def _spread(attention: Sequence[Row]) -> str:
    """How attention changed from the in-range length to the longest."""
    if len(attention) < 2:
        return ""
    near, far = attention[0], attention[-1]
    before, after = (
        {name: sum(head[name] for head in row["heads"]) / len(row["heads"]) for name in ("entropy", "sink")}
        for row in (near, far)
    )
    return (
        f"; from {near['length']} to {far['length']} tokens the entropy of attention goes from "
        f"{before['entropy']:.2f} to "
        f"{after['entropy']:.2f} nats, and the first token's share from {before['sink']:.0%} to {after['sink']:.0%}"
    )
