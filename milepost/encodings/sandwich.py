"""Sandwich: the inner product of two sinusoidal codes, as a bias.

    logits[h, i, j] += (1/r_h) sum over c of cos((i - j) w_c),      r_h = 8h/H,   h = 1 .. H,   w_c = base^(-2c/size)

Chi et al., "Dissecting Transformer Length Extrapolation via the Lens of Receptive Field Analysis", 2023, section 6.
arXiv:2212.10356

What is left of sinusoidal encoding when only position meets position: no parameters, and no projection in between.

Departure: none; size = 128 and base = 10000 are the paper's.

Mechanism: adds a fixed function of the distance to the logit
Information: relative
Prior: nearer is better, with ripples; falls like a logarithm
Content: added to its logit
Storage: none
Used by: research models
"""

from __future__ import annotations

import torch
from torch import Tensor

from milepost.encoding import Encoding
from milepost.spectrum import geometric


class Sandwich(Encoding):
    """A sum of ``size / 2`` cosines, compressed by another ratio for each of ``heads`` heads."""

    def __init__(self, heads: int, size: int = 128, base: float = 10000.0):
        super().__init__()
        self.check_at_least(1, heads=heads)
        self.heads, self.size, self.base = heads, size, base
        self.spectrum = geometric(size, base)
        self.ratio = 8 * torch.arange(1, heads + 1, dtype=torch.float64, device="cpu") / heads

    def bias(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        distance = (i - j).double()
        total = torch.zeros_like(distance)
        for w in self.spectrum.frequencies:  # one at a time: no tensor 64 times the bias
            total = total + torch.cos(distance * w)
        return total / self.ratio.to(h.device)[h]
