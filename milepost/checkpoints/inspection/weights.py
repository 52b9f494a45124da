"""What the tensors say that the config does not: how far a table was trained, buckets out of line, frequencies that
were saved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from milepost.checkpoints.files import StoredTensor, ending, values
from milepost.checkpoints.inspection.buckets import Outlier, outliers
from milepost.checkpoints.inspection.families import BIASES
from milepost.checkpoints.inspection.parts import Length, Positions
from milepost.checkpoints.inspection.trained_rows import TrainedRows, trained_rows
from milepost.rope import RopeSpec

ROUNDED = 2.0**-8
"""bfloat16 keeps 8 bits: what differs by more was not only rounded."""


@dataclass(frozen=True)
class WeightFindings:
    """What was read: a table's rows, buckets out of line, saved frequencies that differ as (name, relative difference).

    ``notes`` are warnings; ``word`` is said where there was nothing to read.
    """

    tables: tuple[TrainedRows, ...] = ()
    buckets: tuple[Outlier, ...] = ()
    frequencies: tuple[tuple[str, float], ...] = ()
    read: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    word: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {
            "tables": [one.to_json() for one in self.tables],
            "buckets": [one.to_json() for one in self.buckets],
        }


def read_weights(
    positions: Positions, tensors: Mapping[str, StoredTensor], spec: RopeSpec | None
) -> tuple[WeightFindings, Positions]:
    """What the tensors say; and the positions, with the trained length put right where a table shows another."""
    tables, positions = _tables(positions, tensors)
    parts = [tables, _buckets(positions, tensors), _frequencies(tensors, spec)]
    joined = {
        name: tuple(one for part in parts for one in getattr(part, name))
        for name in ("tables", "buckets", "frequencies", "read", "notes")
    }
    made = WeightFindings(**joined)  # type: ignore[arg-type]
    if not made.read and not made.notes:
        made = replace(
            made, word="no tensor of this checkpoint holds positions: they are computed, from the config alone"
        )
    return made, positions


def _numbers(held: StoredTensor, notes: list[str]) -> Any:
    """The tensor's numbers; None, and a word, where they are quantised."""
    if held.plain:
        return values(held)
    notes.append(f"{held.name} is quantised ({held.dtype}): its numbers are not decoded, so nothing is said about them")
    return None


def _tables(positions: Positions, tensors: Mapping[str, StoredTensor]) -> tuple[WeightFindings, Positions]:
    results: list[TrainedRows] = []
    read: list[str] = []
    notes: list[str] = []
    for table in positions.tables:
        if (
            table.tensor is None or table.grid is not None
        ):  # patches lie in a plane: no row of an image's table goes without training
            continue
        whole = _numbers(tensors[table.tensor], notes)
        if whole is None:
            continue
        read.append(table.tensor)
        seen = trained_rows(whole.reshape(table.rows, -1)[table.offset :], positions.init)
        results.append(seen)
        if seen.trained < seen.usable:
            notes.append(seen.sentence)
            positions = replace(positions, trained=Length(seen.trained, f"the table itself: {table.tensor}"))
    return WeightFindings(tuple(results), read=tuple(read), notes=tuple(notes)), positions


def _buckets(positions: Positions, tensors: Mapping[str, StoredTensor]) -> WeightFindings:
    results: list[Outlier] = []
    read: list[str] = []
    notes: list[str] = []
    for held, stack, layer, turned in _biases(positions, tensors):
        table = _numbers(held, notes)
        if table is None or table.dim() != 2:
            continue
        read.append(held.name)
        table = table.T if turned else table
        some, word = outliers(
            table, both_sides=bool(layer.both_sides), max_distance=layer.max_distance or 128, stack=stack
        )
        results += some
        notes += [one.sentence for one in some]
        if word:
            notes.append(f"{held.name}: {word}")
    return WeightFindings(buckets=tuple(results), read=tuple(read), notes=tuple(notes))


def _biases(positions: Positions, tensors: Mapping[str, StoredTensor]) -> list[tuple[StoredTensor, str, Any, bool]]:
    """Every table of buckets: the tensor, its stack, a layer that uses it, and whether heads come first (the lab's)."""
    layers = [layer for layer in positions.layers if "t5" in layer.scheme.split(" + ")]
    if not layers:
        return []
    made: list[tuple[StoredTensor, str, Any, bool]] = []
    for held in ending(tensors, *BIASES):
        stack = "decoder" if held.name.startswith(("decoder.", "dec.")) else "encoder"
        layer = next((candidate for candidate in layers if candidate.stack == stack), None)
        if layer is not None:
            made.append((held, stack, layer, False))
    for held in ending(tensors, "enc.table"):
        number = int(held.name.split(".")[1]) if held.name.split(".")[1].isdigit() else -1
        layer = next((candidate for candidate in layers if candidate.layer == number), None)
        if layer is not None and held.shape[-1] == layer.buckets:
            made.append((held, f"layer {number}", layer, True))
    return made


def _frequencies(tensors: Mapping[str, StoredTensor], spec: RopeSpec | None) -> WeightFindings:
    """Old checkpoints hold inv_freq.

    Engines of today compute it anew, so a difference means that config and weights disagree.
    """
    if spec is None:
        return WeightFindings()
    notes: list[str] = []
    differ, read = [], []
    for held in ending(tensors, "rotary_emb.inv_freq"):
        saved = _numbers(held, notes)
        known = [
            rope.plain().frequencies
            for rope in spec.ropes().values()
            if rope.rotary // 2 == (0 if saved is None else saved.numel())
        ]
        if saved is None or not known:
            continue
        read.append(held.name)
        apart = min(
            max(abs(a - b) / b for a, b in zip(saved.flatten().tolist(), table, strict=True)) for table in known
        )
        if apart > ROUNDED:
            differ.append((held.name, apart))
    if differ:
        name, apart = differ[0]
        notes.append(
            f"{len(differ)} saved tables of frequencies differ from what the config means, {name} by {100 * apart:.3g} "
            "%: engines follow the config"
        )
    return WeightFindings(frequencies=tuple(differ), read=tuple(read), notes=tuple(notes))
