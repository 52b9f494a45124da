"""Time and memory: what positions cost on this machine, in plain code and with the engine.

growth    peak memory when the tokens double: 2 times where it is O(N), 4 times where it is O(N²), 1 where it is O(1)
ratio     time of attention with positions, over attention without, measured in turns
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch

from milepost.bench.contestants import baseline, encoding, materialised, milepost
from milepost.claims.experiment import Claim, Measurement, NotMeasured, Number, Plot, core, limit, points
from milepost.encodings.sinusoidal import Sinusoidal
from milepost.measure.intervals import mean
from milepost.measure.memory import peak_mb

HEADS, SIZE = 8, 64
WIDE = HEADS * SIZE
ROUNDS = 9
TIMED = 2048
"""Tokens."""
PLACED = (16384, 32768)
ATTENDED = (1024, 2048)
MATRIX, ENGINE = "bias, as a matrix", "bias, with the engine"


def _peak(run: Callable[[], Any]) -> list[float]:
    """Peaks of a call in MB, three times."""
    with torch.no_grad():
        run()
        peaks = [peak for _ in range(3) if (peak := peak_mb(run)) is not None]
    if len(peaks) < 3:
        raise NotMeasured("peak memory can't be read on this system")
    return peaks


def _growth(small: list[float], large: list[float]) -> Number:
    """The ratio of peaks, from the least to the most that they allow."""
    if min(small) <= 0:
        raise NotMeasured("a peak of memory is too small to be seen on this system")
    low, high = min(large) / max(small), max(large) / min(small)
    return Number(median(large) / median(small), low, high, f"{len(small)} rounds")


def _random_qkv(n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, HEADS, n, SIZE, generator=generator) for _ in range(3))
    return q, k, v


def _positions_alone(kind: str, n: int) -> Callable[[], Any]:
    """What a scheme computes for n positions, without the attention."""
    pos, x, (q, k, _) = torch.arange(n), torch.zeros(1, n, WIDE), _random_qkv(n)
    rope, alibi = encoding("rope", HEADS, SIZE), encoding("alibi", HEADS, SIZE)
    h = torch.arange(HEADS)[:, None, None]
    return {
        "addition": lambda: Sinusoidal(WIDE).embed(x, pos.clone()),
        "rotation": lambda: (rope.query(q, pos.clone()), rope.key(k, pos.clone())),
        MATRIX: lambda: alibi.bias(h, pos[:, None], pos[None, :]).float(),
    }[kind]


def measure_memory() -> Measurement:
    """How peak memory grows when the text doubles."""
    lengths = {"addition": PLACED, "rotation": PLACED, MATRIX: ATTENDED}
    growths = {kind: _growth(*(_peak(_positions_alone(kind, n)) for n in both)) for kind, both in lengths.items()}
    alibi, peaks = encoding("alibi", HEADS, SIZE), []
    for n in ATTENDED:
        run, qkv = milepost(alibi, 2 * n, "cpu"), _random_qkv(2 * n)
        peaks.append(_peak(lambda run=run, qkv=qkv: run(*qkv)))  # type: ignore[misc]
    growths[ENGINE] = _growth(*peaks)
    numbers = dict(zip(("addition", "rotation", "bias", "engine"), growths.values(), strict=True))
    return Measurement(numbers, (points("Peak memory when the text doubles", "times", growths, 3.0),))


def ratios() -> dict[str, list[float]]:
    """By scheme: time over that of attention without positions, in each of several rounds."""
    q, k, v = _random_qkv(TIMED)
    x, pos = torch.zeros(1, TIMED, WIDE), torch.arange(TIMED)
    alibi, rope, added = encoding("alibi", HEADS, SIZE), encoding("rope", HEADS, SIZE), Sinusoidal(WIDE)
    plain = materialised(alibi, TIMED, "cpu")
    engine, turning = (milepost(enc, TIMED, "cpu") for enc in (alibi, rope))
    runs: dict[str, Callable[[], Any]] = {
        "none": lambda: baseline(q, k, v),
        "addition": lambda: (added.embed(x, pos), baseline(q, k, v)),
        "rotation": lambda: turning(q, k, v),
        MATRIX: lambda: plain(q, k, v),
        ENGINE: lambda: engine(q, k, v),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    with torch.no_grad():
        for turn in range(ROUNDS + 1):
            for name, run in runs.items():
                start = time.perf_counter()
                run()
                if turn:
                    seconds[name].append(time.perf_counter() - start)
    none = seconds.pop("none")
    return {name: [a / b for a, b in zip(mine, none, strict=True)] for name, mine in seconds.items()}


def _over_rounds(values: list[float]) -> Number:
    rounds = mean(np.array(values)[:, None], np.arange(len(values)))
    return Number(rounds.value, rounds.low, rounds.high, f"{len(values)} rounds")


def _minus(a: list[float], b: list[float]) -> Number:
    """a - b, round by round."""
    return _over_rounds([x - y for x, y in zip(a, b, strict=True)])


def _plot_times(times: dict[str, list[float]]) -> Plot:
    numbers = {name: _over_rounds(values) for name, values in times.items()}
    return points(f"Time over no position, {TIMED} tokens", "times", numbers, 1.0)


def measure_latency() -> Measurement:
    """Times in one run, as ratios to no position."""
    times = ratios()
    numbers = {
        "bias": _minus(times[MATRIX], times["rotation"]),
        "rotation": _minus(times["rotation"], times["addition"]),
        "engine": _over_rounds(times[ENGINE]),
    }
    return Measurement(numbers, (_plot_times(times),))


def measure_cheapest() -> Measurement:
    """ALiBi as a matrix against rotation, in time; and the matrix against the code that is added, in memory."""
    times = ratios()
    matrix, added = (_peak(_positions_alone(kind, TIMED)) for kind in (MATRIX, "addition"))
    low, high = min(matrix) - max(added), max(matrix) - min(added)
    numbers = {
        "time": _minus(times[MATRIX], times["rotation"]),
        "memory": Number(median(matrix) - median(added), low, high, "3 rounds"),
    }
    engine, rotation = _over_rounds(times[ENGINE]), _over_rounds(times["rotation"])
    note = f"with the engine alibi takes {engine} times as long as no position, rotation {rotation} times"
    return Measurement(numbers, (_plot_times(times),), (note,))


CLAIMS = (
    Claim(
        "memory",
        "Memory: addition O(Nd), bias O(N²) or bucketed O(N), rotation O(1).",
        "显存占用：加法 O(Nd)，偏置 O(N²) 或分桶 O(N)，旋转 O(1)。",
        "001 §6.1",
        "Peak memory of what each scheme computes for its positions, when the text doubles (addition and rotation: "
        f"{PLACED[0]} to {PLACED[1]} tokens; a bias as a matrix: {ATTENDED[0]} to {ATTENDED[1]}); and of whole "
        "attention with a bias by the engine.",
        (
            core("addition", "at most", 3.0, "the growth of addition"),
            core("bias", "at least", 3.0, "the growth of a bias as a matrix"),
            limit("rotation", "at most", 1.5, "the growth of rotation"),
            limit("engine", "at least", 3.0, "the growth of attention with a bias by the engine"),
        ),
        timed=measure_memory,
    ),
    Claim(
        "latency",
        "Latency: bias > rotation > addition.",
        "推理时延：偏置 > 旋转 > 加法。",
        "001 §6.1",
        f"Time of causal attention over {TIMED} tokens with each scheme, over that without positions, measured in "
        "turns; a bias as a matrix, and by the engine.",
        (
            core("bias", "at least", 0.0, "the ratio of a bias as a matrix minus that of rotation"),
            core("rotation", "at least", 0.0, "the ratio of rotation minus that of addition"),
            limit("engine", "at least", 1.5, "the ratio of a bias by the engine"),
        ),
        timed=measure_latency,
    ),
    Claim(
        "alibi-cheapest",
        "ALiBi has the lowest cost and no storage.",
        "ALiBi 的计算开销最低，且无需额外存储。",
        "002",
        f"Time of causal attention over {TIMED} tokens with alibi as a matrix, as in plain code, against rotation; "
        "and the memory of that matrix against that of the codes that are added.",
        (
            core(
                "time",
                "at most",
                0.0,
                "the ratio of alibi's time to that without positions minus the ratio of rotation's",
            ),
            core("memory", "at most", 0.0, "the memory of alibi's matrix minus that of codes that are added, in MB"),
        ),
        timed=measure_cheapest,
    ),
)
