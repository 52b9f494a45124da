"""The swap: what a migration makes of its source, before anything is tuned.

rope, alibi, nope have one way each. A longer table has three (see `longer_table`): all are measured on the text, each
as it is, without tuning. The one with the lowest loss up to the new length, on the half that is tuned on, is taken;
the other half gives the losses that are reported.
"""

from __future__ import annotations

import math
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
from milepost.checkpoints.migration.losses import MigrationLosses
from milepost.checkpoints.migration.proof import prove, unused
from milepost.checkpoints.migration.reference import flat_from
from milepost.checkpoints.migration.source import Origin
from milepost.checkpoints.migration.targets import to_falcon, to_gpt2, to_neox, to_smollm3, with_table
from milepost.checkpoints.model.load import load
from milepost.checkpoints.model.probe import Check


@dataclass(frozen=True)
class Swap:
    """The new model; its new table (offset + rows, C) if it has one, and how many of its first rows are old ones."""

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
    table, rows_kept = torch.zeros_like(old), 0
    if to != "nope":
        assert method is not None
        table = longer_table.longer(old, length, method, offset=offset)
        rows_kept = offset + longer_table.rows_kept(len(old) - offset, method)
    model = to_gpt2(origin.body(), table) if origin.family == "lab" else with_table(origin.model, table)
    return Swap(model, table, method, rows_kept)


def choose_table(
    origin: Origin, length: int, measured: MigrationLosses, device: str, tell: Callable[[str], None]
) -> tuple[Swap, list[dict[str, Any]]]:
    """Every way to a longer table, measured; and the best of them."""
    rows, swaps = [], {}
    for method in longer_table.METHODS:
        tell(f"measuring a table made longer by {method}")
        swaps[method] = swap(origin, "longer-table", length, method)
        with tempfile.TemporaryDirectory() as place:
            save(swaps[method].model, origin.dtype, Path(place) / "model")
            subject = load(Path(place) / "model", device=device)
            choosing, losses = measured.choosing(subject, length), measured.losses(subject)
        kept, known = longer_table.rows_kept(origin.length, method), math.isfinite(choosing)
        row = {"method": method, "kept": kept, "choosing": choosing if known else None}
        rows.append({**row, **measured.inside_and_past(losses)})
    best = min(rows, key=lambda row: math.inf if row["choosing"] is None else row["choosing"])["method"]
    return swaps[best], [{**row, "written": row["method"] == best} for row in rows]


def prove_swap(origin: Origin, made: Swap, to: str, length: int) -> list[Check]:
    """Both proofs by logits, and that the old table is gone. ProofError where one fails: then nothing is written."""
    checks = prove(origin, made.model, to, made.table)
    if to == "longer-table":
        checks.append(_check_kept(origin, made))
    elif origin.added:
        checks.append(unused(origin, made.model, lambda: swap(origin, to, length).model))
    for check in checks:
        if check.verdict == "FAIL":
            raise ProofError(f"{check.name}: {check.sentence}; nothing is written")
    return checks


def _check_kept(origin: Origin, made: Swap) -> Check:
    assert made.table is not None
    changed = int((made.table[: made.kept] != origin.table()[0][: made.kept]).any(-1).sum())
    if changed:
        return Check("rows kept", "FAIL", f"{changed} of the first {made.kept} rows differ", changed, 0.0, None, "rows")
    words = f"the first {made.kept} rows are bit by bit those of the old table, and stay so while the others are tuned"
    return Check("rows kept", "PASS", words, 0, 0.0, None, "rows")


def notes(origin: Origin, to: str, length: int) -> list[str]:
    """What the reader of the result should know."""
    if to == "alibi":
        body = origin.body()
        return [
            f"Falcon divides ALiBi by sqrt(D) = {body.head_dim**0.5:g}, and rounds slope x key to bfloat16: the model "
            f"was tuned in that form, and from key {flat_from(body.heads)} on some neighbouring keys have one bias",
            "transformers' eager attention of Falcon adds ALiBi twice: load the model with sdpa, which is the default",
        ]
    if to == "nope" and origin.added:
        return [
            f"a table of zeros is no position, but it still ends: {origin.length} tokens are the most that this model "
            "can read; rope and alibi have no end"
        ]
    if to == "nope":
        return ["written as a SmolLM3 none of whose layers turns: the causal mask alone tells what came before"]
    if to == "longer-table":
        return [f"the new table ends too: {length} tokens are the most that this model can read"]
    return []
