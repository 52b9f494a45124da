"""bench train: training throughput of the lab's model by encoding, as a ratio to the same model with no position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from milepost.bench.timing import best_seconds, check_sizes
from milepost.lab.model import Decoder, Shape
from milepost.lab.plan import find_profile
from milepost.measure.results import provenance

SCHEMES = ("alibi", "rope", "t5", "kerple")


def bench_train(
    profile: str = "standard",
    schemes: Sequence[str] = SCHEMES,
    *,
    rounds: int = 7,
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Rows of ``encoding``, ``tokens_per_s`` and ``ratio``: throughput over that of nope, a step each in turn."""
    size = find_profile(profile)
    check_sizes("cpu", rounds=rounds)
    shape = size.shape()
    tokens = size.rows * size.length
    runs = {name: _stepper(shape, name, size.rows) for name in ("nope", *schemes)}
    seconds = best_seconds(runs, rounds, tell=tell)
    rows = [
        {"encoding": name, "tokens_per_s": tokens / best, "ratio": seconds["nope"] / best}
        for name, best in seconds.items()
    ]
    sizes = {"profile": profile, "rows": size.rows, "length": size.length, "width": size.width, "layers": size.layers}
    return {"rows": rows, "provenance": provenance(**sizes, rounds=rounds, threads=torch.get_num_threads())}


def _stepper(shape: Shape, encoding: str, rows: int) -> Callable[[], Any]:
    model = Decoder(shape, encoding).start(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    ids = torch.randint(0, 256, (rows, shape.length + 1), generator=torch.Generator().manual_seed(0))

    def step() -> None:
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step
