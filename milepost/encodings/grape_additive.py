"""Additive GRAPE: ALiBi whose slope the query's token and the key's token choose together.

    logits[h, i, j] -= (i - j) s_h softplus(o_h) (softplus(v_h · x_i) + softplus(u_h · x_j))

Zhang et al., "Group Representational Position Encoding", ICLR 2026, section 4, eq. 4.6. arXiv:2512.07805

A logit is a product of q and k with two more channels, moved by exp(p A) = 1 + p A, where A^2 = 0: the additive twin of
`grape`'s rotations. s_h = 2^(-8h/H) are ALiBi's slopes, and where both gates are the same for every token this is
ALiBi. Where the steps between tokens differ, and not the slope, it is `fox`: the paper's special case, with a page of
its own.

Departure: the paper's gates see q_i and k_j, divided by sqrt(D); ours see the hidden states that q and k are made of,
by vectors of their own, so that a norm of q and k does not enter. gates="query" or "key" leaves the other one out, as
its code does. Its sums of gates along a path that depend on the query (section 5) are left out: they are N^3 numbers.

Mechanism: adds to the logit a negative multiple of the distance, by a slope that both tokens choose
Information: relative distance
Prior: nearer is better
Content: both tokens' hidden states make the slope
Storage: H x (2 C + 1) parameters, and one number a head and token in the cache
Used by: research models
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost.encoding import Encoding


class GRAPEAdditive(Encoding):
    """Gates of ``heads`` heads from hidden states of ``width`` channels: the query's, the key's or both."""

    causal_only = True

    def __init__(self, heads: int, width: int, gates: Literal["both", "query", "key"] = "both"):
        super().__init__()
        self.check_at_least(1, heads=heads, width=width)
        self.check_choice("gates", gates, ("both", "query", "key"))
        self.heads, self.width, self.gates = heads, width, gates
        self.feature_count = heads * (2 if gates == "both" else 1)
        self.keyless = gates == "query"
        self.slopes = 2 ** (-8 * torch.arange(1, heads + 1, dtype=torch.float64, device="cpu") / heads)
        self.omega = nn.Parameter(torch.full((heads,), math.log(math.expm1(1.0))))  # softplus of it is 1
        self.to_gates = nn.Linear(width, self.feature_count, bias=False)

    def features(self, x: Tensor, pos: Tensor) -> Tensor:
        return F.softplus(self.to_gates(x).to(torch.promote_types(x.dtype, torch.float32)))

    def weigh(self, h: Tensor, f: Tensor, g: Tensor, i: Tensor, j: Tensor) -> Tensor:
        gates = torch.zeros((), dtype=f.dtype, device=f.device)
        if self.gates != "key":
            gates = gates + f[..., h].transpose(-1, -2)[..., None]
        if self.gates != "query":
            gates = gates + g[..., h + (self.feature_count // 2 if self.gates == "both" else 0)].mT[..., None, :]
        rate = (self.slopes.to(f.device) * F.softplus(self.omega.double()))[h].to(f.dtype)
        return (j - i) * rate[:, None, None] * gates
