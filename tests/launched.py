"""Two processes that work together on this machine's CPU, as `accelerate launch` (or torchrun) starts them where there are GPUs.

`accelerate launch --cpu --num_processes 2` starts one process alone, and says nothing: so what both have done is asked of what they leave behind.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def launch(*words: str, cwd: Path | None = None) -> None:
    """Run a file, or ``-m`` a module, with its words in two processes; an error where one of them fails."""
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "GLOO_SOCKET_IFNAME": "lo",
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",
    }
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", *words]
    done = subprocess.run(start, capture_output=True, text=True, env=env, timeout=300, check=False, cwd=cwd)
    assert done.returncode == 0, done.stderr[-3000:]
