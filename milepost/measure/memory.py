"""Memory: the most that this process held, as Linux counts it; None elsewhere.

peak_mb(run)                      while ``run`` ran, less what was held before it
reset_peak, held_at_peak_mb       since the last reset, all of it
keep_freed                        freed memory stays with this process, for its next tensors
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

MMAP_THRESHOLD, TRIM_THRESHOLD, NEVER = -3, -1, 1 << 30
"""Options of glibc's mallopt: the size from which on memory is mapped by itself, and given back; bytes that nobody asks
for."""
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


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
    except (OSError, AttributeError):  # another C library
        return None
    if not reset_peak() or (held := _read_field("VmRSS")) is None:
        return None
    run()
    return max(0.0, (held_at_peak_mb() or 0.0) - held)


def keep_freed() -> bool:
    """Let this process keep what it frees; False where the C library can't. For processes that only train.

    A training step makes and frees the same tensors again and again. glibc gives the larger ones back to the system,
    which clears them page by page when they come again: thousands of page faults a step.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(MMAP_THRESHOLD, NEVER) and mallopt(TRIM_THRESHOLD, NEVER))


def reset_peak() -> bool:
    """Count the peak from here, such as that of the next of several trials; False where that can't be done."""
    try:
        RESET.write_text("5")
    except OSError:
        return False
    return True


def held_at_peak_mb() -> float | None:
    """The highest resident size since `reset_peak`, or since the process began."""
    return _read_field("VmHWM")


def _read_field(name: str) -> float | None:
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:")), None)
