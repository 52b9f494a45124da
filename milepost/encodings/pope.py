"""PoPE: polar coordinates. The size of a channel says what, its phase says where.

    s_mn = sum_c softplus(q_c) softplus(k_c) cos((m - n) w_c - d_c),     w_c = base^(-c/D), one for every channel c

Gopalakrishnan et al., "Decoupling the What and Where with Polar Coordinate Positional Embedding", 2025, section 3.
arXiv:2509.10534

Each channel of q and k is a number above zero, its size in the complex plane; position alone turns it. In RoPE two
channels make a size and a phase of content, and position is added to that phase: here content has no phase. d_c is
learned for each head and channel, and begins at 0.

Departure: x-transformers keeps d within -2 pi and 0; a phase comes round, so here it is free. Its vectors have 2 D
channels and it divides logits by the root of 2 D; here they are divided by the root of D, as for every encoding, unless
attend is told another scale. The cost: q·k is not used, so that scores are computed twice, the second time over 2 D
channels; keys are cached as they are.

Mechanism: scores sizes of channels, each turned by a frequency of its own
Information: relative
Prior: at d = 0 all channels agree on the diagonal, and fall out of step with distance
Content: only as sizes; it can't move a peak
Storage: one phase for each head and channel
Used by: PoPE models, x-transformers
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost.angles import cos_sin
from milepost.encoding import Encoding


class PoPE(Encoding):
    """Phases ``delta`` of shape (heads, head_dim)."""

    def __init__(self, heads: int, head_dim: int, base: float = 10000.0):
        super().__init__()
        self.check_at_least(1, heads=heads, head_dim=head_dim)
        if not 1 < base <= 1e300:
            raise ValueError(f"base must be a finite number above 1 (at most 1e300), got {base}")
        self.heads, self.head_dim, self.base = heads, head_dim, base
        speeds = [float(base) ** (-channel / head_dim) for channel in range(head_dim)]
        self.frequencies = torch.tensor(speeds, dtype=torch.float64, device="cpu")
        self.delta = nn.Parameter(torch.zeros(heads, head_dim))

    def rescore(self, s: Tensor, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
        cos_i, sin_i = (t.to(q.dtype) for t in cos_sin(i[..., 0], self.frequencies, q.dtype))  # B 1 I D
        cos_j, sin_j = (t.to(q.dtype) for t in cos_sin(j[..., 0, :], self.frequencies, q.dtype))  # B 1 J D
        phase = self.delta.to(q.dtype)[:, None]  # H 1 D
        size_q, size_k = F.softplus(q), F.softplus(k)
        cos, sin = phase.cos(), phase.sin()
        asked = torch.cat([size_q * (cos_i * cos + sin_i * sin), size_q * (sin_i * cos - cos_i * sin)], dim=-1)
        polar = asked @ torch.cat([size_k * cos_j, size_k * sin_j], dim=-1).transpose(-1, -2)
        return polar.masked_fill(s == float("-inf"), float("-inf"))
