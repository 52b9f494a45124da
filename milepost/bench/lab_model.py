"""bench train and bench evaluate: the lab's model at the size of a profile.

train      throughput of the lab by encoding, over that without positions, and over a plain loop: the same model in
           float32 with torch's AdamW, as version 0.1 trained
evaluate   the loss at every amount of context by one long pass, against sliding windows for each length. The recipe of
           transformers' documentation scores a text in windows that overlap by half, again for each length that is
           asked about. A causal model whose encoding does not depend on the length says all that in one pass: its loss
           at position n is the loss with n tokens of context.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from milepost.bench.timing import best_seconds, check_sizes
from milepost.lab.model import Decoder, Shape
from milepost.lab.plan import find_profile
from milepost.lab.training.linear import bfloat16_pays, rounded_products
from milepost.lab.training.optimizers import Optimizers
from milepost.measure.losses import buckets, by_position, sliding
from milepost.measure.memory import keep_freed
from milepost.measure.results import provenance

REPEATS = 8
"""How often what takes a millisecond is done in one turn."""
SCHEMES = ("alibi", "rope", "t5", "kerple", "shaw", "transformer_xl", "deberta")


def bench_train(
    profile: str = "standard",
    schemes: Sequence[str] = SCHEMES,
    *,
    rounds: int = 7,
    plain: bool = True,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Rows of ``encoding``, ``tokens_per_s``, ``ratio`` to nope and ``over_plain``, the ratio to the plain loop (None
    unless that is timed, too). This process keeps the memory that it frees, as the lab's workers do.
    """
    size = find_profile(profile)
    check_sizes("cpu", rounds=rounds)
    keep_freed()
    shape = size.shape()
    tokens = size.rows * size.length
    names = ("nope", *schemes)
    runs = {name: _lab_step(shape, name, size.rows) for name in names}
    runs |= {f"{name}, plain": _plain_step(shape, name, size.rows) for name in names if plain}
    seconds = best_seconds(runs, rounds, tell=tell)
    rows = [
        {
            "encoding": name,
            "tokens_per_s": tokens / seconds[name],
            "ratio": seconds["nope"] / seconds[name],
            "over_plain": seconds[f"{name}, plain"] / seconds[name] if plain else None,
        }
        for name in names
    ]
    sizes = {"profile": profile, "rows": size.rows, "length": size.length, "width": size.width, "layers": size.layers}
    about = {"threads": torch.get_num_threads(), "bfloat16_products": bfloat16_pays()}
    return {"rows": rows, "provenance": provenance(**sizes, rounds=rounds, **about)}


def bench_costs(
    shape: Shape,
    encodings: Sequence[str],
    *,
    rows: int = 8,
    longest: int = 512,
    rounds: int = 7,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, dict[str, float | None]]:
    """By encoding, the time over that of a model without positions: of a step of training (``train``), of reading a
    text of the ``longest`` length (``read``), and of a token with so many in the cache (``decode``). None where a table
    ends before, or a cache can't serve.
    """
    kinds = {"train": _lab_step, "read": _read, "decode": _decode}
    sizes = {"train": rows, "read": longest, "decode": longest}
    names = tuple(dict.fromkeys(("nope", *encodings)))
    costs: dict[str, dict[str, float | None]] = {name: {} for name in names}
    for kind, make in kinds.items():
        runs = {}
        for name in names:
            try:
                runs[name] = make(shape, name, sizes[kind])
                runs[name]()
            except ValueError as reason:
                tell(f"{name}, {kind}: {reason}")
                runs.pop(name, None)
        tell(kind)
        seconds = best_seconds(runs, rounds, warm=True, tell=tell)
        for name in names:
            costs[name][kind] = round(seconds[name] / seconds["nope"], 3) if name in seconds else None
    return costs


def _read(shape: Shape, encoding: str, length: int) -> Callable[[], Any]:
    """A text read at once."""
    model = Decoder(shape, encoding).start(0).eval()
    ids = torch.zeros(1, length, dtype=torch.long)

    @torch.no_grad()
    def read() -> None:
        for _ in range(REPEATS):
            model(ids)

    return read


def _decode(shape: Shape, encoding: str, length: int) -> Callable[[], Any]:
    """Tokens one by one, after ``length`` cached ones."""
    model = Decoder(shape, encoding).start(0).eval()
    caches, token = model.caches(), torch.zeros(1, 1, dtype=torch.long)
    with torch.no_grad():
        model(torch.zeros(1, length, dtype=torch.long), caches=caches)

    @torch.no_grad()
    def decode() -> None:
        for _ in range(REPEATS):
            model(token, caches=caches)

    return decode


def _lab_step(shape: Shape, encoding: str, rows: int) -> Callable[[], Any]:
    """A step as the lab takes it."""
    model = Decoder(shape, encoding).start(0)
    optimizers, ids = Optimizers(model), _tokens(shape, rows)

    def step() -> None:
        with rounded_products(model, bfloat16_pays()):
            _loss(model, ids).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizers.step(0.01)

    return step


def _plain_step(shape: Shape, encoding: str, rows: int) -> Callable[[], Any]:
    """The same model in a plain eager loop, in float32."""
    model = Decoder(shape, encoding).start(0)
    optimizer, ids = torch.optim.AdamW(model.parameters(), lr=1e-4), _tokens(shape, rows)

    def step() -> None:
        _loss(model, ids).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def _tokens(shape: Shape, rows: int) -> Tensor:
    return torch.randint(0, 256, (rows, shape.length + 1), generator=torch.Generator().manual_seed(0))


def _loss(model: Decoder, ids: Tensor) -> Tensor:
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def bench_evaluate(
    profile: str = "standard",
    encoding: str = "rope",
    *,
    times: tuple[int, ...] = (1, 2, 4, 8),
    rounds: int = 3,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Rows of ``way``, ``seconds`` and ``ratio``: the time of a way over that of one long pass."""
    size = find_profile(profile)
    check_sizes("cpu", rounds=rounds)
    model = Decoder(size.shape(), encoding).start(0).eval()
    lengths = [n * size.length for n in times]
    text = np.random.default_rng(0).integers(0, 256, (8, max(lengths) + 1))
    edges = buckets(max(lengths), size.length)
    ways: dict[str, Callable[[], Any]] = {
        "one long pass": lambda: by_position(model, text, edges),
        "sliding windows, once for each length": lambda: [
            sliding(model, row, n, n // 2) for n in lengths for row in text
        ],
    }
    seconds = best_seconds(ways, rounds, tell=tell)
    rows = [{"way": name, "seconds": best, "ratio": best / seconds["one long pass"]} for name, best in seconds.items()]
    sizes = {"profile": profile, "encoding": encoding, "lengths": lengths, "tokens": int(text.size)}
    about = provenance(**sizes, stride="half the length", rounds=rounds, threads=torch.get_num_threads())
    return {"rows": rows, "provenance": about}
