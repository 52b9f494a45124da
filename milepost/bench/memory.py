"""Peak memory of one call: the highest resident size during it, less the size before it. Linux; None elsewhere."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_mb(run: Callable[[], Any], device: str = "cpu") -> float | None:
    """How many MB more than before the process held at its peak while ``run`` ran."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before: float = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before) / 2**20
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)  # give freed memory back, or it would hide a new peak
        _RESET.write_text("5")  # the high-water mark starts again from here
        before = _field("VmRSS")
        run()
        return max(0.0, _field("VmHWM") - before)
    except (OSError, AttributeError):
        return None


def _field(name: str) -> float:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024
    raise OSError(f"{name} is not in {_STATUS}")
