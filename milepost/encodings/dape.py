"""DAPE: a bias that looks at the scores and changes itself.

    logits = A + B + f([A; B]),      A = q·k / sqrt(D),  B a bias by distance,  f a network over the heads of one pair

Zheng et al., "DAPE: Data-Adaptive Positional Encoding for Length Extrapolation", NeurIPS 2024, section 3.
arXiv:2405.14722

f takes the H scores and the H biases of one query and one key and gives H numbers: two layers, a leaky ReLU between.
So heads hear of each other, and a bias can give way where the content is strong.

Departure: none; the bias beneath is KERPLE's logarithm (the paper's best) or ALiBi's. f costs 3 H x `hidden` products a
pair of tokens beside the D x H of attention itself, over numbers that no fused kernel keeps: a few rows at a time.

Mechanism: adds to the logit a bias, and what a network makes of all heads' scores and biases
Information: relative
Prior: that of the bias beneath
Content: it changes the bias
Storage: 3 H x hidden + hidden + H parameters, and those of the bias beneath
Used by: research models
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost.encoding import Encoding
from milepost.encodings.alibi import ALiBi
from milepost.encodings.kerple import KERPLE


class DAPE(Encoding):
    """A network of ``hidden`` units over ``heads`` heads, ``over`` the bias of that name."""

    causal_only = True

    def __init__(self, heads: int, hidden: int = 32, over: Literal["kerple", "alibi"] = "kerple"):
        super().__init__()
        self.check_at_least(1, heads=heads, hidden=hidden)
        self.check_choice("over", over, ("kerple", "alibi"))
        self.heads, self.hidden, self.over = heads, hidden, over
        self.beneath = KERPLE(heads) if over == "kerple" else ALiBi(heads)
        self.inner, self.outer = nn.Linear(2 * heads, hidden), nn.Linear(hidden, heads)

    def rescore(self, s: Tensor, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
        root, seen = math.sqrt(q.shape[-1]), s > float("-inf")
        h = torch.arange(s.shape[1], device=s.device)[:, None, None]
        a = torch.where(seen, s / root, 0.0)
        b = torch.where(seen, self.beneath.bias(h, i, j).to(s.dtype), 0.0)
        both = torch.cat([a, b], dim=1).movedim(1, -1)
        units = F.leaky_relu(F.linear(both, self.inner.weight.to(s.dtype), self.inner.bias.to(s.dtype)))
        more = F.linear(units, self.outer.weight.to(s.dtype), self.outer.bias.to(s.dtype)).movedim(-1, 1)
        return torch.where(seen, root * (a + b + more), float("-inf"))
