"""The reference table of the lab: goes on where the shipped results end, and ships what is finished.

    python tools/reference_table.py OUT [--workers 1] [--seeds 0,1,2]    train what is missing, then ship
    python tools/reference_table.py OUT --ship                           ship what OUT has, without training
    python tools/reference_table.py OUT --costs                          time the encodings, on a quiet machine

Trials that milepost/measured/lab.json holds are not trained again, if they are of this plan and this text. At its end,
or when it is interrupted, it writes the shipped results and docs/lab anew, of OUT and of what was shipped before.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from milepost.bench.lab_model import bench_costs
from milepost.lab.plan import TextPlan, make
from milepost.lab.report import load, save
from milepost.lab.report.runs import base
from milepost.lab.sweep.driver import prepare, sweep
from milepost.lab.trial import Trial
from milepost.measure.results import provenance, write, write_json

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
DIGITS, WINDOW_DIGITS = 4, 3
"""Decimals of the shipped numbers: losses differ in the third. The mean of hundreds of windows keeps the fifth."""
ROUNDS, ROWS = 7, 32
"""Turns in which costs are timed, and texts of a step."""
OF_ALL = (
    "encoding",
    "strategy",
    "seed",
    "data",
    "trained_length",
    "loss_by_length",
    "fixed",
    "window_files",
)
OF_PLAIN = (
    "spec", "parameters", "encoding_parameters", "train_tokens", "train_tokens_per_s", "peak_mb", "rate", "train_loss",
    "loss_by_position", "disjoint", "sliding", "attention", "tasks",
)  # fmt: skip
"""What is shipped of every run, and of those with nothing done to them."""
COLUMNS = {"loss_by_length": ("length", "loss", "low", "high", "note"), "loss_by_position": ("start", "end", "loss")}
HOW = (
    "shortened from a lab's results.json: losses of single windows have three decimals (fixed ones at the trained "
    "length alone) and other numbers four, what heads look at is of the first seed, and what nobody reads is left out"
)


def plan_table(seeds: tuple[int, ...]) -> TextPlan:
    """The quick model, trained longer and tested on more text than in the demo."""
    plan = make("quick", encodings=ENCODINGS, strategy_names=STRATEGIES, seeds=seeds)
    return replace(plan, steps=1500, windows=480)


def shipped_before(plan: TextPlan, data: Any) -> dict[str, Any]:
    """What is shipped; without runs if they are of another model or text."""
    held: dict[str, Any] = json.loads(SHIPPED.read_text())
    before, now = held["provenance"]["protocol"]["plan"], replace(plan, digest=data.digest).to_json()
    same = ("shape", "steps", "rows", "digest", "lengths", "windows", "strategies")
    if changed := [name for name in same if before.get(name) != now.get(name)]:
        print(f"the shipped results are of another plan ({', '.join(changed)}): all trials are trained anew")
        return {**held, "runs": [], "comparisons": []}
    return held


def of(row: dict[str, Any]) -> tuple[str, int, str]:
    """The trial of a run, a comparison or a missing trial."""
    return row["encoding"], row["seed"], row.get("data", "text")


def shorten(results: dict[str, Any]) -> dict[str, Any]:
    """What reports, claims, `choose` and `compare` ask of results, in less room: `HOW` says what that is."""
    first, short_text = min((run["seed"] for run in results["runs"]), default=0), base(results)
    runs = []
    for run in results["runs"]:
        fields = (*OF_ALL, *OF_PLAIN) if run["strategy"] == "none" else OF_ALL
        short = {field: run[field] for field in fields if run.get(field) is not None}
        if run["seed"] != first:
            short.pop("attention", None)
        for field in ("loss_by_length", "loss_by_position", "disjoint", "sliding", "fixed"):
            columns = COLUMNS.get(field, ("length", "loss"))
            if field in short:
                short[field] = [{key: row[key] for key in columns if key in row} for row in short[field]]
        if "fixed" in short:
            short["fixed"] = [row for row in short["fixed"] if row["length"] == short_text]
        for field in ("loss_by_window", "fixed_by_window"):
            by_length = {
                length: [round(loss, WINDOW_DIGITS) for loss in losses]
                for length, losses in run.get(field, {}).items()
                if field == "loss_by_window" or length == str(short_text)
            }
            short |= {field: by_length} if by_length else {}
        runs.append(short)
    helped = [row for row in results["comparisons"] if row["strategy"] != "none"]
    comparisons = [row for row in helped if not row.get("fixed") or row["length"] == short_text]
    short = {**results, "runs": runs, "comparisons": comparisons}
    short["provenance"]["protocol"]["shipped"] = HOW
    rounded: dict[str, Any] = json.loads(json.dumps(short), parse_float=lambda number: round(float(number), DIGITS))
    return rounded


def ship(out: Path, held: dict[str, Any]) -> None:
    """Write what was shipped before and what OUT has as the shipped results, and the page of them."""
    results = dict(load(out))
    new = {of(run) for run in results["runs"]}
    for part in ("runs", "comparisons"):
        results[part] = [row for row in held[part] if of(row) not in new] + results[part]
    names = list(results["provenance"]["protocol"]["plan"]["encodings"])
    results["runs"] = [run for run in results["runs"] if run["encoding"] in names]
    results["runs"].sort(key=lambda run: (names.index(run["encoding"]), run["strategy"] != "none", run["seed"]))
    known = {of(run) for run in results["runs"]}
    results["missing"] = [trial for trial in results["missing"] if of(trial) not in known]
    results |= {"costs": held["costs"]} if held.get("costs") else {}
    publish(shorten(results))


def publish(results: dict[str, Any]) -> None:
    """Write the shipped results, and the page of them."""
    write(SHIPPED, json.dumps(results, separators=(",", ":")) + "\n")
    save(results, CLONE / "docs/lab")


def time_costs(plan: TextPlan) -> None:
    """Time what each encoding costs, one by one in turns, and put it beside the shipped results."""
    torch.set_num_threads(1)
    held = json.loads(SHIPPED.read_text())
    about = provenance()
    rows = bench_costs(plan.shape, plan.encodings, rows=ROWS, longest=max(plan.lengths), rounds=ROUNDS, tell=print)
    short = f"{about['date'][:10]}, torch {about['versions']['torch']}, {ROWS} texts a step, best of {ROUNDS} turns"
    publish({**held, "costs": {"rows": rows, "about": short}})


def main() -> None:
    """Train what is missing."""
    parser = argparse.ArgumentParser(description="The reference table of the lab; see the first lines of this file.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--ship", action="store_true", help="ship what OUT has, without training")
    parser.add_argument("--costs", action="store_true", help="time the encodings instead of training them")
    asked = parser.parse_args()
    plan = plan_table(tuple(int(seed) for seed in asked.seeds.split(",")))
    if asked.costs:
        return time_costs(plan)
    data = plan.read()
    held = shipped_before(plan, data)
    if asked.ship:
        return ship(asked.out, held)
    prepare(replace(plan, digest=data.digest, threads=1, bfloat16=True), asked.out, resume=True)
    known = {of(run) for run in held["runs"]}
    for trial in plan.trials():
        finished = asked.out / "trials" / trial.key / "result.json"
        if (trial.encoding, trial.seed, trial.data) in known and not finished.exists():
            finished.parent.mkdir(parents=True, exist_ok=True)
            write_json(finished, {"runs": []})

    def tell(trial: Trial, news: dict[str, Any]) -> None:
        if "step" not in news:
            print(trial.key, news, flush=True)

    try:
        sweep(plan, asked.out, resume=True, workers=asked.workers, tell=tell)
    finally:
        ship(asked.out, held)


if __name__ == "__main__":
    sys.exit(main())
