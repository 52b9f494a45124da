"""On Ray: the trials as Ray tasks, on this machine or a cluster whose nodes share the output folder.

A task that dies is tried again. It writes its news beside its model (OUT/trials/KEY/news.json), where the driver
looks for them; results come back through Ray.
"""

from __future__ import annotations

import json
import logging
import sys
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
from milepost.measure.results import write_json

RETRIES = 3
PAUSE = 1.0
"""Seconds between two looks at the news."""


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
            ray.init(**cluster, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
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
    folders = {trial.key: (out / "trials" / trial.key).resolve() for trial in todo}
    places = search_path()
    running = {task.remote(plan.to_json(), trial.key, str(folders[trial.key]), places): trial for trial in todo}
    while running:
        ready, _ = ray.wait(list(running), num_returns=1, timeout=PAUSE)
        for reference in ready:
            trial = running.pop(reference)
            try:
                yield trial, ray.get(reference)
            except Exception as error:  # Ray's own, after its retries, or what the trial raised
                yield trial, {"failed": str(error).strip().splitlines()[-1][:300]}
        for trial in running.values():
            if news := _read_news(folders[trial.key]):
                tell(trial, news)


def _task(data: dict[str, Any], key: str, folder: str, places: list[str]) -> dict[str, Any]:
    """One trial, in a process of Ray's."""
    plan, last = read_plan(data), 0.0

    def tell(news: dict[str, Any]) -> None:
        nonlocal last
        if time.monotonic() - last > PAUSE or news.get("step") == news.get("of"):
            last = time.monotonic()
            write_json(Path(folder) / "news.json", news)

    return run_trial(plan, plan.trial(key), Path(folder), tell, places)


def _read_news(folder: Path) -> dict[str, Any] | None:
    try:
        news = json.loads((folder / "news.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return None
    return news if isinstance(news, dict) else None
