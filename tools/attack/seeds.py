"""Valid data that inputs are made of: configs of real models, a tiny checkpoint, a lab model, results."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

CLONE = Path(__file__).resolve().parent.parent.parent
for place in ("tests", "tests/rope", "tests/checkpoints"):
    if str(CLONE / place) not in sys.path:
        sys.path.append(str(CLONE / place))


def real_configs() -> dict[str, dict[str, Any]]:
    """The keys about positions of real configs, by the model's name."""
    found: dict[str, dict[str, Any]] = importlib.import_module("real_configs").REAL
    return found


def checkpoint(folder: Path, family: str = "llama", **more: Any) -> Path:
    """A tiny checkpoint of transformers with random weights."""
    made = importlib.import_module("tiny_models").build(family, **more)
    made.save_pretrained(folder)
    return folder


def lab_model(folder: Path, spec: str = "rope") -> Path:
    """A tiny model of the lab."""
    from milepost.lab.checkpoint import save
    from milepost.lab.model import Decoder, Shape

    return save(Decoder(Shape(vocabulary=32, layers=2, width=32, heads=2, length=16), spec).start(0), folder)


def lab_results() -> dict[str, Any]:
    """A small results.json: some runs of those that the package brings."""
    import milepost

    held = json.loads((Path(milepost.__file__).parent / "measured/lab.json").read_text())
    keep = [run for run in held["runs"] if run["encoding"] in ("rope", "alibi", "nope")][:6]
    seen = {(run["encoding"], run["strategy"], run["seed"]) for run in keep}
    held["runs"] = keep
    held["comparisons"] = [c for c in held["comparisons"] if (c["encoding"], c["strategy"], c["seed"]) in seen][:12]
    return held


def gguf_file(folder: Path) -> Path:
    """A GGUF file of a tiny Llama."""
    from tiny_models import build  # type: ignore[import-not-found]

    return Path(importlib.import_module("gguf_llama").write_llama(build("llama"), folder / "seed.gguf"))
