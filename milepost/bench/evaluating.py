"""bench evaluate: the loss at every amount of context by one long pass, against sliding windows for each length.

The recipe of transformers' documentation scores a text in windows that overlap by half, again for each length that is
asked about. A causal model whose encoding does not depend on the length says all that in one pass: its loss at
position n is the loss with n tokens of context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from milepost.bench.timing import best_seconds, check_sizes
from milepost.lab.model import Decoder
from milepost.lab.plan import find_profile
from milepost.measure.losses import buckets, by_position, sliding
from milepost.measure.results import provenance


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
    shape = size.shape()
    model = Decoder(shape, encoding).start(0).eval()
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
    sizes = {
        "profile": profile,
        "encoding": encoding,
        "lengths": lengths,
        "tokens": int(text.size),
        "stride": "half the length",
    }
    return {"rows": rows, "provenance": provenance(**sizes, rounds=rounds, threads=torch.get_num_threads())}
