"""together: under `accelerate launch` all processes train each model together, and the first of them is the driver."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from milepost.lab.kinds import Asked, Trial


def launched() -> bool:
    """Whether several processes were started to work as one."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_main() -> bool:
    """Whether this is the process that writes."""
    return os.environ.get("RANK", "0") == "0"


def wait() -> None:
    """Until all processes have come this far."""
    from accelerate import PartialState

    PartialState(cpu=_without_gpu()).wait_for_everyone()


def _without_gpu() -> bool:
    import torch

    return not torch.cuda.is_available()


def run_all(
    plan: Asked, todo: list[Trial], out: Path, tell: Callable[[Trial, dict[str, Any]], None]
) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """One trial after another, each on all processes; the first of them yields what was found."""
    from milepost.lab.strangers import import_named
    from milepost.lab.trial import threads

    threads(plan.threads)
    import_named(plan.encodings)
    for trial in todo:

        def told(news: dict[str, Any], trial: Trial = trial) -> None:
            if is_main():
                tell(trial, news)

        try:
            result = plan.run(trial, out / "trials" / trial.key, told)
        except Exception as error:  # a trial that fails does not take the others with it
            result = {"failed": f"{type(error).__name__}: {error}"[:300]}
        if is_main():
            yield trial, result
        wait()
