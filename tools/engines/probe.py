"""What an engine's rotation does, found by turning vectors with it. Runs inside of the engine's own environment.

A driver (one file for each engine) builds the engine's model and hands over its layers. Nothing is taken from the
engine's attributes but the functions that turn: unit vectors go in, and from what comes out follow the pairing, the
number of channels that turn, the frequency of every pair, and m, the factor on queries and keys.

    python DRIVER.py JOB.json OUT.jsonl     JOB has the cases; OUT gets a line for each, so that a run can resume
"""

from __future__ import annotations

import json
import math
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

SHOWN = 300
STILL = 1e-20
"""A smaller angle is none: llama.cpp divides those of pairs that are to stand still by 1e30."""
FAR = 100000
"""The position at which what multiplies queries is taken; as in milepost.rope.engines.measured."""


class NotMeasured(Exception):  # noqa: N818 (it is an answer)
    """The engine has no class for this model, or could not be run for a reason that has nothing to do with rotation."""


@dataclass
class Layer:
    """One layer. ``turn(x, position, length)`` turns the rows of ``x``; None where the layer does not turn.

    ``softmax`` is the factor on logits over 1/sqrt(head size), ``limit`` the number of positions that the engine has.
    ``assumed`` says why it is not known that the layer turns, where it is not. ``queries`` is what the query at
    position `FAR` is multiplied by besides, where the engine's class has code for that.
    """

    turn: Callable[[np.ndarray, int, int | None], np.ndarray] | None
    head: int = 0
    softmax: float | None = None
    window: int | None = None
    limit: int | None = None
    assumed: str = ""
    queries: float | None = None


def describe(layer: Layer, lengths: list[int]) -> dict[str, Any]:
    """The rotation of a layer in numbers."""
    assert layer.turn is not None
    size = layer.head
    matrix = np.asarray(layer.turn(np.eye(size, dtype=np.float32), 1, None), dtype=np.float64)
    pairs = _pairs(matrix)
    turned = len(pairs)
    apart = {b - a for a, b, _, _ in pairs}
    pairing = "other" if len(apart) > 1 else "interleaved" if apart == {1} and turned > 1 else "half"
    base = _table(matrix[[a for a, *_ in pairs]], pairs)
    tables = {"": base["w"]}
    for length in lengths:
        at = _table(_row(layer, pairs, 1, length), pairs)
        if not np.allclose(at["w"], base["w"], rtol=2e-6, atol=0):
            tables[str(length)] = at["w"]
    limit = lengths[0] if len(tables) > 1 else None  # beyond, the frequencies are others
    checked, error = _check(layer, pairs, base, lengths, limit)
    return {
        "head": size, "rotary": 2 * turned, "pairing": pairing,
        "m": float(np.float32(np.median(base["m"]))), "m_spread": float(f"{np.ptp(base['m']):.1e}"),
        "tables": {k: [float(np.float32(w)) for w in v] for k, v in tables.items()}, "positions": checked,
        "error": float(f"{error:.2e}"), "softmax": layer.softmax, "window": layer.window,
        **({} if layer.queries is None else {"queries": layer.queries}),
    }  # fmt: skip


def _pairs(matrix: np.ndarray) -> list[tuple[int, int, int, int]]:
    """The channels that make pairs, with the channels that they come out in (some engines permute them).

    Channels that come back as they went in, or nearly, are not turned.
    """
    places: dict[tuple[int, ...], list[int]] = {}
    for i, row in enumerate(matrix):
        places.setdefault(tuple(int(j) for j in np.flatnonzero(abs(row) > STILL)), []).append(i)
    pairs = []
    for to, channels in places.items():
        if len(to) == 1 and len(channels) == 1:
            continue
        if len(to) != 2 or len(channels) != 2:
            raise ValueError(f"channels {channels[:4]} go to channels {list(to[:4])}: no rotation of pairs")
        pairs.append((channels[0], channels[1], *to))
    return sorted(pairs)  # type: ignore[arg-type]


Pairs = list[tuple[int, int, int, int]]


def _row(layer: Layer, pairs: Pairs, position: int, length: int | None) -> np.ndarray:
    """One vector that has 1 in the first channel of every pair, as a row for each pair."""
    assert layer.turn is not None
    x = np.zeros((1, layer.head), dtype=np.float32)
    x[0, [a for a, *_ in pairs]] = 1
    return np.repeat(np.asarray(layer.turn(x, position, length), dtype=np.float64), len(pairs), 0)


def _parts(rows: np.ndarray, pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """cos and sin of every pair, times m."""
    n = np.arange(len(pairs))
    return rows[n, [c for _, _, c, _ in pairs]], rows[n, [d for *_, d in pairs]]


def _table(rows: np.ndarray, pairs: Pairs) -> dict[str, np.ndarray]:
    cos, sin = _parts(rows, pairs)
    return {"w": np.arctan2(sin, cos), "m": np.hypot(sin, cos)}


def _check(
    layer: Layer, pairs: Pairs, base: dict[str, np.ndarray], lengths: list[int], limit: int | None
) -> tuple[list[int], float]:
    """The largest error of cos and sin at the positions that matter, over what float32 angles explain."""
    worst, done = 0.0, []
    far = [n for length in lengths[:1] for n in (length - 1, length, length + 1, 4 * length)]
    most = min(n for n in (limit, layer.limit, 1 << 30) if n is not None)
    for p in sorted(p for p in {0, 1, 255, 256, 257, *far} if p < most):
        cos, sin = _parts(_row(layer, pairs, p, max(p + 1, 2)), pairs)
        angle, m = p * base["w"], base["m"]
        off = np.maximum(abs(cos - m * np.cos(angle)), abs(sin - m * np.sin(angle)))
        worst = max(worst, float(np.max(off / (4e-7 + 4e-7 * angle), initial=0.0)))
        done.append(p)
    return done, worst


def measure_model(layers: list[Layer], lengths: list[int]) -> dict[str, Any]:
    """Every layer, with those that are alike described once."""
    kinds: list[dict[str, Any]] = []
    numbers: list[int | None] = []
    before: dict[tuple[Any, ...], dict[str, Any]] = {}  # layers that share a rotation are measured once
    for layer in layers:
        if layer.turn is None:
            numbers.append(None)
            continue
        key = (layer.turn, layer.head, layer.softmax, layer.window, layer.limit, layer.queries)
        made = before[key] = before.get(key) or describe(layer, lengths)
        if made not in kinds:
            kinds.append(made)
        numbers.append(kinds.index(made))
    assumed = next((layer.assumed for layer in layers if layer.assumed), "")
    return {"layers": numbers, "ropes": kinds} | ({"assumed": assumed} if assumed else {})


def run(measure: Callable[[dict[str, Any]], list[Layer]], after: Callable[[], None] = lambda: None) -> None:
    """Measure the cases of the job that are not in the output yet. A case that was begun and has no line ended it."""
    job, out = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    begun = Path(f"{out}.begun")
    lines = map(json.loads, out.read_text().splitlines() if out.exists() else [])
    done = {(line["id"], line.get("of")) for line in lines}
    if begun.exists() and begun.read_text() and tuple(named := json.loads(begun.read_text())) not in done:
        done.add(tuple(named))
        with out.open("a") as file:
            ended = {"id": named[0], "of": named[1], "not_measured": "the engine's process ended"}
            file.write(json.dumps(ended) + "\n")
    for case in job["cases"]:
        line: dict[str, Any] = {"id": case["id"], "of": case.get("of")}
        if (line["id"], line["of"]) in done:
            continue
        begun.write_text(json.dumps([line["id"], line["of"]]))
        try:
            line |= measure_model(measure(case), case.get("lengths", []))
        except NotMeasured as reason:
            line["not_measured"] = str(reason)[:SHOWN]
        except (Exception, SystemExit) as error:  # whatever stops the engine is the answer, but for the machine's own
            if type(error).__name__ in ("DistNetworkError", "MemoryError"):
                raise
            line["stops"] = f"{type(error).__name__}: {error}"[:SHOWN]
            last = traceback.extract_tb(error.__traceback__)[-1]
            line["where"] = f"{Path(last.filename).name}:{last.lineno} {last.name}"
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        after()
    begun.write_text("")


def softmax_over(scale: float, head: int) -> float:
    """What a scale of logits is over 1/sqrt(head size)."""
    return float(np.float32(scale * math.sqrt(head)))
