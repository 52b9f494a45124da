"""DeBERTa: disentangled attention.

    score[i, j] = (q_i · k_j + q_i · K[r] + k_j · Q[r]) / sqrt(1 + terms),       r = bucket(i - j)
    v2: bucket(d) = d for |d| <= M = buckets/2;  sign(d) (M + ceil( ln(|d|/M) / ln((span-1)/M) (M-1) )) for more

He et al., "DeBERTa", 2021, section 3.1, arXiv:2006.03654; log buckets from the authors' DeBERTa-v2

Departure: the paper writes content-to-position with delta(i, j) and position-to-content with delta(j, i); the authors'
code reads row bucket(i - j) in both, and so do we (the learned table is the mirror image). K and Q are the projected
tables, one for each head; a model that shares one embedding between layers projects it into them. buckets=None is v1:
distances clipped at `span`. Attend's usual 1/sqrt(D) completes the paper's 1/sqrt(3D).

Mechanism: adds query-with-distance and key-with-distance to the score
Information: relative
Prior: none; fine near, coarse far
Content: both the query and the key choose distances
Storage: 2 x H x 2 buckets x D parameters
Used by: DeBERTa, DeBERTa-v2, DeBERTa-v3
"""

from __future__ import annotations

from bisect import bisect_left

import torch
from torch import Tensor, nn

from milepost.encoding import Encoding, Relative


class DeBERTa(Encoding):
    """Tables of ``2 * buckets`` rows (v1: ``2 * span``) for each head; the terms can be switched off one by one."""

    fractional = False

    def __init__(
        self, heads: int, head_dim: int, buckets: int | None = 256, span: int = 512, c2p: bool = True, p2c: bool = True
    ):
        super().__init__()
        if heads < 1 or head_dim < 1 or span < 3:
            raise ValueError(
                f"DeBERTa needs heads, head_dim >= 1 and span >= 3, got heads={heads}, head_dim={head_dim}, span={span}"
            )
        if buckets is not None and not (buckets >= 4 and buckets % 2 == 0 and buckets // 2 < span - 1):
            raise ValueError(
                f"buckets must be even, at least 4, and buckets/2 below span - 1 = {span - 1}; got {buckets} (None "
                "for v1)"
            )
        if not (c2p or p2c):
            raise ValueError("with both c2p and p2c off there is no position left; use nope")
        self.heads, self.head_dim, self.buckets, self.span, self.c2p, self.p2c = (
            heads,
            head_dim,
            buckets,
            span,
            c2p,
            p2c,
        )
        self.side = buckets or span
        self.share = float((1 + c2p + p2c) ** -0.5)
        self.alike_from = span if buckets is None else edges(buckets, span)[-1]
        if buckets is not None:
            self.edges = torch.tensor(edges(buckets, span), device="cpu")
        shape = (heads, 2 * self.side, head_dim)
        self.keys = nn.Parameter(torch.randn(shape) * 0.02) if c2p else None
        self.queries = nn.Parameter(torch.randn(shape) * 0.02) if p2c else None

    def row(self, i: Tensor, j: Tensor) -> Tensor:
        """The row of the tables for ``i - j``."""
        distance = i - j
        if self.buckets is not None:
            far = torch.bucketize(distance.abs(), self.edges.to(distance.device), right=True)
            distance = distance.sign() * torch.where(
                distance.abs() <= self.buckets // 2, distance.abs(), self.buckets // 2 + far
            )
        return (distance + self.side).clamp(0, 2 * self.side - 1)

    def rescore(self, s: Tensor, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
        row = self.row(i, j).expand(s.shape)
        if self.keys is not None:
            s = s + (q @ self.keys.to(q.dtype).transpose(-1, -2)).gather(-1, row)
        if self.queries is not None:
            s = s + (k @ self.queries.to(k.dtype).transpose(-1, -2)).gather(-1, row.transpose(-1, -2)).transpose(-1, -2)
        return s * self.share

    def relative(self, distance: Tensor) -> Relative:
        row = self.row(distance, torch.zeros_like(distance))
        a, b = (None if table is None else table[:, row] for table in (self.keys, self.queries))
        return Relative(a=a, b=b, share=self.share)


def edges(buckets: int, span: int) -> tuple[int, ...]:
    """The first |d| of buckets M+1, M+2, ... 2M, by whole numbers: ceil(x) >= step where (d/M)^(M-1) >
    ((span-1)/M)^(step-1).
    """
    middle = buckets // 2
    power = middle - 1
    top = 2 * span  # the last bucket begins just past the span
    return tuple(
        bisect_left(
            range(top), True, lo=middle + 1, key=lambda d: d**power * middle**step > (span - 1) ** step * middle**power
        )
        for step in range(middle)
    )
