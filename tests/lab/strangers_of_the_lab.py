"""Encodings of a stranger, for trials that run in other processes."""

import os
import signal
import time
from pathlib import Path

import torch

import milepost


class Breaks(milepost.Encoding):
    """Raises as soon as it is used."""

    def query(self, q, pos):
        raise RuntimeError("a stranger's mistake")


class Spoils(milepost.Encoding):
    """Makes every loss something else than a number."""

    def query(self, q, pos):
        return q * float("nan")


class DiesOnce(milepost.Encoding):
    """Kills its own process at step 60 of the first life: a mark in the current folder of the test tells the second."""

    def __init__(self, mark: str):
        super().__init__()
        self.mark, self.calls = mark, 0

    def query(self, q, pos):
        self.calls += 1
        if self.calls == 60 and torch.is_grad_enabled() and not Path(self.mark).exists():
            Path(self.mark).write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)
        return q
