"""results.json of a lab run: the report drawn of it, two runs compared, and a choice made of it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from milepost.lab import report
from milepost.lab.report.read import joined, load_all
from tools.attack.mutation import as_json, changed, damaged
from tools.attack.seeds import lab_results


def prepare(folder: Path) -> Any:
    """A run, and a place for the attacked one."""
    right = lab_results()
    for name in ("right", "wrong"):
        (folder / name).mkdir()
        (folder / name / "results.json").write_text(json.dumps(right))
    return right, folder


def attack(state: Any, rng: random.Random) -> None:
    """One results.json."""
    right, folder = state
    raw = as_json(changed(right, rng, ("text", "image", "video", "rope", "none", "loss", "length", "low", "high")))
    (folder / "wrong" / "results.json").write_bytes(damaged(raw, rng) if rng.random() < 0.05 else raw)
    results = report.load(folder / "wrong")
    made = report.document(results)
    made.html()
    made.markdown()
    made.terminal()
    report.document(joined(load_all([folder / "right", folder / "wrong"])))
