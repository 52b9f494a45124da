"""Attention: how far each head looks. Statistics are over all queries, or over some at even distances.

No L x L tensor is held.

distance     share of the attention that goes 0, 1, 2-3, 4-7, 8-15, ... tokens back
mean         the mean distance, in tokens
entropy      of the weights, in nats: e^entropy is the number of keys that a query looks at
sink         the share that goes to the first token
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from milepost.attention.backends.reference import reference
from milepost.attention.call import Call
from milepost.attention.running import run_along
from milepost.encoding import Encoding
from milepost.layout import Layout

ROWS = 64
"""Queries at a time."""


@dataclass(frozen=True)
class HeadStatistics:
    """One head of one layer. ``distance[n]`` is the share at distances ``edges[n]`` to ``edges[n + 1] - 1``."""

    layer: int
    head: int
    edges: tuple[int, ...]
    distance: tuple[float, ...]
    mean: float
    entropy: float
    sink: float


def edges_for(length: int) -> tuple[int, ...]:
    """0, 1, 2, 4, 8, ... up past the length."""
    return (0, *(1 << n for n in range((length - 1).bit_length() + 1)))


@torch.no_grad()
def statistics(
    q: Tensor,
    k: Tensor,
    enc: Encoding,
    layer: int,
    *,
    first: int = 0,
    scale: float | None = None,
    window: int | None = None,
    queries: int | None = None,
    features: Tensor | None = None,
) -> list[HeadStatistics]:
    """Of transformed queries (B H L D) and keys (B G L D), causal; queries before ``first`` are not counted.

    ``window`` is how many tokens a query may see, itself included. Of long texts, ``queries`` at even distances can
    stand for all. ``features`` (B L N) are those of ``enc``, where it asks for any.
    """
    B, H, L, D = q.shape
    if not 0 <= first < L:
        raise ValueError(f"queries are counted from `first` on, which is from 0 to {L - 1}, got {first}")
    if queries is not None and queries < 1:
        raise ValueError(f"`queries` is how many to count, at least 1, got {queries}")
    edges = edges_for(L)
    bins = torch.zeros(H, len(edges) - 1, dtype=torch.float64)
    total, entropy, sink = (torch.zeros(H, dtype=torch.float64) for _ in range(3))
    v = torch.zeros(B, k.shape[1], L, 1, dtype=k.dtype, device=k.device)
    whole = Layout.dense(L, window=window, device=q.device)
    rows = pick_queries(first, L, queries)
    for some in torch.split(rows, ROWS):
        e = int(some[-1]) + 1
        chosen = some.to(q.device)
        by = D**-0.5 if scale is None else scale
        call = Call(q[:, :, chosen], k[:, :, :e], v[:, :, :e], enc, whole.take(chosen), whole[:e], True, by)
        if features is not None:
            call = replace(call, f=features[:, chosen], g=features[:, :e])
        p = reference(run_along(call) if enc.running else call).weights.double().cpu()
        distance = some[:, None] - torch.arange(e)[None]
        place = torch.bucketize(distance.clamp(min=0), torch.tensor(edges), right=True) - 1
        mass = p.sum(0)  # H rows keys
        bins.scatter_add_(1, place.flatten().expand(H, -1), mass.flatten(1))
        total += (mass * distance).sum((1, 2))
        entropy -= torch.special.xlogy(p, p).sum((0, 2, 3))
        sink += mass[:, :, 0].sum(1)
    count = B * len(rows)
    return [
        HeadStatistics(
            layer,
            h,
            edges,
            tuple((bins[h] / count).tolist()),
            float(total[h] / count),
            float(entropy[h] / count),
            float(sink[h] / count),
        )
        for h in range(H)
    ]


def average(texts: Sequence[Sequence[HeadStatistics]]) -> list[HeadStatistics]:
    """The mean over texts of one length whose heads come in the same order, as if the texts had been read together."""

    def mean(values: Iterable[float]) -> float:
        return sum(values) / len(texts)

    return [
        replace(
            same[0],
            distance=tuple(map(mean, zip(*(head.distance for head in same), strict=True))),
            mean=mean(head.mean for head in same),
            entropy=mean(head.entropy for head in same),
            sink=mean(head.sink for head in same),
        )
        for same in zip(*texts, strict=True)
    ]


def pick_queries(first: int, length: int, queries: int | None) -> Tensor:
    """The queries to count: all from ``first`` on, or the middles of ``queries`` stretches of equal length."""
    if queries is None or queries >= length - first:
        return torch.arange(first, length)
    return first + ((torch.arange(queries, dtype=torch.float64) + 0.5) * ((length - first) / queries)).long()


def to_rows(heads: list[HeadStatistics]) -> list[dict[str, Any]]:
    """Plain data, rounded."""
    return [
        {
            "layer": s.layer, "head": s.head, "edges": list(s.edges), "distance": [round(v, 5) for v in s.distance],
            "mean": round(s.mean, 4), "entropy": round(s.entropy, 4), "sink": round(s.sink, 5),
        }
        for s in heads
    ]  # fmt: skip
