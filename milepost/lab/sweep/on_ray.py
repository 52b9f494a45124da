"""on_ray: the trials as Ray tasks, on this machine or a cluster whose nodes share the output folder. A task that dies is tried again.

A task writes its news beside its model (OUT/trials/KEY/news.json), where the driver looks for them; results come back through Ray.
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

from milepost.lab.kinds import Asked, Trial, from_json
from milepost.lab.strangers import folders
from milepost.lab.sweep.processes import cores, side_by_side
from milepost.measure.results import write_json

RETRIES = 3
PAUSE = 1.0
"""Seconds between two looks at the news."""


def run_all(
    plan: Asked,
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
    with redirect_stdout(sys.stderr):  # Ray prints what its raylet has to say, and results may be asked for there
        yield from _run_all(plan, todo, out, workers, address, tell, ray)


def _run_all(
    plan: Asked,
    todo: list[Trial],
    out: Path,
    workers: int | None,
    address: str | None,
    tell: Callable[[Trial, dict[str, Any]], None],
    ray: Any,
) -> Iterator[tuple[Trial, dict[str, Any]]]:
    started = not ray.is_initialized()
    if started:
        here = (
            {"address": "local", "num_cpus": max(plan.threads, side_by_side(cores(), workers))}
            if address is None
            else {"address": address}
        )
        ray.init(**here, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    try:
        gpu = 1 if ray.cluster_resources().get("GPU") else 0
        one = ray.remote(max_retries=RETRIES, num_cpus=plan.threads, num_gpus=gpu)(_task)
        homes = {trial.key: (out / "trials" / trial.key).resolve() for trial in todo}
        waiting = {one.remote(plan.to_json(), trial.key, str(homes[trial.key]), folders()): trial for trial in todo}
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1, timeout=PAUSE)
            for reference in ready:
                trial = waiting.pop(reference)
                try:
                    yield trial, ray.get(reference)
                except Exception as error:  # Ray's own, after its retries, or what the trial raised
                    yield trial, {"failed": str(error).strip().splitlines()[-1][:300]}
            for trial in waiting.values():
                if news := _news(homes[trial.key]):
                    tell(trial, news)
    finally:
        if started:
            ray.shutdown()


def _task(data: dict[str, Any], key: str, folder: str, where: list[str]) -> dict[str, Any]:
    """One trial, in a process of Ray's."""
    from milepost.lab.strangers import import_named
    from milepost.lab.trial import threads

    plan = from_json(data)
    threads(plan.threads)
    trial, told = plan.trial(key), [0.0]
    import_named([trial.encoding], where)

    def tell(news: dict[str, Any]) -> None:
        if time.monotonic() - told[0] > PAUSE or news.get("step") == news.get("of"):
            told[0] = time.monotonic()
            write_json(Path(folder) / "news.json", news)

    return plan.run(trial, Path(folder), tell)


def _news(folder: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((folder / "news.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return None
    return found if isinstance(found, dict) else None
