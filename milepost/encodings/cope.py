"""CoPE: contextual positions, counted by gates.

    g_ij = sigmoid(q_i · k_j / sqrt(D)),    p_ij = sum over t = j .. i of g_it,  at most positions - 1
    score[i, j] = q_i · k_j + sqrt(D) q_i · e[p_ij],         e between two whole positions by linear interpolation

Golovneva et al., "Contextual Position Encoding: Learning to Count What's Important", 2024, section 4. arXiv:2405.18719

The model counts what it chooses to count, such as sentences, instead of tokens.

Departure: the paper's equations leave out 1/sqrt(D); its code divides q·k, for the gates too, but not q·e. We follow
the code (scores here are divided by sqrt(D) later, hence the factor). The limit at `positions - 1` is the paper's. Keys
may come in any order: the sum runs over positions, not over memory.

Mechanism: adds q · e[count] to the score, the count being made by gates between query and keys
Information: relative, in units that the model chooses
Prior: none
Content: it makes the positions
Storage: positions x D parameters
Used by: research models; x-transformers
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from milepost.encoding import Encoding


class CoPE(Encoding):
    """``positions`` learned vectors of ``head_dim``, for all heads together or for each."""

    causal_only = True

    def __init__(self, heads: int, head_dim: int, positions: int = 64, shared: bool = True):
        super().__init__()
        if heads < 1 or head_dim < 1 or positions < 2:
            raise ValueError(
                f"CoPE needs heads, head_dim >= 1 and positions >= 2, got heads={heads}, head_dim={head_dim}, "
                f"positions={positions}"
            )
        self.heads, self.head_dim, self.positions, self.shared = heads, head_dim, positions, shared
        self.e = nn.Parameter(torch.randn(1 if shared else heads, positions, head_dim) * 0.02)

    def rescore(self, s: Tensor, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
        root = math.sqrt(q.shape[-1])
        places, order = j.sort(dim=-1)
        gates = torch.sigmoid(s / root).gather(-1, order.expand(s.shape))  # what the mask hides is -inf: its gate is 0
        from_here = torch.searchsorted(places, j.contiguous())  # equal positions count together
        count = gates.flip(-1).cumsum(-1).flip(-1).gather(-1, from_here.expand(s.shape)).clamp(max=self.positions - 1)
        by_position = q @ self.e.to(q.dtype).transpose(-1, -2)  # B H I positions
        below = count.detach().floor().long().clamp(max=self.positions - 2)
        low, high = by_position.gather(-1, below), by_position.gather(-1, below + 1)
        return s + root * (low + (count - below) * (high - low))

    def counted(self) -> Tensor:
        return self.e
