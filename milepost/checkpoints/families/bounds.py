"""bounds: what measuring one config may take, whatever its numbers say.

A config of some hundred bytes can ask for millions of layers or for images of a mile, and the classes that read a
config copy it forty times. So its values are counted before any class reads it; building is counted while it goes on,
on torch's "meta" device, which takes no memory; what is kept of a run is counted too; the process gets no more memory
than `ROOM`; and a clock of the processor's time ends whatever takes too long. `Exceeded` passes every
`except Exception` on its way, and `measure` makes a sentence of it. A cut that is too large is a `CannotBuild`: another
may be tried.
"""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from milepost.checkpoints.model.patch import hooked

SECONDS = 1.7
"""Of the processor, for building and running; 64 layers of the slowest class of text that is known take 1.3."""
NUMBERS = 1 << 25
"""Parameters and buffers of a model, and numbers that are kept of its run: 128 MB each."""
PART = 0.6
"""The share of that time after which a run is ended whose layers have all been seen."""
ROOM = 448 << 20
"""Bytes of memory for all of it: an operation that asks for more gets an error, and not the memory."""
LAYERS = 128
"""Layers that are built at most: a model of more is refused, not cut, because its last layers may differ."""
VALUES = 1 << 13
"""Values of a config, in parts and lists of whatever depth; a class takes 0.2 s to read and copy as many."""
COUNTS = re.compile(r"layers$|layers_|n_layer$|num_layer$|^depths?$|n_blocks$|num_blocks$")
"""Keys that say how many layers there are."""


class CannotBuild(Exception):  # noqa: N818
    """Why a class can't be built small and run: one sentence."""


class Exceeded(BaseException):
    """Why measuring was given up: one sentence."""


class Clock:
    """Counts the processor's time from its making on."""

    def __init__(self) -> None:
        self.began, self.limit = time.process_time(), SECONDS

    def check(self, *_: Any) -> None:
        if time.process_time() - self.began > self.limit:
            raise Exceeded(f"measuring a small model of it takes more than {SECONDS:g} s of the processor")


def layers_of(data: Mapping[str, Any]) -> int:
    """The largest number of layers that a config names, in whatever part of it."""
    most, todo = 0, [data]
    while todo:
        for key, value in todo.pop().items():
            if isinstance(value, Mapping):
                todo.append(value)
            elif isinstance(value, list) and "layer" in str(key):
                most = max(most, len(value))
            elif type(value) is int and COUNTS.search(str(key)):
                most = max(most, value)
    return most


def values_of(data: Mapping[str, Any]) -> int:
    """How many values a config has: every entry of its parts and lists counts."""
    count, todo = 0, [list(data.values())]
    while todo:
        values = todo.pop()
        count += len(values)
        todo += [list(v.values()) if isinstance(v, Mapping) else v for v in values if isinstance(v, Mapping | list)]
    return count


_LIMIT = threading.RLock()  # the limit is the process's: two threads at once would leave one's limit behind


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Within it, this process can take `ROOM` bytes more and no more, on systems that can say so (not on Windows).

    One thread at a time; others wait.
    """
    with _LIMIT, contextlib.ExitStack() as after:
        with contextlib.suppress(ImportError, OSError, ValueError):
            import resource

            taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            soft, hard = resource.getrlimit(resource.RLIMIT_AS)
            limit = taken + ROOM if soft == resource.RLIM_INFINITY else min(soft, taken + ROOM)
            resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
            after.callback(resource.setrlimit, resource.RLIMIT_AS, (soft, hard))
        yield


@contextlib.contextmanager
def counted(clock: Clock) -> Iterator[None]:
    """Within it, every parameter and buffer that a module gets is counted, and the clock looked at."""
    from torch.nn.modules.module import (
        register_module_buffer_registration_hook,
        register_module_module_registration_hook,
        register_module_parameter_registration_hook,
    )

    here, held = threading.get_ident(), 0

    def count(module: Any, name: str, given: Any) -> None:
        nonlocal held
        if threading.get_ident() != here:
            return
        held += given.numel() if hasattr(given, "numel") else 0
        clock.check()
        if held > NUMBERS:
            raise CannotBuild(f"it has more than {NUMBERS / 1e6:.0f} million parameters even with small widths")

    hooks = [
        register(count)
        for register in (
            register_module_module_registration_hook,
            register_module_parameter_registration_hook,
            register_module_buffer_registration_hook,
        )
    ]
    with hooked(*hooks):
        yield
