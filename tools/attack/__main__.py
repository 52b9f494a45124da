"""`make attack`: all targets, each in a process of its own, then the kills; counts and findings; exit 1 on findings.

python -m tools.attack --inputs 100000 --kills 300
python -m tools.attack --only gguf_files --inputs 1 --seed 0 --first 1234    # one input again
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from typing import Any

SHARES = {
    "configs": 14, "families": 1, "gguf_files": 24, "gguf_parity": 2, "safetensors_files": 6, "specs": 16, "stacks": 3,
    "model_json": 8, "results_json": 1, "explore_queries": 8, "npy_files": 10, "memory_layouts": 7,
}  # fmt: skip
"""Of 100 inputs, so many are for each target."""


def main() -> None:
    """Run what was asked for, and say what came of it."""
    parser = argparse.ArgumentParser(description="Hostile inputs and kills; see tools/attack/__init__.py.")
    parser.add_argument("--inputs", type=int, default=10000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3600.0, help="for each target, and for the kills")
    parser.add_argument("--only", default="", help="targets, separated by commas")
    asked = parser.parse_args()
    only = [name for name in asked.only.split(",") if name] or [*SHARES, "kills"]
    whole = sum(SHARES[name] for name in only if name in SHARES) or 1
    done = []
    for name in only:
        how = ["--seed", asked.seed, "--first", asked.first, "--seconds", asked.seconds]
        if name == "kills":
            done.append(_run(name, "tools.attack.kills", "--kills", asked.kills, *how))
        else:
            count = max(1, asked.inputs * SHARES[name] // whole)
            done.append(_run(name, "tools.attack.inputs", name, "--inputs", count, *how))
    findings = [finding for one in done for finding in one["findings"]]
    inputs, kills = (sum(one["inputs"] for one in done if (one["target"] == "kills") == k) for k in (False, True))
    print(f"{inputs} inputs, {kills} kills, {len(findings)} findings")
    for finding in findings:
        print(json.dumps(finding))
    sys.exit(bool(findings))


def _run(name: str, module: str, *words: Any) -> dict[str, Any]:
    """One target; a process that crashes is a finding."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-m", module, *map(str, words)]
    ran = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    try:
        found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        what = f"its process ended with {ran.returncode}: {ran.stderr[-400:]}"
        found = {"target": name, "inputs": 0, "seconds": 0.0, "findings": [{"target": name, "what": what}]}
    about = {key: value for key, value in found.items() if key not in ("target", "findings")}
    print(f"{name}: {len(found['findings'])} findings; {about}", flush=True)
    return found


if __name__ == "__main__":
    main()
