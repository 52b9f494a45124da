"""Why a model fails where it does: rules, each from measured facts alone, and each stated beside its answer. The first that holds is given.

untrained rows     a learned table whose rows beyond about the onset are as they were initialised
positions          the same passage, with nothing before it, loses more at positions past the onset
unseen angles      rotary pairs that made less than a full turn in training go farther at the onset; the passage alone does not suffer
last bucket        T5: distances past the last edge share one number, which is out of line with its neighbours
more context       none of these: the tokens and positions are well by themselves, and it is how much is read that hurts
not known          none of these, and positions could not be tried by themselves
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from milepost.checkpoints.inspection.inspect import inspect
from milepost.checkpoints.inspection.weights import WeightFindings
from milepost.checkpoints.model.loaded import Loaded
from milepost.measure.losses import TOLERATED_RISE
from milepost.measure.onset import Onset
from milepost.rope.analysis import analyse

Row = dict[str, Any]
SOME = 16
"""Rows below which a table is taken for one that was hardly trained at all, which says nothing."""


@dataclass(frozen=True)
class Cause:
    """A name of the list above, what was measured, and the rule that made it the answer."""

    name: str
    sentence: str
    rule: str

    def to_json(self) -> Row:
        """Plain data."""
        return asdict(self)


def cause(
    subject: Loaded, told: WeightFindings | None, failing: Onset, shifted: Sequence[Row], attention: Sequence[Row]
) -> Cause:
    """The likely cause of a failure; ``told`` is what the tensors say."""
    rows = _untrained(told, failing)
    if rows is not None:
        return rows
    moved = suffers(shifted, failing.start)
    if moved is not None:
        return Cause(
            "positions",
            f"positions themselves: the same passage, with nothing before it, loses {moved['difference']:.3g} nats a token more at position {moved['first']}",
            f"shifted: the interval of the difference is above {TOLERATED_RISE:.0%} of the loss at position 0, and above those of places before the onset",
        )
    angles = _unseen(subject, failing)
    if angles is not None:
        return angles
    if told is not None and told.buckets:
        return Cause(
            "last bucket", told.buckets[0].sentence, "a number of a T5 table is out of line with its neighbours"
        )
    spread = _spread(attention)
    if shifted and any(row["first"] + row["passage"] > failing.start for row in shifted):
        return Cause(
            "more context",
            "how much is read, not where: the same passage alone is well at every position that was tried" + spread,
            "shifted is well and loss by position is not; no rotary pair is beyond its trained angles",
        )
    return Cause(
        "not known",
        "none that these measures can tell" + spread,
        "no rule held, and positions could not be tried by themselves there",
    )


def tensors(subject: Loaded) -> WeightFindings | None:
    """What the tensors that hold positions say; None where there are none to read."""
    learned = bool(subject.inspection.tables) or any("t5" in layer.scheme for layer in subject.inspection.layers)
    if not learned or subject.form == "hub":
        return None
    return inspect(subject.name, weights=True).weights


def really_trained(told: WeightFindings | None) -> int | None:
    """How many rows of a learned table were trained, where that is fewer than it has."""
    return min(
        (table.trained for table in ([] if told is None else told.tables) if SOME <= table.trained < table.usable),
        default=None,
    )


def _untrained(told: WeightFindings | None, failing: Onset) -> Cause | None:
    size = failing.end - failing.start
    for table in () if told is None else told.tables:
        if table.trained < table.usable and abs(table.trained - failing.start) <= size:
            return Cause(
                "untrained rows", table.sentence, f"the table's untrained rows begin within {size} tokens of the onset"
            )
    return None


def suffers(shifted: Sequence[Row], start: int) -> Row | None:
    """The first place past the onset where the passage alone loses more than at 0, and more than at any place before the onset.

    A model of places never met a text that begins late, and may lose something on it anywhere: that is no failure of the place.
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


def _unseen(subject: Loaded, failing: Onset) -> Cause | None:
    if subject.spec is None or (
        subject.trained is None and any(rope.trained is None for rope in subject.spec.ropes().values())
    ):
        return None
    for one in analyse(subject.spec, failing.end):
        if one.unseen_pairs:
            kind = "" if one.kind == "all" else f" of {one.kind}"
            return Cause(
                "unseen angles",
                f"distances that training never had: at {failing.end} tokens {len(one.unseen_pairs)} of {len(one.pairs)} rotary pairs{kind} "
                f"meet angles that they have not seen in {one.trained}",
                "pairs with less than a full turn over the trained length turn farther at the onset; a passage alone does not suffer from being moved",
            )
    return None


def _spread(attention: Sequence[Row]) -> str:
    """How attention changed from the in-range length to the longest."""
    if len(attention) < 2:
        return ""
    near, far = attention[0], attention[-1]
    means = [
        {name: sum(h[name] for h in one["heads"]) / len(one["heads"]) for name in ("entropy", "sink")}
        for one in (near, far)
    ]
    return (
        f"; from {near['length']} to {far['length']} tokens the entropy of attention goes from {means[0]['entropy']:.2f} to {means[1]['entropy']:.2f} nats, "
        f"and the first token's share from {means[0]['sink']:.0%} to {means[1]['sink']:.0%}"
    )
