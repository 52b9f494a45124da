"""seeded: random tables of encodings and models, the same at each request.

They are drawn from torch's one generator, so requests take turns. What is drawn is small (see `specs`), and requests
compute everything else side by side.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_TURN = threading.Lock()


@contextmanager
def seeded() -> Iterator[None]:
    """Draw from seed 0, alone; the generator's state is as before afterwards."""
    with _TURN, torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
