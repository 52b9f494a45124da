"""The swap: what a migration makes of its source, before anything is tuned.

rope, alibi, nope have one way each. A longer table has three (see `longer_table`): all are measured on the text, each as it is, without tuning, and the one
with the least loss up to the new length, on the half that is tuned on, is taken; the other half says what each loses.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from milepost.checkpoints.layout_conversion.proof import ProofError
from milepost.checkpoints.migration import longer_table
from milepost.checkpoints.migration.folder import save
from milepost.checkpoints.migration.losses import Measured
from milepost.checkpoints.migration.proof import prove, unused
from milepost.checkpoints.migration.reference import flat_from
from milepost.checkpoints.migration.source import Origin
from milepost.checkpoints.migration.targets import to_falcon, to_gpt2, to_neox, to_smollm3, with_table
from milepost.checkpoints.model.load import load
from milepost.checkpoints.model.probe import Check


@dataclass(frozen=True)
class Swap:
    """The new model, its new table (offset + rows, C) if it has one, and how many of its first rows are the old ones."""

    model: Any
    table: Tensor | None = None
    method: str | None = None
    kept: int = 0


def swap(origin: Origin, to: str, length: int, method: str | None = None) -> Swap:
    """The source with other positions, for ``length`` tokens."""
    if to == "rope":
        return Swap(to_neox(origin.body(), length))
    if to == "alibi":
        return Swap(to_falcon(origin.body(), length))
    if not origin.added:
        return Swap(to_smollm3(origin.model))
    old, offset = origin.table()
    if to == "nope":
        table, kept = torch.zeros_like(old), 0
    else:
        assert method is not None
        table, kept = (
            longer_table.longer(old, length, method, offset=offset),
            offset + longer_table.kept(len(old) - offset, method),
        )
    return Swap(
        to_gpt2(origin.body(), table) if origin.family == "lab" else with_table(origin.model, table),
        table,
        method,
        kept,
    )


def compared(
    origin: Origin, length: int, measured: Measured, device: str, tell: Callable[[str], None]
) -> tuple[Swap, list[dict[str, Any]]]:
    """Every way to a longer table, measured; and the best of them."""
    rows, swaps = [], {}
    for method in longer_table.METHODS:
        tell(f"measuring a table made longer by {method}")
        swaps[method] = swap(origin, "longer-table", length, method)
        with tempfile.TemporaryDirectory() as place:
            save(swaps[method].model, origin.dtype, Path(place) / "model")
            subject = load(Path(place) / "model", device=device)
            chosen_by, lost = measured.choosing(subject, length), measured.losses(subject)
        rows.append(
            {
                "method": method,
                "kept": longer_table.kept(origin.length, method),
                "choosing": chosen_by,
                **measured.in_and_past(lost),
            }
        )
    best = min(rows, key=lambda row: row["choosing"] if row["choosing"] == row["choosing"] else float("inf"))["method"]
    return swaps[best], [
        {
            **row,
            "written": row["method"] == best,
            "choosing": row["choosing"] if row["choosing"] == row["choosing"] else None,
        }
        for row in rows
    ]


def proofs(origin: Origin, made: Swap, to: str, length: int) -> list[Check]:
    """Both proofs by logits, and that the old table is gone. ProofError where one fails: then nothing is written."""
    found = prove(origin, made.model, to, made.table)
    if to == "longer-table":
        found.append(_kept(origin, made))
    elif origin.added:
        found.append(unused(origin, made.model, lambda: swap(origin, to, length).model))
    wrong = [check for check in found if check.verdict == "FAIL"]
    if wrong:
        raise ProofError(f"{wrong[0].name}: {wrong[0].sentence}; nothing is written")
    return found


def _kept(origin: Origin, made: Swap) -> Check:
    assert made.table is not None
    old = origin.table()[0]
    off = int((made.table[: made.kept] != old[: made.kept]).any(-1).sum())
    words = f"the first {made.kept} rows are bit by bit those of the old table, and stay so while the others are tuned"
    return Check(
        "rows kept",
        "PASS" if off == 0 else "FAIL",
        words if off == 0 else f"{off} of the first {made.kept} rows differ",
        off,
        0.0,
        None,
        "rows",
    )


def notes(origin: Origin, to: str, length: int) -> list[str]:
    """What the reader of the result should know."""
    if to == "alibi":
        body = origin.body()
        return [
            f"Falcon divides ALiBi by sqrt(D) = {body.head_dim**0.5:g}, and rounds slope x key to bfloat16: the model was tuned in that form, and from key "
            f"{flat_from(body.heads)} on some neighbouring keys have one bias",
            "transformers' eager attention of Falcon adds ALiBi twice: load the model with sdpa, which is the default",
        ]
    if to == "nope" and origin.added:
        return [
            f"a table of zeros is no position, but it still ends: {origin.length} tokens are the most that this model can read; rope and alibi have no end"
        ]
    if to == "nope":
        return ["written as a SmolLM3 none of whose layers turns: the causal mask alone tells what came before"]
    if to == "longer-table":
        return [f"the new table ends too: {length} tokens are the most that this model can read"]
    return []
