"""Processes: the trials side by side on this machine, each in a process of its own.

Trials at once times the threads of each are at most the cores.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from milepost.lab.plan import LabPlan
from milepost.lab.trial import Trial
from milepost.lab.user_modules import search_path

News = dict[str, Any]
Tell = Callable[[Trial, News], None]


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(trials: int, workers: int | None) -> int:
    """How many trials run at once."""
    if workers is not None and not 1 <= workers <= cores():
        raise ValueError(f"--workers is from 1 to the {cores()} cores of this machine, got {workers}")
    return max(1, min(trials, workers or _gpus() or cores()))


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


def run_all(
    plan: LabPlan, todo: list[Trial], out: Path, workers: int | None, tell: Tell
) -> Iterator[tuple[Trial, News]]:
    """Finished trials as they come."""
    if not todo:
        return
    side = max(1, min(side_by_side(len(todo), workers), cores() // plan.threads))
    waiting: queue.Queue[Trial] = queue.Queue()
    for trial in todo:
        waiting.put(trial)
    news: queue.Queue[tuple[Trial, News]] = queue.Queue()
    running: set[subprocess.Popen[str]] = set()

    def work(number: int) -> None:
        while True:
            try:
                trial = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                done = _run(trial, out, plan.threads, number, news, running)
            except Exception as error:  # no process to be had
                done = {"failed": f"{type(error).__name__}: {error}"}
            news.put((trial, done))

    for number in range(side):
        threading.Thread(target=work, args=(number,), daemon=True).start()
    left = len(todo)
    try:
        while left:
            trial, item = news.get()
            if "result" in item or "failed" in item:
                left -= 1
                yield trial, item.get("result", item)
            else:
                tell(trial, item)
    finally:
        while not waiting.empty():
            waiting.get_nowait()
        for process in list(running):
            process.kill()


def _run(
    trial: Trial,
    out: Path,
    threads: int,
    number: int,
    news: queue.Queue[tuple[Trial, News]],
    running: set[subprocess.Popen[str]],
) -> News:
    """One trial in a process of its own: its last line is the result.

    Its standard input closes when the driver dies, and so it ends too.
    """
    env = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONPATH": os.pathsep.join(search_path()),
    }
    if _gpus() > 1:
        env["CUDA_VISIBLE_DEVICES"] = str(number % _gpus())
    # -P: the working folder is not searched, so that a file there never stands in for a module of Python's
    command = [sys.executable, "-P", "-m", "milepost.lab.sweep.worker", str(out), trial.key]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=env) as process:
        running.add(process)
        words: list[str] = []
        reader = threading.Thread(target=lambda: words.extend(process.stderr or []), daemon=True)
        reader.start()
        last: Any = {}
        for line in process.stdout or []:
            try:
                last = json.loads(line)
            except json.JSONDecodeError:
                continue  # something else printed
            if isinstance(last, dict) and "result" not in last:
                news.put((trial, last))
        process.wait()
        reader.join(timeout=5)
        running.discard(process)
    if isinstance(last, dict) and "result" in last:
        return last
    code = process.returncode
    end = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    reason = next((line.strip() for line in reversed(words) if line.strip()), "")
    return {"failed": f"its process {end}" + (f": {reason[:300]}" if reason else "")}
