"""Sweep: all trials of a plan, side by side. The driver alone writes results.

    OUT/plan.json                 what was asked for
    OUT/trials/KEY/               a trial's model, and the state that a killed one goes on from
    OUT/trials/KEY/result.json    a finished trial
    OUT/results.json              everything so far, whole after every trial

Killed at any moment, a run with `resume` does what is missing, and ends with the numbers of an unbroken one.
"""

from __future__ import annotations

import fcntl
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from milepost.lab.kinds import Asked, Data, Trial, from_json
from milepost.lab.plan import SCHEMA
from milepost.lab.sweep import on_ray, processes, together
from milepost.measure.results import Results, provenance, write_json

Tell = Callable[[Trial, dict[str, Any]], None]


def sweep(
    plan: Asked, out: str | Path, *, resume: bool = False, engine: str = "local", workers: int | None = None, address: str | None = None,
    tell: Tell = lambda trial, news: None,
) -> Results:  # fmt: skip
    """Run what is missing of a plan; the results, which are also in ``out``/results.json."""
    out = Path(out)
    if engine not in ("local", "ray"):
        raise ValueError(f"engine is local or ray, got {engine!r}")
    side = processes.side_by_side(len(plan.trials()), workers)
    data = plan.read()  # what is wrong with it is said before training
    plan = replace(
        plan,
        digest=data.digest,
        threads=processes.cores() // side if engine == "local" and not together.launched() else 1,
    )
    if together.launched():
        if together.is_main():
            prepare(plan, out, resume)
        together.wait()
        plan = prepare(plan, out, True)
    else:
        plan = prepare(plan, out, resume)
    with alone(out):
        todo = [trial for trial in plan.trials() if not (out / "trials" / trial.key / "result.json").exists()]
        if together.launched():
            done = together.run_all(plan, todo, out, tell)
        elif engine == "ray":
            done = on_ray.run_all(plan, todo, out, workers, address, tell)
        else:
            done = processes.run_all(plan, todo, out, workers, tell)
        return _collect(plan, out, data, done)


def _collect(plan: Asked, out: Path, data: Data, done: Any) -> Results:
    """Write what trials give as they finish, and results.json anew each time."""
    failed: dict[str, str] = {}
    results = gather(plan, out, data, failed)
    write_json(out / "results.json", results)
    for trial, reason in store_finished(done, out):
        if reason is not None:
            failed[trial.key] = reason
        results = gather(plan, out, data, failed)
        write_json(out / "results.json", results)
    return results


def store_finished(done: Any, out: Path) -> Iterator[tuple[Trial, str | None]]:
    """Write the result of each trial as it finishes; yield the trial, and why it failed if it did."""
    with closing(done):
        for trial, result in done:
            home = out / "trials" / trial.key
            if "failed" not in result:
                write_json(home / "result.json", result)
                for file in (*home.glob("*.pt"), home / "news.json", *home.glob(".*.tmp")):
                    file.unlink(missing_ok=True)  # only an unfinished trial needs its state
            yield trial, result.get("failed")


def prepare(plan: Asked, out: Path, resume: bool) -> Asked:
    """Make the folder, or find it to be of the same plan; what can't be written is said before training. The plan as the folder has it."""
    asked = plan.to_json()
    if (out / "plan.json").exists():
        try:
            held = json.loads((out / "plan.json").read_text(encoding="utf-8"))
            asked["threads"] = held["threads"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{out / 'plan.json'} can't be read ({type(error).__name__}: {error}); choose another --out"
            ) from None
        if not resume:
            raise ValueError(f"{out} holds results already; go on with --resume, or choose another --out")
        if held != asked:
            changed = sorted(name for name in held.keys() | asked.keys() if held.get(name) != asked.get(name))
            said = f"the {plan.reads} that it read" if changed == ["digest"] else ", ".join(changed)
            raise ValueError(
                f"{out} holds results of another plan ({said} changed since); ask for the same as then, or choose another --out"
            )
    elif out.exists() and (not out.is_dir() or any(not file.name.endswith(".tmp") for file in out.iterdir())):
        raise ValueError(f"{out} is there already, and is no lab run; choose another --out")
    try:
        out.mkdir(parents=True, exist_ok=True)
        _room(plan, out)
        write_json(out / "plan.json", asked)
        (out / "trials").mkdir(exist_ok=True)
    except OSError as error:
        raise ValueError(f"can't write into {out}: {error.strerror or error}") from None
    return from_json(asked)


def _room(plan: Asked, out: Path) -> None:
    """Refuse a disk that can't hold the models and the states of those in training."""
    needed, free = 4 * plan.weights() * (len(plan.trials()) + 6 * processes.cores()), shutil.disk_usage(out).free
    if free < needed:
        raise ValueError(
            f"the disk of {out} has {free / 2**20:.0f} MB left, and this run may need {needed / 2**20:.0f} MB; make room, or choose another --out"
        )


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """No other driver in this folder; the system lets go of it when this process ends in whatever way."""
    if not together.is_main():
        yield
        return
    with (out / ".driver").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"another `milepost lab` is at work in {out}; wait for it, or choose another --out"
            ) from None
        yield


def gather(plan: Asked, out: Path, data: Data, failed: dict[str, str]) -> Results:
    """Everything that is known: finished runs, and which trials are missing or failed."""
    runs: list[dict[str, Any]] = []
    missing, lost = [], []
    for trial in plan.trials():
        file = out / "trials" / trial.key / "result.json"
        name = {"encoding": trial.encoding, "seed": trial.seed, "data": trial.data}
        if file.exists():
            runs += json.loads(file.read_text(encoding="utf-8"))["runs"]
        elif trial.key in failed:
            lost.append({**name, "why": failed[trial.key]})
        else:
            missing.append(name)
    about = provenance(**plan.protocol(data))
    found = {
        "schema": SCHEMA,
        "runs": runs,
        "comparisons": plan.compare(runs),
        "missing": missing,
        "failed": lost,
        "provenance": about,
    }
    return Results("lab", found)
