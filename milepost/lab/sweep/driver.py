"""Driver: runs all trials of a plan, side by side, and alone writes results.

    OUT/plan.json                 what was asked for
    OUT/trials/KEY/               a trial's model, and the state that a killed one resumes from
    OUT/trials/KEY/result.json    a finished trial
    OUT/results.json              everything so far, whole after every trial

Killed at any moment, a run with `resume` does what is missing, and ends with the numbers of an unbroken one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from milepost.lab.plan import SCHEMA, LabPlan
from milepost.lab.report import document
from milepost.lab.sweep import distributed, on_ray, processes
from milepost.lab.sweep.modalities import read_plan
from milepost.lab.train import is_main_process
from milepost.lab.training.linear import bfloat16_pays
from milepost.lab.trial import Trial
from milepost.measure.folder import one_run
from milepost.measure.results import Results, provenance, write_json

Tell = Callable[[Trial, dict[str, Any]], None]
NEEDED = ("accelerate", "scipy")
"""Packages that every trial needs, and that a plain installation does not have."""


def sweep(
    plan: LabPlan,
    out: str | Path,
    *,
    resume: bool = False,
    engine: str = "local",
    workers: int | None = None,
    address: str | None = None,
    tell: Tell = lambda trial, news: None,
) -> Results:
    """Run what is missing of a plan; the results, which are also in ``out``/results.json."""
    check_packages()
    out = Path(out)
    if engine not in ("local", "ray"):
        raise ValueError(f"engine is local or ray, got {engine!r}")
    side = processes.side_by_side(len(plan.trials()), workers)
    data = plan.read()  # before training: a mistake in the data is found here
    together = distributed.is_distributed()
    threads = processes.cores() // side if engine == "local" and not together else 1
    plan = replace(plan, digest=data.digest, threads=threads, bfloat16=bfloat16_pays())
    with one_driver(out):
        if together:
            if is_main_process():
                prepare(plan, out, resume)
            distributed.wait_for_all()
        plan = prepare(plan, out, resume or together)
        todo = [trial for trial in plan.trials() if not (out / "trials" / trial.key / "result.json").exists()]
        done: Any
        if together:
            done = distributed.run_all(plan, todo, out, tell)
        elif engine == "ray":
            done = on_ray.run_all(plan, todo, out, workers, address, tell)
        else:
            done = processes.run_all(plan, todo, out, workers, tell)
        failed: dict[str, str] = {}

        def publish() -> Results:
            results = gather(plan, out, data, failed)
            write_json(out / "results.json", results)
            return results

        results = publish()
        for trial, reason in store_finished(done, out):
            if reason is not None:
                failed[trial.key] = reason
            results = publish()
        return results


def check_packages() -> None:
    """Refuse to begin without the packages that trials need: without them every trial would fail."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise ValueError(f"the lab needs {' and '.join(missing)}: pip install 'milepost[lab]'")


def store_finished(done: Any, out: Path) -> Iterator[tuple[Trial, str | None]]:
    """Write the result of each trial as it finishes; yield the trial, and why it failed if it did."""
    with closing(done):
        for trial, result in done:
            folder = out / "trials" / trial.key
            if "failed" not in result:
                write_json(folder / "result.json", result)
                for file in (*folder.glob("*.pt"), folder / "news.json", *folder.glob(".*.tmp")):
                    file.unlink(missing_ok=True)  # only an unfinished trial needs its state
            yield trial, result.get("failed")


def prepare(plan: LabPlan, out: Path, resume: bool) -> LabPlan:
    """Make the folder, or check that it is of the same plan; the plan as the folder has it.

    A folder that can't be written to is refused here, before training.
    """
    asked = plan.to_json()
    if (out / "plan.json").exists():
        try:
            held = json.loads((out / "plan.json").read_text(encoding="utf-8"))
            asked |= {name: held[name] for name in ("threads", "bfloat16") if name in held}
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"{out / 'plan.json'} can't be read ({reason}); choose another --out") from None
        if not resume:
            raise ValueError(f"{out} holds results already; go on with --resume, or choose another --out")
        if held != asked:
            changed = sorted(name for name in held.keys() | asked.keys() if held.get(name) != asked.get(name))
            what = f"the {plan.reads} that it read" if changed == ["digest"] else ", ".join(changed)
            raise ValueError(
                f"{out} holds results of another plan ({what} changed since); "
                "ask for the same as then, or choose another --out"
            )
    elif out.exists() and (not out.is_dir() or any(not file.name.endswith(".tmp") for file in out.iterdir())):
        raise ValueError(f"{out} is there already, and is no lab run; choose another --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        _check_room(plan, out)
        write_json(out / "plan.json", asked)
        (out / "trials").mkdir(exist_ok=True)
    except OSError as error:
        raise ValueError(f"can't write into {out}: {error.strerror or error}") from None
    return read_plan(asked)


def _check_room(plan: LabPlan, out: Path) -> None:
    """Refuse a disk that can't hold the models and the states of those in training."""
    needed = 4 * plan.shape.weights() * (len(plan.trials()) + 6 * processes.cores())
    free = shutil.disk_usage(out).free
    if free < needed:
        raise ValueError(
            f"the disk of {out} has {free / 2**20:.0f} MB left, and this run may need {needed / 2**20:.0f} MB; "
            "make room, or choose another --out"
        )


def one_driver(out: Path) -> AbstractContextManager[None]:
    """Hold the folder against another run; of the processes of one run the main one does."""
    return one_run(out) if is_main_process() else nullcontext()


def gather(plan: LabPlan, out: Path, data: Any, failed: dict[str, str]) -> Results:
    """Everything that is known: the runs of finished trials, and which trials are missing or failed."""
    runs: list[dict[str, Any]] = []
    missing, failures = [], []
    for trial in plan.trials():
        file = out / "trials" / trial.key / "result.json"
        name = {"encoding": trial.encoding, "seed": trial.seed, "data": trial.data}
        if file.exists():
            runs += json.loads(file.read_text(encoding="utf-8"))["runs"]
        elif trial.key in failed:
            failures.append({**name, "why": failed[trial.key]})
        else:
            missing.append(name)
    results = {
        "schema": SCHEMA,
        "runs": runs,
        "comparisons": plan.compare(runs),
        "missing": missing,
        "failed": failures,
        "provenance": provenance(**plan.protocol(data)),
    }
    return Results("lab", results, document)
