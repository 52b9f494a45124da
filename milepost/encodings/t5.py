"""T5: a learned bias for each bucket of distances.

    logits[h, i, j] += b[h, bucket(i - j)]
    bucket(n) = n for n < E;   E + floor(ln(n/E) / ln(max_distance/E) * (N - E)), at most N - 1, for more;    E = N/2

Raffel et al., "Exploring the Limits of Transfer Learning with T5", 2020, section 2.1. arXiv:1910.10683

With mode="bidirectional" half of the buckets serve keys at or before the query and half the keys after it. Every
distance of max_distance and more falls into one bucket: that is the formula, not a limit of the table.

Departure: bucket edges are found once in exact integer arithmetic, so that no device's logarithm can move one. T5
itself does not divide logits by sqrt(D): call attend(..., scale=1.0) for its checkpoints.

Mechanism: adds a learned number to the logit
Information: relative, in buckets
Prior: none; fine near, coarse far
Content: added to its logit
Storage: buckets x heads parameters
Used by: T5, mT5, Flan-T5, UL2, LongT5
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from milepost.encoding import Encoding


def edges(buckets: int, max_distance: int) -> tuple[int, ...]:
    """The first distance of buckets 1, 2, ...: n is in bucket E + t from (n/E)^K >= (max_distance/E)^t on, K = N -
    E.
    """
    exact = buckets // 2
    rest = buckets - exact
    later = []
    for t in range(1, rest):
        wanted = max_distance**t * exact ** (rest - t)
        n = int(exact * (max_distance / exact) ** (t / rest))  # a guess, put right in whole numbers
        while n > 0 and (n - 1) ** rest >= wanted:
            n -= 1
        while n**rest < wanted:
            n += 1
        later.append(n)
    return (*range(1, exact + 1), *later)


class T5(Encoding):
    """``buckets`` learned numbers for each of ``heads`` heads (for all heads together, when ``shared``)."""

    causal_only = True
    fractional = False

    def __init__(
        self,
        heads: int,
        mode: Literal["causal", "bidirectional"] = "causal",
        buckets: int = 32,
        max_distance: int = 128,
        shared: bool = False,
    ):
        super().__init__()
        self.check_choice("mode", mode, ("causal", "bidirectional"))
        sided = buckets if mode == "causal" else buckets // 2
        if heads < 1 or sided < 2 or (mode == "bidirectional" and buckets % 2) or max_distance <= sided // 2:
            raise ValueError(
                "T5 needs heads >= 1, at least 2 buckets a side (an even number for both sides) and max_distance "
                f"above {max(sided // 2, 1)}; "
                f"got heads={heads}, buckets={buckets}, max_distance={max_distance}, mode={mode!r}"
            )
        self.heads, self.mode, self.buckets, self.max_distance, self.shared = heads, mode, buckets, max_distance, shared
        self.causal_only = mode == "causal"
        self.edges = torch.tensor(edges(sided, max_distance), device="cpu")
        self.table = nn.Parameter(torch.randn(1 if shared else heads, buckets) * 0.02)

    def bucket(self, distance: Tensor) -> Tensor:
        """The bucket of ``i - j``."""
        near = torch.bucketize(distance.abs(), self.edges.to(distance.device), right=True)
        return near if self.mode == "causal" else near + (distance < 0) * (self.buckets // 2)

    def bias(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return self.table[h % len(self.table), self.bucket(i - j)]
