"""Time and memory: what positions cost on this machine, as others write them and with the engine.

growth    peak memory at twice the tokens, over that at once: 2 where it is O(N), 4 where it is O(N²), 1 where it is O(1)
ratio     time of attention with a position, over attention with none, measured in turns
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch

from milepost.bench.contestants import baseline, encoding, materialised, milepost
from milepost.bench.memory import peak_mb
from milepost.claims.claim import Claim, Found, NotMeasured, points
from milepost.claims.rule import Number, core, limit
from milepost.encodings.sinusoidal import Sinusoidal
from milepost.measure.intervals import mean

HEADS, SIZE = 8, 64
WIDE = HEADS * SIZE
ROUNDS = 9
TIMED = 2048
"""Tokens."""
PLACED = (16384, 32768)
ATTENDED = (1024, 2048)


def _peak(run: Callable[[], Any]) -> list[float]:
    """Peaks of a call in MB, three times."""
    with torch.no_grad():
        run()
        found = [peak_mb(run) for _ in range(3)]
    if None in found:
        raise NotMeasured("peak memory can't be read on this system")
    return [one for one in found if one is not None]


def _growth(small: list[float], large: list[float]) -> Number:
    """The ratio of peaks, from the least to the most that they allow."""
    if min(small) <= 0:
        raise NotMeasured("a peak of memory is too small to be seen on this system")
    return Number(
        median(large) / median(small), min(large) / max(small), max(large) / min(small), f"{len(small)} rounds"
    )


def _given(n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, HEADS, n, SIZE, generator=generator) for _ in range(3))
    return q, k, v


def _places(kind: str, n: int) -> Callable[[], Any]:
    """What a scheme does with n positions, without the attention."""
    pos, x, (q, k, _) = torch.arange(n), torch.zeros(1, n, WIDE), _given(n)
    rope, alibi = encoding("rope", HEADS, SIZE), encoding("alibi", HEADS, SIZE)
    h = torch.arange(HEADS)[:, None, None]
    return {
        "addition": lambda: Sinusoidal(WIDE).embed(x, pos.clone()),
        "rotation": lambda: (rope.query(q, pos.clone()), rope.key(k, pos.clone())),
        "bias, as a matrix": lambda: alibi.bias(h, pos[:, None], pos[None, :]).float(),
    }[kind]


def memory_found() -> Found:
    """How peak memory grows when the text doubles."""
    found = {kind: _growth(*(_peak(_places(kind, n)) for n in PLACED)) for kind in ("addition", "rotation")}
    found["bias, as a matrix"] = _growth(*(_peak(_places("bias, as a matrix", n)) for n in ATTENDED))
    alibi, peaks = encoding("alibi", HEADS, SIZE), []
    for n in (2 * ATTENDED[0], 2 * ATTENDED[1]):
        run, given = milepost(alibi, n, "cpu"), _given(n)
        peaks.append(_peak(lambda run=run, given=given: run(*given)))  # type: ignore[misc]
    found["bias, with the engine"] = _growth(*peaks)
    numbers = {
        "addition": found["addition"],
        "rotation": found["rotation"],
        "bias": found["bias, as a matrix"],
        "engine": found["bias, with the engine"],
    }
    return Found(numbers, (points("Peak memory when the text doubles", "times", found, 3.0),))


def ratios() -> dict[str, list[float]]:
    """By scheme: time over that of attention with no position, in each of several rounds."""
    q, k, v = _given(TIMED)
    x, pos = torch.zeros(1, TIMED, WIDE), torch.arange(TIMED)
    alibi, rope, added = encoding("alibi", HEADS, SIZE), encoding("rope", HEADS, SIZE), Sinusoidal(WIDE)
    plain, engine, turning = (
        materialised(alibi, TIMED, "cpu"),
        milepost(alibi, TIMED, "cpu"),
        milepost(rope, TIMED, "cpu"),
    )
    runs: dict[str, Callable[[], Any]] = {
        "none": lambda: baseline(q, k, v),
        "addition": lambda: (added.embed(x, pos), baseline(q, k, v)),
        "rotation": lambda: turning(q, k, v),
        "bias, as a matrix": lambda: plain(q, k, v),
        "bias, with the engine": lambda: engine(q, k, v),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    with torch.no_grad():
        for turn in range(ROUNDS + 1):
            for name, run in runs.items():
                start = time.perf_counter()
                run()
                if turn:
                    seconds[name].append(time.perf_counter() - start)
    return {
        name: [a / b for a, b in zip(mine, seconds["none"], strict=True)]
        for name, mine in seconds.items()
        if name != "none"
    }


def _over_rounds(values: list[float]) -> Number:
    one = mean(np.array(values)[:, None], np.arange(len(values)))
    return Number(one.value, one.low, one.high, f"{len(values)} rounds")


def _less(a: list[float], b: list[float]) -> Number:
    """a - b, round by round."""
    return _over_rounds([x - y for x, y in zip(a, b, strict=True)])


def latency_found() -> Found:
    """Times in one run, as ratios to no position."""
    found = ratios()
    bias, turned, added, engine = (
        found[name] for name in ("bias, as a matrix", "rotation", "addition", "bias, with the engine")
    )
    numbers = {"bias": _less(bias, turned), "rotation": _less(turned, added), "engine": _over_rounds(engine)}
    return Found(
        numbers,
        (
            points(
                f"Time over no position, {TIMED} tokens", "times", {n: _over_rounds(v) for n, v in found.items()}, 1.0
            ),
        ),
    )


def cheapest_found() -> Found:
    """ALiBi as a matrix and with the engine against rotation, in time; and the matrix against the code that is added, in memory."""
    found = ratios()
    held = {kind: _peak(_places(kind, TIMED)) for kind in ("bias, as a matrix", "addition")}
    more = Number(
        median(held["bias, as a matrix"]) - median(held["addition"]), min(held["bias, as a matrix"]) - max(held["addition"]),
        max(held["bias, as a matrix"]) - min(held["addition"]), "3 rounds",
    )  # fmt: skip
    numbers = {"time": _less(found["bias, as a matrix"], found["rotation"]), "memory": more}
    note = f"with the engine alibi takes {_over_rounds(found['bias, with the engine'])} times no position, rotation {_over_rounds(found['rotation'])}"
    return Found(
        numbers,
        (
            points(
                f"Time over no position, {TIMED} tokens", "times", {n: _over_rounds(v) for n, v in found.items()}, 1.0
            ),
        ),
        (note,),
    )


CLAIMS = (
    Claim(
        "memory",
        "Memory: addition O(Nd), bias O(N²) or bucketed O(N), rotation O(1).",
        "显存占用：加法 O(Nd)，偏置 O(N²) 或分桶 O(N)，旋转 O(1)。",
        "001 §6.1",
        f"Peak memory of what each scheme does with its positions, when the text doubles (addition and rotation: {PLACED[0]} to {PLACED[1]} tokens; a "
        f"bias as a matrix: {ATTENDED[0]} to {ATTENDED[1]}); and of whole attention with a bias by the engine.",
        (
            core("addition", "at most", 3.0, "the growth of addition"),
            core("bias", "at least", 3.0, "the growth of a bias as a matrix"),
            limit("rotation", "at most", 1.5, "the growth of rotation"),
            limit("engine", "at least", 3.0, "the growth of attention with a bias by the engine"),
        ),
        timed=memory_found,
    ),
    Claim(
        "latency",
        "Latency: bias > rotation > addition.",
        "推理时延：偏置 > 旋转 > 加法。",
        "001 §6.1",
        f"Time of causal attention over {TIMED} tokens with each scheme, over that with no position, measured in turns; a bias as a matrix, and by the engine.",
        (
            core("bias", "at least", 0.0, "the ratio of a bias as a matrix less that of rotation"),
            core("rotation", "at least", 0.0, "the ratio of rotation less that of addition"),
            limit("engine", "at least", 1.5, "the ratio of a bias by the engine"),
        ),
        timed=latency_found,
    ),
    Claim(
        "alibi-cheapest",
        "ALiBi has the lowest cost and no storage.",
        "ALiBi 的计算开销最低，且无需额外存储。",
        "002",
        f"Time of causal attention over {TIMED} tokens with alibi as a matrix, as plain code has it, against rotation; and the memory of that matrix "
        "against the codes that addition makes.",
        (
            core("time", "at most", 0.0, "the ratio of alibi's time to no position, less rotation's,"),
            core("memory", "at most", 0.0, "the memory of alibi's matrix less that of codes to add, in MB,"),
        ),
        timed=cheapest_found,
    ),
)
