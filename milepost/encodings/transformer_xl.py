"""Transformer-XL: content and position, each met by the query and by a learned vector.

    score[i, j] = (q_i + u) · k_j + (q_i + v) · W R[i - j]
    R[d] = (sin d w_c .., cos d w_c ..),        w_c = base^(-2c/width)

Dai et al., "Transformer-XL", 2019, section 3.3, arXiv:1901.02860; used by Yang et al., "XLNet", 2019, arXiv:1906.08237

Departure: the papers build R for every distance, multiply, and shift rows into place. Since sin and cos of i - j unfold
into products of those of i and of j, the position term is a plain product of a vector of the query with one of the key:
exact for any positions, in any order, without a table of distances. XLNet's segment term is not a position and is not
here.

Mechanism: adds two products to the score: query with distance, and a learned vector with each of key and distance
Information: relative
Prior: smooth in the distance
Content: the query chooses distances
Storage: H x D x width + 2 H x D parameters
Used by: Transformer-XL, XLNet
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from milepost.angles import cos_sin
from milepost.encoding import Encoding, Relative
from milepost.spectrum import geometric

CHUNK = 2048
"""Distances whose sinusoids are held at a time."""


class TransformerXL(Encoding):
    """Vectors ``u``, ``v`` (H, D) and a projection (H, D, width) of sinusoids of the signed distance, sines first."""

    def __init__(self, heads: int, head_dim: int, width: int, base: float = 10000.0):
        super().__init__()
        self.check_at_least(1, heads=heads, head_dim=head_dim)
        self.heads, self.head_dim, self.width, self.base = heads, head_dim, width, base
        self.spectrum = geometric(width, base)
        self.frequencies = self.spectrum.tensor()
        self.u = nn.Parameter(torch.randn(heads, head_dim) * 0.02)
        self.v = nn.Parameter(torch.randn(heads, head_dim) * 0.02)
        self.project = nn.Parameter(torch.randn(heads, head_dim, width) * width**-0.5)

    def rescore(self, s: Tensor, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
        u, v, project = (t.to(q.dtype) for t in (self.u[:, None], self.v[:, None], self.project))
        cos_i, sin_i = (t.to(q.dtype) for t in cos_sin(i[..., 0], self.frequencies, q.dtype))  # B 1 I width/2
        cos_j, sin_j = (t.to(q.dtype) for t in cos_sin(j[..., 0, :], self.frequencies, q.dtype))  # B 1 J width/2
        on_sin, on_cos = ((q + v) @ project).chunk(2, dim=-1)  # what sin(i - j) and cos(i - j) are multiplied by
        of_cos_j = on_sin * sin_i + on_cos * cos_i
        of_sin_j = on_cos * sin_i - on_sin * cos_i
        place = torch.cat([of_cos_j, of_sin_j], dim=-1) @ torch.cat([cos_j, sin_j], dim=-1).transpose(-1, -2)
        return s + u @ k.transpose(-1, -2) + place

    def relative(self, distance: Tensor) -> Relative:
        project = self.project.mT  # H width D
        dtype = torch.promote_types(project.dtype, torch.float32)
        parts = []
        for some in [distance] if torch.compiler.is_compiling() else torch.split(distance, CHUNK):
            cos, sin = cos_sin(some, self.frequencies, dtype)
            parts.append(torch.cat([sin, cos], dim=-1) @ project.to(dtype))
        a = torch.cat(parts, dim=1)  # H n D
        return Relative(a=a, u=self.u, v=self.v)
