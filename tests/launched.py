"""Two processes that work together on this machine's CPU, with the environment that torchrun and `accelerate launch`
give.

`accelerate launch --cpu --num_processes 2` starts one process alone, and does not say so. What both processes did is
therefore asked of the files that they leave behind.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def launch(*words: str, cwd: Path | None = None) -> None:
    """Run a file, or ``-m`` a module, with its words in two processes; an error where one of them fails."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {
        "PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo", "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
    }  # fmt: skip
    started = []
    for rank in "01":
        env = {**os.environ, **shared, "RANK": rank, "LOCAL_RANK": rank}
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen([sys.executable, *words], env=env, cwd=cwd, **pipes))
    try:
        errors = [process.communicate(timeout=300)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0, 0], "\n".join(errors)[-3000:]
