"""The verdict of a diagnosis in words: from its numbers alone, the two sentences that matter first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from milepost.checkpoints.diagnosis.cause import Cause
from milepost.measure.losses import TOLERATED_RISE
from milepost.measure.onset import Onset

Row = dict[str, Any]
ROUNDING = 1e-3
"""Nats of one token below which a difference is called rounding."""


def verdict(
    trained: int | None, rows: int | None, longest: int, failing: Onset | None, why: Cause | None, found: dict[str, Any]
) -> list[str]:
    """Sentences. ``rows`` of its table were really trained, where that is fewer; ``found`` holds what a Diagnosis is made of."""
    taught = _trained(trained, rows)
    if failing is None or why is None:
        first = [_holds(taught, longest, found["loss_by_length"]), _best(found["loss_by_length"])]
    else:
        first = _fails(taught, failing, why)
    rest = [_best(found["loss_by_length"])] if failing is not None else []
    rest += [_shifted(found["shifted"]), _retrieval(found["retrieval"]), _pairs(found["pairs"]), _drift(found["drift"])]
    return [sentence for sentence in (*first, *rest) if sentence]


def _trained(trained: int | None, rows: int | None) -> str:
    if trained is None:
        return "its trained length is not known"
    return (
        f"it was trained on {trained}"
        if rows is None
        else f"it declares {trained}, and its table looks trained to about {rows}"
    )


def _holds(taught: str, longest: int, rows: Sequence[Row]) -> str:
    tested = f"{longest} tokens, the most that was tested ({taught})"
    if any(row["change_low"] is not None and row["change_low"] > TOLERATED_RISE * rows[0]["loss"] for row in rows):
        return f"No stretch of positions fails by itself up to {tested}, but the same tokens do lose more at longer lengths."
    return f"The model holds to at least {tested}: no stretch of positions is worse than those before."


def _fails(taught: str, failing: Onset, why: Cause) -> list[str]:
    where = f"The model fails from about token {failing.start} on ({taught}): its effective length is {failing.start} tokens."
    if not math.isfinite(failing.top):
        return [where, f"There the loss is no number. Likely cause: {why.sentence}."]
    how = (
        f"The loss rises from {failing.baseline:.2f} to {failing.top:.2f} nats a token (perplexity {_perplexity(failing.baseline)} to "
        f"{_perplexity(failing.top)}), half of that within {failing.within} tokens. Likely cause: {why.sentence}."
    )
    return [where, how]


def _perplexity(loss: float) -> str:
    return f"{math.exp(loss):.3g}" if loss < 700 else "beyond all numbers"


def _best(rows: Sequence[Row]) -> str:
    """Whether more context helps the same tokens."""
    known = [row for row in rows if row["loss"] is not None]
    if len(known) < 2:
        return ""
    best, last = min(known, key=lambda row: row["loss"]), known[-1]
    if last["change"] is None or last["change_low"] is None:
        return ""
    told = f"{last['change']:+.3f} nats a token at {last['length']} tokens against {known[0]['length']}"
    if last["change_low"] > 0:
        return f"More context hurts the same tokens: {told}; they lose least at {best['length']}."
    if last["change_high"] < 0:
        return f"More context helps the same tokens: {told}."
    return f"More context neither helps nor hurts the same tokens beyond chance: {told}."


def _shifted(rows: Sequence[Row]) -> str:
    if len(rows) < 2 or rows[0]["loss"] is None:
        return ""
    worst = max(rows[1:], key=lambda row: math.inf if row["difference"] is None else row["difference"])
    if worst["difference"] is None:
        return f"The same passage alone has a loss that is no number at position {worst['first']}."
    if worst["low"] is not None and worst["low"] > TOLERATED_RISE * rows[0]["loss"]:
        return f"The same passage alone loses {worst['difference']:.3g} nats a token more at position {worst['first']} than at 0."
    if all(row["largest"] is not None and row["largest"] < ROUNDING for row in rows):
        return f"The same passage alone loses the same at every position up to {rows[-1]['first']}, up to rounding."
    return f"The same passage alone is as well at every position up to {rows[-1]['first']} (at most {max(0.0, worst['difference']):.2g} nats a token more)."


def _retrieval(found: Row) -> str:
    rows = found.get("lengths", [])
    if not rows:
        return ""
    known = [row["length"] for row in rows if row["low"] > found["chance"]]
    chance = f"chance {found['chance']:.0%}"
    if not known:
        return f"Retrieval is not told from {chance} at any length: it says nothing here."
    shares = ", ".join(f"{row['share']:.0%} at {row['length']}" for row in rows)
    return f"Retrieval: {shares} ({chance}); above chance up to {max(known)} tokens."


def _pairs(rows: Sequence[Row]) -> str:
    return " ".join(f"{row['sentence'][0].upper()}{row['sentence'][1:]}." for row in rows)


def _drift(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    wrong = [row for row in rows if row["beyond"]]
    if wrong:
        worst = wrong[-1]
        largest = "no number" if worst["largest"] is None else f"{worst['largest']:.3g}"
        return f"A cache gives other logits than one pass: {largest} apart at {worst['length']} tokens, and rounding allows {worst['allowed']:.2g}."
    if any(row["allowed"] is None for row in rows):
        return ""
    return "A cache gives the logits of one pass, up to rounding, at every length."
