"""model.json of a lab model: inspected, and loaded with the weights beside it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from milepost.checkpoints import inspect
from milepost.lab.checkpoint import load
from tools.attack.mutation import as_json, changed, damaged
from tools.attack.seeds import lab_model

WORDS = (
    "shape", "encodings", "layers", "width", "heads", "length", "vocabulary", "rope", "rope(base=0)", "alibi + rope",
    "learned(length=1000000000)", "rope(head_dim=1099511627776)", "rope(scaling=yarn(factor=4.0, trained=16))", "t5",
    "self_extend(rope=rope)", "os:system", "learned(length='x')", "rope(scaling=3)", "alibi(heads=[])",
)  # fmt: skip


def prepare(folder: Path) -> Any:
    """Two models: one that turns, one with a table."""
    return [lab_model(folder / spec, spec) for spec in ("rope", "learned")]


def attack(state: Any, rng: random.Random) -> None:
    """One model.json."""
    folder = rng.choice(state)
    right = json.loads((folder / "right.json").read_text()) if (folder / "right.json").exists() else None
    if right is None:
        right = json.loads((folder / "model.json").read_text())
        (folder / "right.json").write_text(json.dumps(right))
    raw = as_json(changed(right, rng, WORDS))
    (folder / "model.json").write_bytes(damaged(raw, rng) if rng.random() < 0.1 else raw)
    inspect(folder, target_length=rng.choice((None, 64, 2**40)), weights=rng.random() < 0.5, allow_unknown=True)
    load(folder)
