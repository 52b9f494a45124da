"""Distributed: under `accelerate launch` all processes train each model together; the first of them is the driver."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from milepost.lab.plan import LabPlan
from milepost.lab.sweep.modalities import run_trial
from milepost.lab.train import is_main_process
from milepost.lab.trial import Trial


def is_distributed() -> bool:
    """Whether several processes were started to work as one."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def wait_for_all() -> None:
    """Wait until all processes have come this far."""
    import torch
    from accelerate import PartialState

    PartialState(cpu=not torch.cuda.is_available()).wait_for_everyone()


def run_all(
    plan: LabPlan, todo: list[Trial], out: Path, tell: Callable[[Trial, dict[str, Any]], None]
) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """One trial after another, each on all processes; the first of them yields the results."""
    for trial in todo:

        def tell_once(news: dict[str, Any], trial: Trial = trial) -> None:
            if is_main_process():
                tell(trial, news)

        try:
            result = run_trial(plan, trial, out / "trials" / trial.key, tell_once)
        except Exception as error:  # a trial that fails does not take the others with it
            result = {"failed": f"{type(error).__name__}: {error}"[:300]}
        if is_main_process():
            yield trial, result
        wait_for_all()
