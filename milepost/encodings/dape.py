"""DAPE: a bias that looks at the scores and changes itself.

    logits = A + B + f([A; B]),      A = q·k / sqrt(D),      B[h, i, j] = -p_h ln(1 + a_h (i - j))

Zheng et al., "DAPE: Data-Adaptive Positional Encoding for Length Extrapolation", NeurIPS 2024, section 3.
arXiv:2405.14722

B is KERPLE's. f takes the H scores and the H biases of one query and one key and gives H numbers: two layers, a leaky
ReLU between. So heads hear of each other, and a bias can give way where the content is strong.

Departure: the paper puts f over ALiBi, FIRE and KERPLE; this is its best, over KERPLE. The authors' code runs f on
hidden pairs, too, and masks after it; here they are zeros for f, and since no pair hears of another, nothing changes. f
costs 3 H x `hidden` products a pair of tokens beside the D x H of attention itself, over numbers that no fused kernel
keeps: a few rows at a time.

Mechanism: adds to the logit a bias, and what a network makes of all heads' scores and biases
Information: relative
Prior: nearer is better, at a reach that each head learns, unless the content says otherwise
Content: it changes the bias
Storage: 3 H x hidden + hidden + 3 H parameters
Used by: research models
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost.encoding import Encoding

LEAST = 0.01
"""The smallest value of a and p, as in KERPLE."""


class DAPE(Encoding):
    """A network of ``hidden`` units over the scores and the biases of ``heads`` heads."""

    causal_only = True

    def __init__(self, heads: int, hidden: int = 32):
        super().__init__()
        self.check_at_least(1, heads=heads, hidden=hidden)
        self.heads, self.hidden = heads, hidden
        self.p, self.a = nn.Parameter(torch.rand(heads) * 2), nn.Parameter(torch.rand(heads))
        self.inner, self.outer = nn.Linear(2 * heads, hidden), nn.Linear(hidden, heads)

    def rescore(self, s: Tensor, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
        root, seen = math.sqrt(q.shape[-1]), s > float("-inf")
        p, a = (t.to(s.dtype).clamp(min=LEAST)[:, None, None] for t in (self.p, self.a))
        scores = torch.where(seen, s / root, 0.0)
        bias = torch.where(seen, -p * torch.log1p(a * (i - j).clamp(min=0)), 0.0).to(s.dtype)
        both = torch.cat([scores, bias], dim=1).movedim(1, -1)
        units = F.leaky_relu(F.linear(both, self.inner.weight.to(s.dtype), self.inner.bias.to(s.dtype)))
        more = F.linear(units, self.outer.weight.to(s.dtype), self.outer.bias.to(s.dtype)).movedim(-1, 1)
        return torch.where(seen, root * (scores + bias + more), float("-inf"))
