"""Attention: how far each head looks. Statistics over all queries, a few rows at a time: no L x L tensor is held.

distance     share of the attention that goes 0, 1, 2-3, 4-7, 8-15, ... tokens back
mean         the mean distance, in tokens
entropy      of the weights, in nats: e^entropy is the number of keys that a query looks at
sink         the share that goes to the first token
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from milepost.attention.reference import reference
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
    found = [0, 1]
    while found[-1] < length:
        found.append(2 * found[-1])
    return tuple(found)


@torch.no_grad()
def statistics(q: Tensor, k: Tensor, enc: Encoding, layer: int, *, first: int = 0, scale: float | None = None) -> list[HeadStatistics]:
    """Of transformed queries and keys (B H L D), causal; queries before ``first`` are not counted."""
    B, H, L, D = q.shape
    if not 0 <= first < L:
        raise ValueError(f"queries are counted from `first` on, which is from 0 to {L - 1}, got {first}")
    edges = edges_for(L)
    bins = torch.zeros(H, len(edges) - 1, dtype=torch.float64)
    total, entropy, sink = (torch.zeros(H, dtype=torch.float64) for _ in range(3))
    v = torch.zeros(B, k.shape[1], L, 1, dtype=k.dtype, device=k.device)
    whole = Layout.dense(L, device=q.device)
    for a in range(first, L, ROWS):
        e = min(a + ROWS, L)
        at, to = whole[a:e], whole[:e]
        p = reference(q[:, :, a:e], k[:, :, :e], v[:, :, :e], enc, at, to, causal=True, scale=D**-0.5 if scale is None else scale).weights.double().cpu()
        distance = torch.arange(a, e)[:, None] - torch.arange(e)[None]
        place = torch.bucketize(distance.clamp(min=0), torch.tensor(edges), right=True) - 1
        mass = p.sum(0)  # H rows keys
        bins.scatter_add_(1, place.flatten().expand(H, -1), mass.flatten(1))
        total += (mass * distance).sum((1, 2))
        entropy -= torch.special.xlogy(p, p).sum((0, 2, 3))
        sink += mass[:, :, 0].sum(1)
    count = B * (L - first)
    return [
        HeadStatistics(layer, h, edges, tuple((bins[h] / count).tolist()), float(total[h] / count), float(entropy[h] / count), float(sink[h] / count))
        for h in range(H)
    ]


def to_rows(found: list[HeadStatistics]) -> list[dict[str, Any]]:
    """Plain data, short enough to keep."""
    return [
        {
            "layer": s.layer, "head": s.head, "edges": list(s.edges), "distance": [round(v, 5) for v in s.distance],
            "mean": round(s.mean, 4), "entropy": round(s.entropy, 4), "sink": round(s.sink, 5),
        }
        for s in found
    ]  # fmt: skip
