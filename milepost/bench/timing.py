"""Timing: interleave the contestants and keep the best of several rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

SLOW = 6.0
"""How many times the first contestant's time is slow enough to be measured once."""
CLOSE, MORE = 3.0, 3
"""Contestants within `CLOSE` times the first one's time take turns `MORE` times as often: there noise matters most."""


def best_seconds(
    contestants: Mapping[str, Callable[[], Any]],
    rounds: int,
    *,
    device: str = "cpu",
    warm: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, float]:
    """The shortest of ``rounds`` runs of each contestant, taking turns, after one run to warm up unless ``warm``.

    One that takes more than ``SLOW`` times the first contestant's time runs once: noise does not change what it says.
    Those within ``CLOSE`` times of it go on for ``MORE`` times as many rounds.
    """
    best = dict.fromkeys(contestants, float("inf"))
    first, last = next(iter(contestants)), MORE * rounds
    for turn in range(1 if warm else 0, last + 1):
        tell(f"round {turn} of {last}" if turn else "warming up")
        for name, run in contestants.items():
            if (SLOW if turn <= rounds else CLOSE) * best[first] < best[name] < float("inf"):
                continue
            start = time.perf_counter()
            run()
            if device == "cuda":
                torch.cuda.synchronize()
            if turn:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def check_sizes(device: str, **sizes: int) -> None:
    """Refuse what can't be measured, before anything is."""
    for word, size in sizes.items():
        if size < 1:
            raise ValueError(f"{word} must be at least 1, got {size}")
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise ValueError(f"device must be cpu, or cuda where there is one, got {device!r}")
