"""Stick-breaking attention: the nearest key takes its share first, and the next ones of what is left.

    p[i, j] = s(z_ij) product over t, j < t < i, of (1 - s(z_it)),       s the logistic function, z = q·k / sqrt(D)

Tan et al., "Scaling Stick-Breaking Attention: An Efficient Implementation and In-depth Study", ICLR 2025, section 2.
arXiv:2410.17980

No position enters but the order, and no softmax: weights add up to at most 1, and a token that finds nothing receives
nothing. Of two equal keys the nearer one wins, at any distance.

Departure: as in the authors' code, a token does not attend to itself (`current` lets it), and what is left of the stick
goes nowhere. Keys may come in any order: nearness is that of the positions. O(N^2) products with a running sum along
each row, which no fused kernel of torch does: a few rows at a time.

Mechanism: replaces the softmax by shares that the keys take one after another, the nearest first
Information: order
Prior: nearer is better, among keys that match
Content: it decides how much each key takes
Storage: none
Used by: research models; flash-linear-attention
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from milepost.encoding import Encoding


class StickBreaking(Encoding):
    """Shares in place of a softmax; with ``current`` a token attends to itself, too."""

    causal_only = True

    def __init__(self, current: bool = False):
        super().__init__()
        self.current = current

    def spread(self, logits: Tensor, i: Tensor, j: Tensor) -> Tensor:
        seen = logits > float("-inf")
        seen = seen if self.current else seen & (j < i)
        z, order = torch.where(seen, logits, 0.0), j.argsort(dim=-1, stable=True).expand(logits.shape)
        left = torch.where(seen, -F.softplus(z), 0.0).gather(-1, order)  # what each key leaves of the stick, as a log
        before = left.flip(-1).cumsum(-1).flip(-1) - left
        taken = F.logsigmoid(z) + torch.zeros_like(z).scatter(-1, order, before)
        return torch.where(seen, taken.exp(), 0.0)
