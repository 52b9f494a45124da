"""on_ray: the trials as Ray tasks, on this machine or a cluster whose nodes share the output folder. A task that dies is tried again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from milepost.lab.plan import Plan, Trial

RETRIES = 3


def run_all(
    plan: Plan, todo: list[Trial], out: Path, address: str | None, tell: Callable[[Trial, dict[str, Any]], None]
) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Finished trials as they come."""
    try:
        import ray
    except ImportError:
        raise ValueError("--engine ray needs Ray: pip install 'milepost[ray]'") from None
    if not todo:
        return
    started = not ray.is_initialized()
    if started:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)

    @ray.remote(max_retries=RETRIES, num_cpus=1)  # type: ignore[untyped-decorator,unused-ignore]
    def one(data: dict[str, Any], key: str, folder: str) -> dict[str, Any]:
        from milepost.lab.trial import run, threads

        threads(1)
        whole = Plan.from_json(data)
        trial = next(t for t in whole.trials() if t.key == key)
        return run(whole, trial, Path(folder))

    try:
        waiting = {one.remote(plan.to_json(), trial.key, str((out / "trials" / trial.key).resolve())): trial for trial in todo}
        for trial in todo:
            tell(trial, {"waiting": "for Ray"})
        while waiting:
            ready, _ = ray.wait(list(waiting), num_returns=1)
            for reference in ready:
                trial = waiting.pop(reference)
                try:
                    yield trial, ray.get(reference)
                except Exception as error:  # Ray's own, after its retries, or what the trial raised
                    yield trial, {"failed": str(error).strip().splitlines()[-1][:300]}
    finally:
        if started:
            ray.shutdown()
