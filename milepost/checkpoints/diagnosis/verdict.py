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
    trained: int | None, rows: int | None, longest: int, failure: Onset | None, cause: Cause | None, measured: Row
) -> list[str]:
    """The sentences of a verdict.

    ``rows`` of its table were really trained, where that is fewer; ``measured`` are a Diagnosis's rows.
    """
    by_length, known = measured["loss_by_length"], _trained(trained, rows)
    first = [_holds(known, longest, by_length)] if failure is None or cause is None else _fails(known, failure, cause)
    pairs = " ".join(f"{row['sentence'][0].upper()}{row['sentence'][1:]}." for row in measured["pairs"])
    rest = (_shifted(measured["shifted"]), _retrieval(measured["retrieval"]), pairs, _drift(measured["drift"]))
    return [sentence for sentence in (*first, _best(by_length), *rest) if sentence]


def _trained(trained: int | None, rows: int | None) -> str:
    if trained is None:
        return "its trained length is not known"
    return (
        f"it was trained on {trained}"
        if rows is None
        else f"it declares {trained}, and its table looks trained to about {rows}"
    )


def _holds(known: str, longest: int, rows: Sequence[Row]) -> str:
    tested = f"{longest} tokens, the most that was tested ({known})"
    if any(row["change_low"] is not None and row["change_low"] > TOLERATED_RISE * rows[0]["loss"] for row in rows):
        return (
            f"No stretch of positions fails by itself up to {tested}, but the same tokens do have a higher loss at "
            "longer lengths."
        )
    return f"The model reads well up to at least {tested}: no stretch of positions is worse than those before."


def _fails(known: str, failure: Onset, cause: Cause) -> list[str]:
    start, low, top = failure.start, failure.baseline, failure.top
    where = f"The model fails from about token {start} on ({known}): its effective length is {start} tokens."
    if not math.isfinite(top):
        return [where, f"There the loss is not a number. Likely cause: {cause.sentence}."]
    rise = (
        f"The loss rises from {low:.2f} to {top:.2f} nats a token (perplexity {_perplexity(low)} to {_perplexity(top)})"
    )
    return [where, f"{rise}, half of that within {failure.within} tokens. Likely cause: {cause.sentence}."]


def _perplexity(loss: float) -> str:
    return f"{math.exp(loss):.3g}" if loss < 700 else "too large to write"


def _best(rows: Sequence[Row]) -> str:
    """Whether more context helps the same tokens."""
    known = [row for row in rows if row["loss"] is not None]
    if len(known) < 2:
        return ""
    best, last = min(known, key=lambda row: row["loss"]), known[-1]
    if last["change"] is None or last["change_low"] is None:
        return ""
    change = f"{last['change']:+.3f} nats a token at {last['length']} tokens against {known[0]['length']}"
    if last["change_low"] > 0:
        return f"More context hurts the same tokens: {change}; their loss is lowest at {best['length']}."
    if last["change_high"] < 0:
        return f"More context helps the same tokens: {change}."
    return f"More context neither helps nor hurts the same tokens beyond chance: {change}."


def _shifted(rows: Sequence[Row]) -> str:
    if len(rows) < 2 or rows[0]["loss"] is None:
        return ""
    worst = max(rows[1:], key=lambda row: math.inf if row["difference"] is None else row["difference"])
    if worst["difference"] is None:
        return f"The loss of the same passage alone is not a number at position {worst['first']}."
    if worst["low"] is not None and worst["low"] > TOLERATED_RISE * rows[0]["loss"]:
        rise = f"{worst['difference']:.3g} nats a token higher at position {worst['first']} than at 0"
        return f"The loss of the same passage alone is {rise}."
    if all(row["largest"] is not None and row["largest"] < ROUNDING for row in rows):
        return (
            f"The loss of the same passage alone is the same at every position up to {rows[-1]['first']}, up to "
            "rounding."
        )
    most = f"at most {max(0.0, worst['difference']):.2g} nats a token higher"
    return f"The same passage alone is read as well at every position up to {rows[-1]['first']} ({most})."


def _retrieval(retrieval: Row) -> str:
    rows = retrieval.get("lengths", [])
    if not rows:
        return ""
    known = [row["length"] for row in rows if row["low"] > retrieval["chance"]]
    chance = f"chance {retrieval['chance']:.0%}"
    if not known:
        return f"Retrieval can't be told from {chance} at any length: it proves nothing here."
    shares = ", ".join(f"{row['share']:.0%} at {row['length']}" for row in rows)
    return f"Retrieval: {shares} ({chance}); above chance up to {max(known)} tokens."


def _drift(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    wrong = [row for row in rows if row["beyond"]]
    if wrong:
        worst = wrong[-1]
        apart = "not a number" if worst["largest"] is None else f"{worst['largest']:.3g} apart"
        at = f"at {worst['length']} tokens, and rounding allows {worst['allowed']:.2g}"
        return f"A cache gives other logits than one pass: {apart} {at}."
    if any(row["allowed"] is None for row in rows):
        return ""
    return "A cache gives the logits of one pass, up to rounding, at every length."
