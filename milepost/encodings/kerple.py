"""KERPLE: a bias from conditionally positive definite kernels.

    kind="log":    logits[h, i, j] += -p_h ln(1 + a_h |i - j|)
    kind="power":  logits[h, i, j] += -a_h |i - j|^p_h,          0 < p_h <= 2

Chi et al., "KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation", 2022, section 4.
arXiv:2205.09921

Departure: as in the authors' code, p and a are free parameters that act clamped (at least 0.01, and p at most 2 in the
power kernel), started at p ~ U(0, 2), a ~ U(0, 1). The power kernel with p = 1 is ALiBi with learned slopes.

Mechanism: adds a learned function of the distance to the logit
Information: relative
Prior: nearer is better, falling like a logarithm or a power
Content: added to its logit
Storage: 2 x heads parameters
Used by: research models (GPT-NeoX forks)
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from milepost.encoding import Encoding

LEAST = 0.01


class KERPLE(Encoding):
    """Two learned numbers, ``a`` and ``p``, for each of ``heads`` heads (for all heads together, when ``shared``)."""

    def __init__(self, heads: int, kind: Literal["log", "power"] = "log", shared: bool = False):
        super().__init__()
        self.check_at_least(1, heads=heads)
        self.check_choice("kind", kind, ("log", "power"))
        self.heads, self.kind, self.shared = heads, kind, shared
        self.p = nn.Parameter(torch.rand(1 if shared else heads) * 2)
        self.a = nn.Parameter(torch.rand(1 if shared else heads))

    def bias(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        a, p = self.a.clamp(min=LEAST)[h % len(self.a)], self.p.clamp(min=LEAST)[h % len(self.p)]
        distance = (i - j).abs().to(torch.promote_types(a.dtype, torch.float32))
        if self.kind == "log":
            return -p * torch.log1p(a * distance)
        return -a * distance ** p.clamp(max=2.0)
