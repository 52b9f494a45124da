"""ALiBi in two dimensions: a penalty by distance on a plane.

    logits[h, i, j] += -m_h |i - j|,        |.| the distance of two patches,    m_h = 2^(-8h/H),   h = 1 .. H

Fuller, Millard & Green, "CROMA: Remote Sensing Representations with Contrastive Radar-Optical Masked Autoencoders",
2023, section 3. arXiv:2311.00566

Departure: distance="euclidean" is theirs; "manhattan" adds up rows and columns, which is ALiBi along each axis. Slopes
for H that is no power of two are ALiBi's: those of the power of two below, then every other one of the power of two
above. Symmetric: it tells how far a patch is, not where; only content, or another encoding beside it, can tell left
from right.

Mechanism: subtracts a head's slope times the distance from the logit
Information: relative; distance without direction
Prior: nearer is better, at a different reach for every head
Content: added to its logit
Storage: none
Used by: CROMA
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from milepost.encoding import Encoding


class ALiBi2D(Encoding):
    """One slope for each of ``heads`` heads, times the distance between places on a plane."""

    axes = 2

    def __init__(self, heads: int, distance: Literal["euclidean", "manhattan"] = "euclidean"):
        super().__init__()
        self.check_at_least(1, heads=heads)
        self.check_choice("distance", distance, ("euclidean", "manhattan"))
        self.heads, self.distance = heads, distance
        below = 2 ** math.floor(math.log2(heads))
        exponents = [8 * (h + 1) / below if h < below else 4 * (2 * (h - below) + 1) / below for h in range(heads)]
        self.slopes = torch.tensor([2.0**-e for e in exponents], dtype=torch.float64, device="cpu")

    def bias(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        down, across = (i[0] - j[0]).double(), (i[1] - j[1]).double()
        far = torch.hypot(down, across) if self.distance == "euclidean" else down.abs() + across.abs()
        return -self.slopes.to(h.device)[h] * far
