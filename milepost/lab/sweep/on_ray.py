"""On Ray: the trials as Ray tasks, on this machine or on a cluster whose nodes share no folder.

The text travels to the nodes as an object of Ray's. A task works in a folder of its own node. Its news, and the states
that a killed trial resumes from, go through a desk (an actor beside the driver); its model and its result come back
with the task. The driver alone writes to the output folder. A task that dies is tried again, on another node if need
be, and goes on from the last state that reached the desk.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from milepost.lab.plan import LabPlan
from milepost.lab.sweep.modalities import read_plan, run_trial
from milepost.lab.sweep.processes import cores, side_by_side
from milepost.lab.trial import Trial
from milepost.lab.user_modules import search_path
from milepost.measure.results import whole_file

RETRIES = 3
PAUSE = 1.0
"""Seconds between two looks at the news."""
Files = dict[str, bytes]
"""Contents of files by name."""


class Desk:
    """What tasks say while they run: the last news and the last states of each trial, until the driver takes them."""

    def __init__(self, states: dict[str, Files]) -> None:
        self.states = states
        self.news: dict[str, dict[str, Any]] = {}
        self.changed: set[str] = set()

    def tell(self, key: str, news: dict[str, Any], states: Files) -> None:
        """A task's news, and the states that it wrote since."""
        self.news[key] = news
        if states:
            self.states.setdefault(key, {}).update(states)
            self.changed.add(key)

    def read_states(self, key: str) -> Files:
        """What a task resumes from."""
        return self.states.get(key, {})

    def take(self) -> tuple[dict[str, dict[str, Any]], dict[str, Files]]:
        """News, and the states that changed, since this was last asked."""
        news, states = self.news, {key: self.states[key] for key in self.changed}
        self.news, self.changed = {}, set()
        return news, states


def run_all(
    plan: LabPlan,
    todo: list[Trial],
    out: Path,
    workers: int | None,
    address: str | None,
    tell: Callable[[Trial, dict[str, Any]], None],
) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Finished trials as they come."""
    try:
        import ray
    except ImportError:
        raise ValueError("--engine ray needs Ray: pip install 'milepost[ray]'") from None
    if not todo:
        return
    with redirect_stdout(sys.stderr):  # Ray prints words of its own, and results may be printed there
        started = not ray.is_initialized()
        if started:
            local = {"address": "local", "num_cpus": max(plan.threads, side_by_side(cores(), workers))}
            cluster = local if address is None else {"address": address}
            try:
                ray.init(**cluster, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
            except ConnectionError as error:
                reason = str(error).splitlines()[0][:200]
                raise ValueError(
                    f"no Ray cluster answers at {address}: {reason}. On a machine of the cluster "
                    "say --address auto. From another one, Ray 2.60 and later ask for the cluster's token: set "
                    "RAY_AUTH_MODE=token and RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) as on the cluster's nodes"
                ) from None
        try:
            yield from _run_tasks(ray, plan, todo, out, tell)
        finally:
            if started:
                ray.shutdown()


def _run_tasks(
    ray: Any, plan: LabPlan, todo: list[Trial], out: Path, tell: Callable[[Trial, dict[str, Any]], None]
) -> Iterator[tuple[Trial, dict[str, Any]]]:
    gpu = 1 if ray.cluster_resources().get("GPU") else 0
    task = ray.remote(max_retries=RETRIES, num_cpus=plan.threads, num_gpus=gpu)(_task)
    by_key = {trial.key: trial for trial in todo}
    folders = {key: out / "trials" / key for key in by_key}
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    desk = ray.remote(num_cpus=0, scheduling_strategy=here)(Desk).remote({key: _states(folders[key]) for key in by_key})
    data, places = ray.put(plan.read()), search_path()
    running = {task.remote(plan.to_json(), key, data, places, desk): trial for key, trial in by_key.items()}
    while running:
        ready, _ = ray.wait(list(running), num_returns=1, timeout=PAUSE)
        news, states = ray.get(desk.take.remote())
        for key, files in states.items():
            _write(folders[key], files)
        for reference in ready:
            trial = running.pop(reference)
            try:
                result, files = ray.get(reference)
                _write(folders[trial.key], files)
            except Exception as error:  # Ray's own, after its retries, or what the trial raised
                result = {"failed": str(error).strip().splitlines()[-1][:300]}
            yield trial, result
        for trial in running.values():
            if trial.key in news:
                tell(trial, news[trial.key])


def _task(described: dict[str, Any], key: str, data: Any, places: list[str], desk: Any) -> tuple[dict[str, Any], Files]:
    """One trial, in a process of Ray's: its result, and the files of its model."""
    import ray

    plan, last = read_plan(described), 0.0
    with tempfile.TemporaryDirectory(prefix="milepost-") as home:
        folder = Path(home)
        _write(folder, ray.get(desk.read_states.remote(key)))
        sent = {file.name: file.stat().st_mtime_ns for file in folder.glob("*.pt")}

        def tell(news: dict[str, Any]) -> None:
            nonlocal last
            if time.monotonic() - last > PAUSE or news.get("step") == news.get("of"):
                last = time.monotonic()
                written = {file: file.stat().st_mtime_ns for file in folder.glob("*.pt")}
                new = {file.name: file.read_bytes() for file, at in written.items() if sent.get(file.name) != at}
                sent.update({file.name: at for file, at in written.items()})
                desk.tell.remote(key, news, new)

        result = run_trial(plan, plan.trial(key), folder, tell, places, data=data)
        return result, {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix != ".pt"}


def _states(folder: Path) -> Files:
    """The states of a trial that an earlier run left."""
    return {file.name: file.read_bytes() for file in folder.glob("*.pt")}


def _write(folder: Path, files: Files) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        with whole_file(folder / name) as temporary:
            temporary.write_bytes(content)
