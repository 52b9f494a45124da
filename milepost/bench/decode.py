"""bench decode: one token at a time over a cache, as the ratio to the same with no position.

The baseline writes each key and value into a preallocated buffer and calls torch's fused attention; ours does the same
through `KVCache.decode`, which turns queries and keys, and attends.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from milepost.attention import KVCache
from milepost.bench.attention import row
from milepost.bench.contestants import CONTENT, MAPS, TOEPLITZ, encoding, hidden
from milepost.bench.timing import check_sizes
from milepost.encoding import Encoding
from milepost.measure.results import provenance
from milepost.spec import build


def bench_decode(
    length: int = 16384,
    schemes: Sequence[str] = ("rope", *TOEPLITZ, "fox", *CONTENT, *MAPS),
    *,
    heads: int = 8,
    head_dim: int = 64,
    tokens: int = 48,
    rounds: int = 5,
    staged: bool = True,
    device: str = "cpu",
    tell: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Rows as of `bench attention`, with pass "decode": a token after ``length`` cached ones.

    A ratio is the median of the ratios of neighbours in time.
    """
    check_sizes(device, rounds=rounds, heads=heads, head_dim=head_dim, length=length, tokens=tokens - 2)
    rows: list[dict[str, Any]] = []
    with torch.no_grad():
        for scheme in schemes:
            enc = encoding(scheme, heads, head_dim).to(device)
            pairs: list[tuple[float, float]] = []
            for turn in range(rounds):
                tell(f"{scheme}: round {turn + 1} of {rounds}")
                makers = {
                    "none": PlainDecoder(length, tokens, heads, head_dim, device),
                    "milepost": CachedDecoder(enc, length, tokens, heads, head_dim, device),
                }
                spent = _interleaved(makers, tokens, device)
                pairs += list(zip(spent["none"], spent["milepost"], strict=True))[2:]  # the first tokens fill tables
            ratio = statistics.median(ours / none for none, ours in pairs)
            rows.append(row(scheme, "decode", length, ratio, min(ours for _, ours in pairs)))
        if staged:
            rows.append(_staged(length, heads, head_dim, device, tell))
    sizes = {"heads": heads, "head_dim": head_dim, "length": length, "tokens": tokens, "dtype": "float32"}
    return {
        "rows": rows,
        "provenance": provenance(**sizes, rounds=rounds, device=device, threads=torch.get_num_threads()),
    }


def _staged(length: int, heads: int, head_dim: int, device: str, tell: Callable[[str], None]) -> dict[str, Any]:
    """A decode from just under half the length to just past it, across two stages: the mean over all tokens."""
    margin = max(1, length // 64)
    start, tokens = length // 2 - margin, length // 2 + 2 * margin
    enc = build(f"rope(scaling=staged(trained={length // 4}))", head_dim=head_dim)
    tell(f"staged: a decode of {tokens} tokens from {start}, across {length // 2} and {length}")
    makers = {
        "none": PlainDecoder(start, tokens, heads, head_dim, device),
        "milepost": CachedDecoder(enc, start, tokens, heads, head_dim, device),
    }
    spent = _interleaved(makers, tokens, device)
    ours = sum(spent["milepost"])
    return row("rope staged", "decode", length, ours / sum(spent["none"]), ours / tokens)


def _interleaved(makers: dict[str, Any], tokens: int, device: str) -> dict[str, list[float]]:
    """Seconds of each token, the contestants taking turns at every token."""
    spent: dict[str, list[float]] = {name: [] for name in makers}
    for _ in range(tokens):
        for name, maker in makers.items():
            begun = time.perf_counter()
            maker.token()
            if device == "cuda":
                torch.cuda.synchronize()
            spent[name].append(time.perf_counter() - begun)
    return spent


class PlainDecoder:
    """No position: a preallocated buffer and torch's fused attention."""

    def __init__(self, length: int, tokens: int, heads: int, head_dim: int, device: str):
        self.k, self.v = (torch.randn(1, heads, length + tokens, head_dim, device=device) for _ in range(2))
        self.new = [torch.randn(1, heads, 1, head_dim, device=device) for _ in range(3)]
        self.n = length

    def token(self) -> Tensor:
        """Decode one token."""
        q, k, v = self.new
        self.k[:, :, self.n : self.n + 1] = k
        self.v[:, :, self.n : self.n + 1] = v
        self.n += 1
        return F.scaled_dot_product_attention(q, self.k[:, :, : self.n], self.v[:, :, : self.n])


class CachedDecoder:
    """The same with a position, through KVCache."""

    def __init__(self, enc: Encoding, length: int, tokens: int, heads: int, head_dim: int, device: str):
        self.enc, self.cache = enc, KVCache(enc, capacity=length + tokens)
        k, v = (torch.randn(1, heads, length, head_dim, device=device) for _ in range(2))
        self.cache.append(k, v, features=self.features(hidden(enc, length, device)))
        self.new = [torch.randn(1, heads, 1, head_dim, device=device) for _ in range(3)]
        self.x = hidden(enc, 1, device)

    def features(self, x: Tensor) -> Tensor | None:
        """The features of the next tokens, where the encoding asks for any."""
        return self.enc.features(x, self.cache.next(x.shape[1]).pos) if self.enc.feature_count else None

    def token(self) -> Tensor:
        """Decode one token."""
        return self.cache.decode(*self.new, features=self.features(self.x))
