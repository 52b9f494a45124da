"""The parts of `bench all`, each of which runs in processes of its own: one for each scheme where ratios are what
counts.

What ran before in a process moves the figures of what runs after it, by what the allocator then keeps and gives back: a
training step with kerple took 1.5 times attention without positions behind the peers that write biases out whole, and
1.2 times alone. `python -m milepost.bench.parts NAME [SCHEME]` is such a process: it prints a line of JSON for each
message, and one with the rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from tempfile import TemporaryFile
from typing import Any

from milepost.bench.attention import bench_attention
from milepost.bench.contestants import CONTENT, EMBEDDED, GRID, MAPS, OTHERS, STATES, TOEPLITZ, TURNED
from milepost.bench.decode import bench_decode
from milepost.bench.lab_model import bench_train
from milepost.bench.memory import bench_memory
from milepost.bench.rope import bench_rope

PLAIN = ("rope", *TOEPLITZ)
Rows = list[dict[str, Any]]
Tell = Callable[[str], None]


TIMED: dict[str, tuple[str, ...]] = {
    "forward-4096": PLAIN,
    "content-4096": CONTENT,
    "training-4096": ("rope", "alibi", "t5"),
    "training-ours-4096": ("kerple", "sandwich", *CONTENT),
    "decode-16384": ("rope", *TOEPLITZ, "fox", *CONTENT, *MAPS),
    "decode-4096": MAPS,
    "forward-16384": (*PLAIN, *CONTENT),
}
"""The parts whose schemes are compared with what they must reach: each scheme has a process of its own."""


def parts(tell: Tell, only: Sequence[str] = ()) -> dict[str, Callable[[], Rows]]:
    """Every part by its name, in the order of the document; with ``only``, of these schemes alone."""

    def attention(length: int, schemes: Sequence[str], kind: str, rounds: int, **how: Any) -> Callable[[], Rows]:
        return lambda: list(
            bench_attention((length,), only or schemes, passes=(kind,), rounds=rounds, tell=tell, **how)["rows"]
        )

    def decode(length: int, schemes: Sequence[str], staged: bool) -> Callable[[], Rows]:
        return lambda: list(bench_decode(length, only or schemes, rounds=3, staged=staged, tell=tell)["rows"])

    ours, timed = {"ours_only": True}, {"ours_only": True, "memory": False}
    memory, schemes = partial(bench_memory, tell=tell), TIMED
    return {
        "rotation": lambda: list(bench_rope(tell=tell)["rows"]),
        "forward-4096": attention(4096, schemes["forward-4096"], "forward", 5),
        "content-4096": attention(4096, schemes["content-4096"], "forward", 4),
        "training-4096": attention(4096, schemes["training-4096"], "training", 3),
        "training-ours-4096": attention(4096, schemes["training-ours-4096"], "training", 3, **ours),
        "decode-16384": decode(16384, schemes["decode-16384"], only in ((), ("rope",))),
        "decode-4096": decode(4096, schemes["decode-4096"], False),
        "forward-16384": attention(16384, schemes["forward-16384"], "forward", 5, **timed),
        "memory-16384": lambda: memory(16384, (*PLAIN, *CONTENT, "fox")),
        "training-memory-16384": attention(16384, TOEPLITZ, "training", 0, **ours),
        "memory-65536": lambda: memory(65536, ("alibi", "t5"), heads=1),
        "others-4096": attention(4096, (*TURNED, *STATES, *OTHERS, *EMBEDDED, *GRID), "forward", 3),
        "path-512": attention(512, ("path",), "forward", 3, **ours),
        "lab": lambda: list(bench_train(rounds=9, plain=False, tell=tell)["rows"]),
    }


def run_apart(name: str, tell: Tell) -> Rows:
    """The rows of a part, from processes of its own; ``tell`` gets its messages."""
    rows: Rows = []
    processes: list[tuple[str, ...]] = [(scheme,) for scheme in TIMED.get(name, ())]
    for schemes in processes or [()]:
        more = _run_process(name, schemes, tell)
        rows += [row for row in more if not rows or row.get("scheme") != "nope"]  # what ratios are to: one row of it
    return rows


def _run_process(name: str, schemes: Sequence[str], tell: Tell) -> Rows:
    words = [sys.executable, "-P", "-m", "milepost.bench.parts", name, *schemes]
    rows: Rows | None = None
    with (
        TemporaryFile("w+") as errors,  # a pipe that nobody reads would fill up, and stop the process
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            for line in process.stdout:
                news = json.loads(line)
                if "rows" in news:
                    rows = news["rows"]
                else:
                    tell(news["tell"])
            process.wait()
        except BaseException:
            process.kill()
            raise
        errors.seek(0)
        said = errors.read().strip().splitlines()
    if process.returncode or rows is None:
        last = said[-1] if said else "no word"
        raise RuntimeError(f"the process that runs the part {name} stopped ({process.returncode}): {last}")
    return rows


def _say(**news: Any) -> None:
    print(json.dumps(news), flush=True)


if __name__ == "__main__":
    _say(rows=parts(lambda text: _say(tell=text), tuple(sys.argv[2:]))[sys.argv[1]]())
