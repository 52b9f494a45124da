"""The reference table of the lab: goes on where the shipped results end, and ships what is finished.

    python tools/reference_table.py OUT [--workers 1]

The trials that milepost/measured/lab.json holds are put into OUT as finished ones, if they are of this plan and this
text; the others are trained. At its end, or when it is interrupted, it writes the shipped results and docs/lab anew.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from milepost.lab.plan import TextPlan, make
from milepost.lab.report import load, save
from milepost.lab.sweep.driver import prepare, sweep
from milepost.lab.trial import Trial
from milepost.measure.results import write, write_json

CLONE = Path(__file__).resolve().parent.parent
SHIPPED = CLONE / "milepost/measured/lab.json"
ENCODINGS = (
    "rope", "sinusoidal", "t5", "alibi", "learned", "nope", "rope(base=500.0)", "rope(base=500000.0)",
    "rope(rotary=12)", "rope + alibi", "kerple", "shaw", "transformer_xl", "sandwich", "binary", "integer",
    'sinusoidal(width=24, how="concat")', "fire", "xpos", "cope", "deberta",
    "rope + temperature(length=64, form='logn')", "sinusoidal + rope",
    "t5(shared=True)", "layers(rope, nope)", "layers(rope, temperature)", "fox", "relative_logits", "pope",
    "selective_rope", "rope + ssmax", "rope(scaling=proportional(share=0.5))",
)  # fmt: skip
STRATEGIES = ("none", "base", "linear", "ntk", "dynamic", "yarn", "self-extend", "rerope")
DIGITS = 5
"""Decimals of the shipped numbers: losses differ in the third."""


def plan_table(seeds: tuple[int, ...]) -> TextPlan:
    """The quick model, trained longer and tested on more text than in the demo."""
    plan = make("quick", encodings=ENCODINGS, strategy_names=STRATEGIES, seeds=seeds)
    return replace(plan, steps=1500, windows=480)


def shipped_runs(plan: TextPlan, data: Any) -> dict[tuple[str, int, str], list[dict[str, Any]]]:
    """The runs that are shipped, by trial; none if they are of another model or text."""
    held = json.loads(SHIPPED.read_text())
    before, now = held["provenance"]["protocol"]["plan"], replace(plan, digest=data.digest).to_json()
    same = ("shape", "steps", "rows", "digest", "lengths", "windows", "strategies")
    if changed := [name for name in same if before.get(name) != now.get(name)]:
        print(f"the shipped results are of another plan ({', '.join(changed)}): all trials are trained anew")
        return {}
    runs: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for run in held["runs"]:
        runs.setdefault((run["encoding"], run["seed"], run["data"]), []).append(run)
    return runs


def ship(out: Path) -> None:
    """Write what OUT has as the shipped results, and the page of them."""
    results = load(out)
    rounded = json.loads(json.dumps(results), parse_float=lambda number: round(float(number), DIGITS))
    write(SHIPPED, json.dumps(rounded, separators=(",", ":")) + "\n")
    save(results, CLONE / "docs/lab")


def main() -> None:
    """Train what is missing."""
    parser = argparse.ArgumentParser(description="The reference table of the lab; see the first lines of this file.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--seeds", default="0,1,2")
    asked = parser.parse_args()
    plan = plan_table(tuple(int(seed) for seed in asked.seeds.split(",")))
    data = plan.read()
    runs = shipped_runs(plan, data)
    prepare(replace(plan, digest=data.digest, threads=1, bfloat16=True), asked.out, resume=True)
    for trial in plan.trials():
        finished = asked.out / "trials" / trial.key / "result.json"
        if (trial.encoding, trial.seed, trial.data) in runs and not finished.exists():
            finished.parent.mkdir(parents=True, exist_ok=True)
            write_json(finished, {"runs": runs[trial.encoding, trial.seed, trial.data]})

    def tell(trial: Trial, news: dict[str, Any]) -> None:
        if "step" not in news:
            print(trial.key, news, flush=True)

    try:
        sweep(plan, asked.out, resume=True, workers=asked.workers, tell=tell)
    finally:
        ship(asked.out)


if __name__ == "__main__":
    sys.exit(main())
