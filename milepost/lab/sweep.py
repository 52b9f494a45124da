"""Sweep: all trials of a plan, side by side in processes. The driver alone writes results.

    OUT/plan.json                 what was asked for
    OUT/trials/KEY/               a trial's model, and the state that a killed one goes on from
    OUT/trials/KEY/result.json    a finished trial
    OUT/results.json              everything so far, whole after every trial

Killed at any moment, a run with `resume` does what is missing, and ends with the numbers of an unbroken one.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from milepost.lab import corpus
from milepost.lab.compared import comparisons
from milepost.lab.plan import SCHEMA, Plan, Trial
from milepost.results import provenance, write_json

News = dict[str, Any]
Tell = Callable[[Trial, News], None]


def sweep(
    plan: Plan, out: str | Path, *, resume: bool = False, engine: str = "local", workers: int | None = None, address: str | None = None,
    tell: Tell = lambda trial, news: None,
) -> dict[str, Any]:  # fmt: skip
    """Run what is missing of a plan; the results, which are also in ``out``/results.json."""
    out = Path(out)
    if engine not in ("local", "ray"):
        raise ValueError(f"engine is local or ray, got {engine!r}")
    text = corpus.read(plan.text, plan.tokenizer, longest=max(plan.lengths)).describe()  # what is wrong with the text is said before training
    prepare(plan, out, resume)
    todo = [trial for trial in plan.trials() if not (out / "trials" / trial.key / "result.json").exists()]
    failed: dict[str, str] = {}
    if engine == "ray":
        from milepost.lab.on_ray import run_all

        done = run_all(plan, todo, out, address, tell)
    else:
        done = _run_all(plan, todo, out, workers, tell)
    for trial, result in done:
        if "failed" in result:
            failed[trial.key] = result["failed"]
        else:
            write_json(out / "trials" / trial.key / "result.json", result)
        write_json(out / "results.json", gather(plan, out, text, failed))
    results = gather(plan, out, text, failed)
    write_json(out / "results.json", results)
    return results


def prepare(plan: Plan, out: Path, resume: bool) -> None:
    """Make the folder, or find it to be of the same plan; what can't be written is said before training."""
    asked = plan.to_json()
    if (out / "plan.json").exists():
        try:
            held = json.loads((out / "plan.json").read_text())
        except (OSError, json.JSONDecodeError) as error:
            raise ValueError(f"{out / 'plan.json'} can't be read ({error}); choose another --out") from None
        if not resume:
            raise ValueError(f"{out} holds results already; go on with --resume, or choose another --out")
        if held != asked:
            changed = sorted(name for name in held.keys() | asked.keys() if held.get(name) != asked.get(name))
            raise ValueError(f"{out} holds results of another plan ({', '.join(changed)} differ); ask for the same as then, or choose another --out")
        return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is there already, and is no lab run; choose another --out")
    try:
        (out / "trials").mkdir(parents=True, exist_ok=True)
        write_json(out / "plan.json", asked)
    except OSError as error:
        raise ValueError(f"can't write into {out}: {error.strerror or error}") from None


def gather(plan: Plan, out: Path, text: dict[str, Any], failed: dict[str, str]) -> dict[str, Any]:
    """Everything that is known: finished runs, and which trials are missing or failed."""
    runs: list[dict[str, Any]] = []
    missing, lost = [], []
    for trial in plan.trials():
        file = out / "trials" / trial.key / "result.json"
        name = {"encoding": trial.encoding, "seed": trial.seed, "data": trial.data}
        if file.exists():
            runs += json.loads(file.read_text())["runs"]
        elif trial.key in failed:
            lost.append({**name, "why": failed[trial.key]})
        else:
            missing.append(name)
    compared = comparisons(runs)
    protocol = {"plan": plan.to_json(), "text": text, "targets": plan.targets, "intervals": "95%, bootstrap over test files"}
    return {"schema": SCHEMA, "runs": runs, "comparisons": compared, "missing": missing, "failed": lost, "provenance": provenance(**protocol)}


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _run_all(plan: Plan, todo: list[Trial], out: Path, workers: int | None, tell: Tell) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Finished trials as they come, from processes side by side: workers x threads at most the cores."""
    if not todo:
        return
    side = max(1, min(len(todo), workers or cores()))
    threads = max(1, cores() // side)
    waiting: queue.Queue[Trial] = queue.Queue()
    for trial in todo:
        waiting.put(trial)
    news: queue.Queue[tuple[Trial, News]] = queue.Queue()
    running: set[subprocess.Popen[str]] = set()

    def work() -> None:
        while True:
            try:
                trial = waiting.get_nowait()
            except queue.Empty:
                return
            news.put((trial, _one(trial, out, threads, news, running)))

    hands = [threading.Thread(target=work, daemon=True) for _ in range(side)]
    for hand in hands:
        hand.start()
    left = len(todo)
    try:
        while left:
            trial, item = news.get()
            if "result" in item or "failed" in item:
                left -= 1
                yield trial, item.get("result", item)
            else:
                tell(trial, item)
    finally:
        while not waiting.empty():
            waiting.get_nowait()
        for process in list(running):
            process.kill()


def _one(trial: Trial, out: Path, threads: int, news: queue.Queue[tuple[Trial, News]], running: set[subprocess.Popen[str]]) -> News:
    """One trial in a process of its own: its last word is the result."""
    env = {**os.environ, "OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-m", "milepost.lab.worker", str(out), trial.key, str(threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        running.add(process)
        words: list[str] = []
        reader = threading.Thread(target=lambda: words.extend(process.stderr or []), daemon=True)
        reader.start()
        last: News = {}
        for line in process.stdout or []:
            try:
                last = json.loads(line)
            except json.JSONDecodeError:
                continue  # something else printed
            if "result" not in last:
                news.put((trial, last))
        process.wait()
        reader.join(timeout=5)
        running.discard(process)
    if "result" in last:
        return last
    said = next((w.strip() for w in reversed(words) if w.strip()), "")
    return {"failed": f"its process ended with code {process.returncode}" + (f": {said[:300]}" if said else "")}
