"""How real servers are started on loopback, each out of an environment of its own, which `make served` makes."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from pathlib import Path

from milepost.served import connect
from milepost.served.servers.client import ServerError

ROOT = Path(__file__).parents[3]
ENVIRONMENTS = Path(os.environ.get("MILEPOST_SERVED", ROOT / ".served"))
PATIENCE = 300
"""Seconds until a server has to answer."""


def environment(name: str) -> Path:
    """The programs of an environment; `make served` says how it is made."""
    folder = ENVIRONMENTS / name / "bin"
    assert folder.is_dir(), f"there is no environment at {folder}: run `make served`"
    return folder


@contextlib.contextmanager
def process(words, **how):
    """A process that is given a free port in place of {port}; the connected subject, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = subprocess.Popen(
        [str(word).replace("{port}", str(port)) for word in words],
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        end = time.monotonic() + PATIENCE
        while True:
            assert started.poll() is None, f"the server ended with code {started.returncode}"
            try:
                subject = connect(f"http://127.0.0.1:{port}", **how)
                break
            except ServerError as error:
                assert time.monotonic() < end, str(error)
                time.sleep(0.3)
        yield subject
    finally:
        started.terminate()
        started.wait(30)
