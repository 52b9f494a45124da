"""The measures of a diagnosis as rows of plain data.

Each is a page of `milepost.measure`, applied to one loaded checkpoint and one text.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from milepost.checkpoints.diagnosis.needle import Needles, make_needles
from milepost.checkpoints.diagnosis.plan import QUERIES, STEPPED, WATCHED, DiagnosisPlan, Reader
from milepost.checkpoints.model.probe import WHOLE, finite, other_precision
from milepost.checkpoints.model.quiet import first_line
from milepost.checkpoints.model.text import Text
from milepost.measure.attention import average, statistics, to_rows
from milepost.measure.drift import drift
from milepost.measure.intervals import Numbers, difference
from milepost.measure.losses import by_position, loss_row, same_targets, token_losses, with_first_token
from milepost.measure.onset import Onset, onset
from milepost.measure.retrieval import LEAST_HAYSTACK, Cell, pool_depths, retrieval, room
from milepost.measure.shifted import shifted

Row = dict[str, Any]


@dataclass(frozen=True)
class Windows:
    """The windows that all measures share, ``tokens`` (windows x longest + 1), and what a bootstrap draws."""

    tokens: Numbers
    groups: Numbers
    begin: int | None
    bytes_per_token: float | None

    @staticmethod
    def of(text: Text, plan: DiagnosisPlan) -> Windows:
        """The windows of a plan; ValueError where the text is too short for two of them."""
        return Windows(*text.windows(plan.longest, plan.windows), text.begin, text.bytes_per_token)

    def row(self, length: int, losses: Numbers, groups: Numbers) -> Row:
        """The loss at a length, in every unit."""
        row = loss_row(losses, groups)
        known = row["loss"] is not None and self.bytes_per_token is not None
        return {
            "length": length,
            **row,
            "bits_per_byte": row["loss"] / math.log(2) / self.bytes_per_token if known else None,
        }


def loss_by_position(
    reader: Reader, plan: DiagnosisPlan, windows: Windows
) -> tuple[list[Numbers], list[Row], Onset | None]:
    """Losses by position, as numbers and as rows; and where they fail."""
    reader.begin("loss by position")
    losses = by_position(reader, windows.tokens, plan.edges, length_dependent=plan.length_dependent)
    rows = [
        {"start": start, "end": end, **loss_row(bucket, windows.groups)}
        for (start, end), bucket in zip(plan.edges, losses, strict=True)
    ]
    reader.begin("reading again what fails")
    failure = onset(
        lambda cut: token_losses(reader, cut), windows.tokens, losses, plan.edges, windows.groups, plan.home,
        windows.begin,
    )  # fmt: skip
    return losses, rows, failure


def loss_by_length(reader: Reader, plan: DiagnosisPlan, windows: Windows, longest: Sequence[Numbers]) -> list[Row]:
    """The same last tokens with more and more context. The pass over the ``longest`` length is there already."""
    reader.begin("the same tokens, more context")
    rows: list[Row] = []
    shortest = np.zeros(0)
    for length in plan.lengths:
        if length == plan.longest and not plan.length_dependent:
            losses = np.concatenate(longest, axis=1)[:, -plan.targets :]
        else:
            losses = same_targets(reader, windows.tokens, length, plan.targets, begin=windows.begin)
        shortest = shortest if rows else losses
        rows.append({**windows.row(length, losses, windows.groups), **change_of(shortest, losses, windows.groups)})
    return rows


def change_of(shortest: Numbers, losses: Numbers, groups: Numbers) -> Row:
    """How the loss of the same tokens changed from the shortest length; nulls for that length itself."""
    change: Row = dict.fromkeys(("value", "low", "high"))
    if losses is not shortest and np.isfinite(losses - shortest).all():
        change = difference(shortest, losses, groups).to_json()
    return {"change": change["value"], "change_low": change["low"], "change_high": change["high"]}


def disjoint_losses(reader: Reader, plan: DiagnosisPlan, windows: Windows, longest: Sequence[Numbers]) -> list[Row]:
    """The first half of the windows cut into pieces of each length: the same tokens, some with hardly any context."""
    reader.begin("windows without overlap")
    half = max(1, len(windows.tokens) // 2)
    tokens, groups = windows.tokens[:half], windows.groups[:half]
    rows = []
    for length in plan.lengths:
        count = plan.longest // length
        if length == plan.longest and not plan.length_dependent:
            losses = np.concatenate(longest, axis=1)[:half]
        else:
            cut = np.concatenate([tokens[:, n * length : (n + 1) * length + 1] for n in range(count)])
            losses = token_losses(reader, with_first_token(cut, windows.begin))
        rows.append(windows.row(length, losses, np.tile(groups, count)))
    return rows


def shifted_losses(reader: Reader, plan: DiagnosisPlan, windows: Windows) -> list[Row]:
    """One passage at other positions; nothing where the model takes none."""
    if len(plan.firsts) < 2:
        return []
    reader.begin("the same passage elsewhere")
    passage = windows.tokens[:, : plan.passage + 1]
    return [
        {
            "first": shift.first, "loss": finite(shift.loss.value), "difference": finite(shift.difference.value),
            "low": finite(shift.difference.low), "high": finite(shift.difference.high),
            "largest": finite(shift.largest), "tokens": shift.loss.tokens, "passage": plan.passage,
        }
        for shift in shifted(reader.losses, passage, plan.firsts, windows.groups, reader.device)
    ]  # fmt: skip


def retrieval_by_depth(reader: Reader, plan: DiagnosisPlan, windows: Windows, text: Text) -> tuple[Row, list[str]]:
    """Retrieval by depth and length; and a note about lengths that were too short to ask at."""
    hays = windows.tokens[: plan.trials]
    needles = make_needles(reader.subject, text, hays, len(plan.depths), plan.lengths[0])
    fits = [n for n in plan.lengths if room(needles.build(0, 0), n) >= LEAST_HAYSTACK]
    short = ", ".join(str(n) for n in plan.lengths if n not in fits)
    notes = [f"retrieval is not asked at {short} tokens: needle and question leave no room for text"] if short else []
    reader.begin("retrieval")
    cells = retrieval(reader.last, hays, needles.build, fits, plan.depths, reader.device)
    return retrieval_row(needles, len(hays), cells, fits), notes


def retrieval_row(needles: Needles, trials: int, cells: Sequence[Cell], lengths: Sequence[int]) -> Row:
    """Retrieval as a diagnosis holds it."""
    return {
        "kind": needles.kind, "candidates": list(needles.candidates), "chance": 1 / len(needles.tokens),
        "trials": trials, "cells": [{"length": c.length, "depth": c.depth, **_share(c)} for c in cells],
        "lengths": [{"length": n, **_share(pool_depths(cells, n))} for n in lengths],
    }  # fmt: skip


def _share(cell: Cell) -> Row:
    right = cell.right
    interval = {"share": right.value, "low": right.low, "high": right.high, "trials": right.tokens}
    return {**interval, "margin": finite(cell.margin)}


def attention_by_head(reader: Reader, plan: DiagnosisPlan, windows: Windows) -> tuple[list[Row], list[str]]:
    """How far each head looks, in range and at the longest length; or a note with the reason why that can't be seen."""
    reader.begin("attention")
    rows: list[Row] = []
    for length in plan.watched_at:
        try:  # one window at a time: queries and keys of every layer may be held at once
            heads = average([_heads(reader, window[None, :length]) for window in windows.tokens[:WATCHED]])
        except ValueError as error:
            return rows, [f"attention is not shown: {error}"]
        if not all(math.isfinite(head.mean + head.entropy) for head in heads):
            return rows, [f"attention is not shown at {length} tokens: its weights are not numbers"]
        rows.append({"length": length, "heads": to_rows(heads)})
    return rows, []


def _heads(reader: Reader, window: Numbers) -> list[Any]:
    return [
        head
        for look in reader.looks(_tokens(reader, window))
        for head in statistics(
            *look[1:4], look.layer, scale=look.scale, window=look.window, queries=QUERIES, features=look.features
        )
    ]


def _tokens(reader: Reader, window: Numbers) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(window)).to(reader.device)


def drift_by_length(reader: Reader, plan: DiagnosisPlan, windows: Windows) -> tuple[list[Row], list[str]]:
    """Cached against uncached at every length; with what rounding may do, for models that float64 has room for."""
    reader.begin("cached against uncached")
    small = sum(p.numel() for p in reader.subject.model.parameters()) <= WHOLE
    notes = [] if small else ["drift has no limit here: the model is too large to be run in float64 beside"]
    rows: list[Row] = []

    def exact(ids: torch.Tensor) -> torch.Tensor:
        with other_precision(reader.subject.model):
            return reader.last(ids)

    for length in plan.lengths:
        ids = _tokens(reader, windows.tokens[:1, :length])
        try:
            measured = drift(reader.last, reader.continued, ids, STEPPED, exact if small else None)
        except (ValueError, RuntimeError, TypeError, NotImplementedError) as error:
            reason = f"the model can't go on from a cache ({first_line(error)})"
            return rows, [*notes, f"drift is not known at {length} tokens: {reason}"]
        rows.append({
            "length": length, "said": measured.stepped, "largest": finite(measured.largest),
            "divergence": finite(measured.divergence), "allowed": measured.allowed, "beyond": measured.beyond,
        })  # fmt: skip
    return rows, notes
