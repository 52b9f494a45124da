"""Measurements that were made before, a small file each: ~/.cache/milepost/families/hy_v4-<digest>.json.

The digest is of the config, the version of transformers and that of the measuring: another of these is measured anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from milepost.checkpoints.families.measure import MeasuredFamily, MeasuredLayer, MeasuredTurn
from milepost.checkpoints.files import kept

MEASURING = 2
"""Raised when what is measured changes."""


def folder() -> Path:
    """Where they are."""
    return kept.folder("families")


def file_of(config: Mapping[str, Any], version: str) -> Path:
    """The file of one config under one version of transformers."""
    text = json.dumps([MEASURING, version, config], sort_keys=True, default=str)
    name = "".join(c if c.isalnum() or c in "-_" else "_" for c in str(config.get("model_type", "")))[:64]
    return folder() / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def load(file: Path) -> MeasuredFamily | None:
    """A measurement, None where there is none or the file is damaged: it is made again then."""
    try:
        return from_json(kept.read(file))
    except (ValueError, TypeError, KeyError, IndexError):
        return None


def save(measured: MeasuredFamily, file: Path) -> None:
    """Write it whole, or not at all."""
    kept.write(file, to_json(measured))


def to_json(measured: MeasuredFamily) -> dict[str, Any]:
    """Plain data; layers alike are written once, and plain frequencies as their base."""
    kinds: list[dict[str, Any]] = []
    layers = []
    for layer in measured.layers:
        data = {key: value for key, value in asdict(layer).items() if key not in ("stack", "number")}
        for name in ("turn", "indexer"):
            if data[name] is not None and data[name]["base"] is not None:
                data[name] = {k: v for k, v in data[name].items() if k != "frequencies"}
        if data not in kinds:
            kinds.append(data)
        layers.append([layer.stack, layer.number, kinds.index(data)])
    stacks = list(dict.fromkeys(stack for stack, _, _ in layers))
    numbers = {stack: [[n, kind] for s, n, kind in layers if s == stack] for stack in stacks}
    about = {name: getattr(measured, name) for name in ("model_type", "name", "version", "added", "length")}
    return {**about, "tables": list(measured.tables), "notes": list(measured.notes), "kinds": kinds, "layers": numbers}


def from_json(data: Mapping[str, Any]) -> MeasuredFamily:
    """A measurement from its plain data."""
    kinds = [_layer(kind) for kind in data["kinds"]]
    layers = [
        MeasuredLayer(**{**kinds[kind], "stack": stack, "number": number})
        for stack, some in data["layers"].items()
        for number, kind in some
    ]
    about = {name: data[name] for name in ("model_type", "name", "version", "added", "length")}
    tables = tuple((str(name), int(rows), int(offset)) for name, rows, offset in data["tables"])
    return MeasuredFamily(**about, layers=tuple(layers), tables=tables, notes=tuple(data["notes"]))


def _layer(kind: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(kind)
    made["temperature"] = tuple((int(p), float(t)) for p, t in kind["temperature"])
    for name in ("turn", "indexer"):
        if kind[name] is not None:
            made[name] = _turn(kind[name])
    return made


def _turn(data: Mapping[str, Any]) -> MeasuredTurn:
    from milepost.spectrum import geometric

    known = data.get("frequencies")
    table = geometric(data["size"], data["base"]).frequencies if known is None else known
    return MeasuredTurn(**{**data, "frequencies": tuple(float(w) for w in table)})
