"""Run one target in this process: each input with a limit of time and memory, and judge what came of it.

    python -m tools.attack.inputs gguf_files --inputs 1000 --seed 0

Prints JSON: how many inputs were read, how many refused, and the findings.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import linecache
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import milepost

HOME = str(Path(milepost.__file__).parent)
SECONDS, MEGABYTES = 2.0, 500.0
"""What one input may take. The time is the processor's, so that a busy machine is no finding."""
WARM = 20
"""Inputs at the beginning that may take longer: they import what they need.

A run that goes on from a number makes those before it again, uncounted: pieces of a run judge what a whole one does.
"""
ALARM = 30
"""Seconds of the processor after which an input is stopped."""
SPACE = 6 << 30
"""Bytes of address space over those that are taken at the start: more is a MemoryError, and a finding."""


class TooLong(BaseException):
    """Raised by the alarm: no `except Exception` on the way stops it."""


def is_ours(error: BaseException) -> bool:
    """Whether a ValueError is a sentence that milepost wrote: it was raised by a ``raise`` of its own files."""
    if not isinstance(error, ValueError):
        return False
    last = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    return last.filename.startswith(HOME) and line.startswith("raise")


def judge(error: BaseException) -> str | None:
    """What an error says against the package; None for a refusal in one sentence."""
    if is_ours(error):
        words = str(error)
        if words and "\n" not in words and len(words) < 1500:
            return None
        return f"a refusal that is not one sentence: {words[:200]!r}"
    frames = traceback.extract_tb(error.__traceback__)
    place = next((frame for frame in reversed(frames) if frame.filename.startswith(HOME)), frames[-1])
    return f"{type(error).__name__}: {str(error)[:200]} at {Path(place.filename).name}:{place.lineno}"


@contextlib.contextmanager
def stopped_after(seconds: int) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TooLong(f"stopped after {seconds} s")

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


@contextlib.contextmanager
def own_cache(folder: Path) -> Iterator[None]:
    """Within it, nothing is kept of the user's cache, nor in it."""
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("XDG_CACHE_HOME")
        if before is not None:
            os.environ["XDG_CACHE_HOME"] = before


def peak() -> float:
    """The most megabytes that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def once(module: Any, state: Any, name: str) -> tuple[bool, str | None, float, float]:
    """One input: whether it was read, what speaks against the package, seconds of the processor, and megabytes."""
    held, clock, what, read = peak(), time.process_time(), None, False
    try:
        with stopped_after(ALARM):
            module.attack(state, random.Random(name))
        read = True
    except (Exception, TooLong) as error:
        what = judge(error)
    return read, what, time.process_time() - clock, peak() - held


def run(target: str, inputs: int, seed: int = 0, first: int = 0, seconds: float = 1e9) -> dict[str, Any]:
    """So many inputs from the one numbered ``first`` on, or as many as there is time for."""
    module = importlib.import_module(f"tools.attack.{target}")
    counts = {"target": target, "inputs": 0, "read": 0, "refused": 0, "slowest": 0.0, "largest": 0.0}
    findings: list[dict[str, Any]] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="milepost-attack-") as folder, own_cache(Path(folder) / "cache"):
        state = module.prepare(Path(folder))
        start = max(0, first - WARM)
        for number in range(start, first + inputs):
            if time.monotonic() - began > seconds:
                break
            name = f"{target} {seed} {number}"
            read, what, spent, more = once(module, state, name)
            if number < first:
                continue
            if what is None and spent > SECONDS:  # again: what it imported is a valid input's time too
                shutil.rmtree(Path(folder) / "cache", ignore_errors=True)
                read, what, spent, _ = once(module, state, name)
            counts["read"] += read
            counts["refused"] += not read and what is None
            counts["inputs"] += 1
            if number - start >= WARM:
                counts["slowest"], counts["largest"] = max(counts["slowest"], spent), max(counts["largest"], more)
                if what is None and (spent > SECONDS or more > MEGABYTES):
                    what = f"took {spent:.1f} s and {more:.0f} MB"
            if what is not None:
                findings.append({"target": target, "seed": seed, "input": number, "what": what})
    return {**counts, "seconds": round(time.monotonic() - began, 1), "findings": findings}


def main() -> None:
    """One target, from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("target")
    parser.add_argument("--inputs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9)
    asked = parser.parse_args()
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + SPACE, resource.RLIM_INFINITY))
    found = run(asked.target, asked.inputs, asked.seed, asked.first, asked.seconds)
    print(json.dumps(found))
    sys.exit(bool(found["findings"]))


if __name__ == "__main__":
    main()
