"""The measures of a diagnosis as plain rows: each is a page of `milepost.measure`, asked of one loaded checkpoint and one text."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from milepost.checkpoints.diagnosis.needle import needles
from milepost.checkpoints.diagnosis.plan import LOOKED_AT, QUERIES, SAID, Plan, Reader
from milepost.checkpoints.model.loaded import Loaded
from milepost.checkpoints.model.probe import WHOLE, cast
from milepost.checkpoints.model.text import Text
from milepost.measure import drift as drifting
from milepost.measure.attention import average, statistics, to_rows
from milepost.measure.intervals import difference, mean
from milepost.measure.losses import by_position, same_targets, token_losses, with_first_token
from milepost.measure.onset import Onset, onset
from milepost.measure.retrieval import LEAST_HAYSTACK, pool_depths, retrieval, room
from milepost.measure.shifted import shifted

Numbers = np.ndarray[Any, Any]
Row = dict[str, Any]


@dataclass(frozen=True)
class Read:
    """The windows that all measures share (windows x longest + 1), and what a bootstrap draws."""

    windows: Numbers
    groups: Numbers
    begin: int | None
    bytes_per_token: float | None

    @staticmethod
    def of(text: Text, plan: Plan) -> Read:
        """The windows of a plan; ValueError where the text is too short for two of them."""
        windows, groups = text.windows(plan.longest, plan.windows)
        return Read(windows, groups, text.begin, text.bytes_per_token)


def by_place(reader: Reader, plan: Plan, read: Read) -> tuple[list[Numbers], list[Row], Onset | None]:
    """Losses by position, as numbers and as rows; and where they fail."""
    reader.now("loss by position")
    lost = by_position(reader, read.windows, plan.edges, length_dependent=plan.length_dependent)
    rows = [{"start": a, "end": e, **_said(one, read)} for (a, e), one in zip(plan.edges, lost, strict=True)]
    reader.now("reading again what fails")
    failing = onset(
        lambda some: token_losses(reader, some), read.windows, lost, plan.edges, read.groups, plan.home, read.begin
    )
    return lost, rows, failing


def by_length(reader: Reader, plan: Plan, read: Read, lost: Sequence[Numbers]) -> list[Row]:
    """The same last tokens with more and more context. The pass over the longest length is there already."""
    reader.now("the same tokens, more context")
    rows, shortest = [], np.zeros(0)
    for length in plan.lengths:
        if length == plan.longest and not plan.length_dependent:
            found = np.concatenate(list(lost), axis=1)[:, -plan.targets :]
        else:
            found = same_targets(reader, read.windows, length, plan.targets, begin=read.begin)
        shortest = found if length == plan.lengths[0] else shortest
        change = None if not np.isfinite(found - shortest).all() else difference(shortest, found, read.groups)
        changes: Row = {"change": None, "change_low": None, "change_high": None}
        if change is not None and length != plan.lengths[0]:
            changes = {"change": change.value, "change_low": change.low, "change_high": change.high}
        rows.append({"length": length, **_said(found, read, units=True), **changes})
    return rows


def apart(reader: Reader, plan: Plan, read: Read, lost: Sequence[Numbers]) -> list[Row]:
    """The first half of the windows cut into pieces of each length: the same tokens, some of which have hardly any context."""
    reader.now("windows without overlap")
    half = max(1, len(read.windows) // 2)
    rows = []
    for length in plan.lengths:
        if length == plan.longest and not plan.length_dependent:
            found, groups = np.concatenate(list(lost), axis=1)[:half], read.groups[:half]
        else:
            count = plan.longest // length
            cut = np.concatenate([read.windows[:half, n * length : (n + 1) * length + 1] for n in range(count)])
            found, groups = token_losses(reader, with_first_token(cut, read.begin)), np.tile(read.groups[:half], count)
        rows.append({"length": length, **_said(found, read, groups, units=True)})
    return rows


def placed(reader: Reader, plan: Plan, read: Read) -> list[Row]:
    """One passage at other positions; nothing where the model takes none."""
    if len(plan.firsts) < 2:
        return []
    reader.now("the same passage elsewhere")
    rows = []
    for one in shifted(reader.losses, read.windows[:, : plan.passage + 1], plan.firsts, read.groups, reader.device):
        numbers = {
            "loss": one.loss.value,
            "difference": one.difference.value,
            "low": one.difference.low,
            "high": one.difference.high,
            "largest": one.largest,
        }
        rows.append(
            {"first": one.first, **{name: _finite(value) for name, value in numbers.items()}, "tokens": one.loss.tokens}
        )
    return rows


def found_again(reader: Reader, plan: Plan, read: Read, text: Text) -> tuple[Row, list[str]]:
    """Retrieval by depth and length; and the lengths that were too short to ask at."""
    made = needles(reader.subject, text, read.windows[: plan.trials], len(plan.depths), plan.lengths[0])
    fits = [n for n in plan.lengths if room(made.build(0, 0), n) >= LEAST_HAYSTACK]
    short = ", ".join(str(n) for n in plan.lengths if n not in fits)
    notes = [f"retrieval is not asked at {short} tokens: needle and question leave no room for text"] if short else []
    about = {
        "kind": made.kind,
        "candidates": list(made.candidates),
        "chance": 1 / len(made.tokens),
        "trials": min(plan.trials, len(read.windows)),
    }
    reader.now("retrieval")
    cells = retrieval(reader.last, read.windows[: plan.trials], made.build, fits, plan.depths, reader.device)
    rows = [{"length": c.length, "depth": c.depth, **_share(c)} for c in cells]
    return {**about, "cells": rows, "lengths": [{"length": n, **_share(pool_depths(cells, n))} for n in fits]}, notes


def _share(cell: Any) -> Row:
    return {
        "share": cell.right.value,
        "low": cell.right.low,
        "high": cell.right.high,
        "trials": cell.right.tokens,
        "margin": _finite(cell.margin),
    }


def looked(reader: Reader, plan: Plan, read: Read) -> tuple[list[Row], list[str]]:
    """How far each head looks, at home and at the longest length; or why that can't be seen."""
    reader.now("attention")
    found: list[Row] = []
    for length in plan.looked_at:
        texts = []
        try:
            for window in read.windows[:LOOKED_AT]:  # one by one: queries and keys of every layer may be held at once
                looks = reader.looks(torch.from_numpy(np.ascontiguousarray(window[None, :length])).to(reader.device))
                texts.append(
                    [
                        head
                        for look in looks
                        for head in statistics(
                            *look[1:4], look.layer, scale=look.scale, window=look.window, queries=QUERIES
                        )
                    ]
                )
        except ValueError as error:
            return found, [f"attention is not shown: {error}"]
        heads = average(texts)
        if not all(math.isfinite(head.mean + head.entropy) for head in heads):
            return found, [f"attention is not shown at {length} tokens: its weights are no numbers"]
        found.append({"length": length, "heads": to_rows(heads)})
    return found, []


def drifts(reader: Reader, plan: Plan, read: Read) -> tuple[list[Row], list[str]]:
    """Cached against uncached at every length; with what rounding may do, for models that float64 has room for."""
    reader.now("cached against uncached")
    subject = reader.subject
    rows: list[Row] = []
    small = sum(p.numel() for p in subject.model.parameters()) <= WHOLE
    notes = [] if small else ["drift has no limit to be held to: the model is too large to be run in float64 beside"]

    def exact(ids: torch.Tensor) -> torch.Tensor:
        with _other_precision(subject):
            return reader.last(ids)

    for length in plan.lengths:
        ids = torch.from_numpy(np.ascontiguousarray(read.windows[:1, :length])).to(reader.device)
        try:
            one = drifting.drift(reader.last, reader.continued, ids, SAID, exact if small else None)
        except (ValueError, RuntimeError, TypeError, NotImplementedError) as error:
            words = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
            return rows, [
                *notes,
                f"drift is not known at {length} tokens: the model can't go on from a cache ({words})",
            ]
        numbers = {"largest": _finite(one.largest), "divergence": _finite(one.divergence), "allowed": one.allowed}
        rows.append({"length": length, "said": one.stepped, **numbers, "beyond": one.beyond})
    return rows, notes


@contextlib.contextmanager
def _other_precision(subject: Loaded) -> Iterator[None]:
    """The model in float64; a float64 model in float32, in which some of its steps are anyway."""
    model = subject.model
    dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
    other = torch.float32 if dtype == torch.float64 else torch.float64
    if hasattr(model, "config"):
        with cast(model, other):
            yield
        return
    held = {name: value.clone() for name, value in model.state_dict().items()}
    try:
        model.to(other)
        yield
    finally:
        model.to(dtype)
        model.load_state_dict(held)


def _said(lost: Numbers, read: Read, groups: Numbers | None = None, *, units: bool = False) -> Row:
    """A mean with its interval; None where losses are no numbers."""
    if not np.isfinite(lost).all():
        none = dict.fromkeys(("loss", "low", "high", *(("perplexity", "bits_per_byte") if units else ())))
        return {**none, "tokens": 0, "note": "the loss is no number"}
    one = mean(lost, read.groups if groups is None else groups)
    found: Row = {"loss": one.value, "low": one.low, "high": one.high, "tokens": one.tokens}
    if units:
        found["perplexity"] = math.exp(one.value) if one.value < 700 else None
        found["bits_per_byte"] = (
            None if read.bytes_per_token is None else one.value / math.log(2) / read.bytes_per_token
        )
    return found


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
