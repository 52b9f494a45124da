"""Shaw: learned vectors for clipped distances, met by the query.

    score[i, j] = q_i · (k_j + a[r]),     output_i = sum over j of p_ij (v_j + b[r]),      r = clip(j - i, -K, K)

Shaw, Uszkoreit & Vaswani, "Self-Attention with Relative Position Representations", 2018, section 3. arXiv:1803.02155

Departure: the paper shares a and b over heads (shared=True, our default) and has the value term; values=False drops it,
as most later models do. q·a is computed for the 2K + 1 vectors and picked, not for every pair of tokens.

Mechanism: adds q · a to the score, and b to the output
Information: relative, clipped at K
Prior: none; all distances past K are alike
Content: the query chooses distances
Storage: (2K + 1) x D parameters, twice with the value term
Used by: Music Transformer, Wav2Vec2-BERT, Conformer variants
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from milepost.encoding import Encoding, Relative


class Shaw(Encoding):
    """Tables of ``2 clip + 1`` vectors of ``head_dim``, for all heads together or for each."""

    fractional = False

    def __init__(self, heads: int, head_dim: int, clip: int = 16, values: bool = False, shared: bool = True):
        super().__init__()
        self.check_at_least(1, heads=heads, head_dim=head_dim, clip=clip)
        self.heads, self.head_dim, self.clip, self.values, self.shared = heads, head_dim, clip, values, shared
        self.alike_from = clip
        shape = (1 if shared else heads, 2 * clip + 1, head_dim)
        self.a = nn.Parameter(torch.randn(shape) * head_dim**-0.5)
        self.b = nn.Parameter(torch.randn(shape) * head_dim**-0.5) if values else None

    @property
    def points(self) -> tuple[str, ...]:
        return ("rescore", "output") if self.values else ("rescore",)

    def _row(self, i: Tensor, j: Tensor) -> Tensor:
        return (j - i).clamp(-self.clip, self.clip) + self.clip

    def rescore(self, s: Tensor, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
        by_row = q @ self.a.to(q.dtype).transpose(-1, -2)  # B H I 2K+1
        return s + by_row.gather(-1, self._row(i, j).expand(s.shape))

    def output(self, p: Tensor, i: Tensor, j: Tensor) -> Tensor:
        if self.b is None:
            return super().output(p, i, j)
        mass = p.new_zeros(*p.shape[:-1], 2 * self.clip + 1).scatter_add(-1, self._row(i, j).expand(p.shape), p)
        return mass @ self.b.to(p.dtype)

    def relative(self, distance: Tensor) -> Relative:
        row = self._row(distance, torch.zeros_like(distance))
        return Relative(a=self.a[:, row], values=None if self.b is None else self.b[:, row])
