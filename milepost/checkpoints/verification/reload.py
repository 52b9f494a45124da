"""Save, reload, verify again: what is in memory is what the next one loads.

The model is written to a temporary folder and loaded from there. Its config must mean the same positions, its live
frequencies (and bias) must pass again, and its logits must be those of the model in memory: a table that was spoiled in
memory, or a config changed after loading, heals on reload, and so shows.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from milepost.checkpoints.model.probe import Case, Check, apart
from milepost.checkpoints.verification.bias import biases
from milepost.checkpoints.verification.frequencies import frequencies
from milepost.measure.folder import saving
from milepost.rope.config.files import load
from milepost.rope.engines.parity import differences


def reload(case: Case) -> list[Check]:
    """One check for the config, the tables and the logits of a saved and reloaded model."""
    needed = sum(p.numel() * p.element_size() for p in case.model.parameters())
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if needed * 1.1 > free:
        return [
            Check(
                "reload",
                "NONE",
                f"there is no room to save the model: {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free in "
                f"{tempfile.gettempdir()}",
            )
        ]
    with tempfile.TemporaryDirectory(prefix="milepost-verify-") as folder:
        with saving("the model", Path(folder)):
            case.model.save_pretrained(folder, safe_serialization=True)
        how: dict[str, Any] = {
            "dtype": case.dtype,
            "local_files_only": True,
            "use_safetensors": True,
            "attn_implementation": case.model.config._attn_implementation,
        }
        model = type(case.model).from_pretrained(folder, **how).to(case.device).eval()
        again = Case(model, dict(load(Path(folder) / "config.json")))
    if case.spec is not None and again.spec is not None and (changes := differences(case.spec, again.spec)):
        return [
            Check(
                "reload",
                "FAIL",
                f"the saved config means other positions: {changes[0].sentence('before', 'after')}",
                float(len(changes)),
                0.0,
                unit="differences",
            )
        ]
    failed = [check for check in (*frequencies(again), *biases(again)) if check.verdict == "FAIL"]
    if failed:
        return [Check("reload", "FAIL", f"saved and loaded again, {failed[0].name} fails: {failed[0].sentence}")]
    off = apart(again.logits(case.text, **({"input_ids": case.source} if case.both else {})), case.logits(case.text))
    return [
        case.judge_logits(
            "reload",
            off,
            "saved and loaded again: the same positions by its config, the same live tables, the same logits",
            "saved and loaded again, the model gives other logits: memory and files differ (a table spoiled, "
            "or a config changed, after loading)",
        )
    ]
