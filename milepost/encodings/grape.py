"""GRAPE: positions turn q and k in planes that each head learns.

    q_m -> G(m) q_m,   k_n -> G(n) k_n,     G(p) = exp(p L),     L = sum over i of w_i (b_i a_i^T - a_i b_i^T)
    a_i, b_i: the learned planes, made orthonormal;     w_i = base^(-i/planes) exp(alpha_i),  alpha learned, 0 at first

Zhang et al., "Group Representational Position Encoding", ICLR 2026, sections 2 and 3. arXiv:2512.07805

L is skew, so G is a rotation, and a logit sees only n - m. With one plane it is the paper's rank-2 generator. The
planes are orthogonal to each other, so each turns by itself and exp needs no series: a part of x in a plane is turned
by p w_i. Where the planes are pairs of channels this is RoPE, and so it starts. Any skew L has such planes, so the
paper's mixtures of planes that do not commute are among these, too.

Departure: the paper's released code keeps the pairs of channels and learns w alone, one list for all heads; learned
planes are its section 3.1. Planes belong to key heads: `key_heads` of them, each for the query heads that share it. Its
rotations by hidden states are `selective_rope`, where all pairs share one clock. The additive half is
`grape_additive`. The planes are made orthonormal at each call, O(D^3) a head, and kept in float32 when the model is
cast, as frequencies are. Turning costs O(planes D) a token and head, where RoPE's is O(D).

Mechanism: turns the parts of q and k that lie in learned planes by an angle that grows with position
Information: relative, from two absolute rotations
Prior: that of rope at first; then what training made of it
Content: multiplies it, plane by plane
Storage: key_heads x planes x (2 D + 1) parameters
Used by: research models
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from milepost.encoding import Encoding
from milepost.positions import not_halved
from milepost.rotation import rotate
from milepost.spectrum import geometric


class GRAPE(Encoding):
    """``planes`` learned planes (head_dim / 2, by default) for each of ``key_heads`` heads (``heads``, by default)."""

    rotation = True

    def __init__(
        self,
        heads: int,
        head_dim: int,
        base: float = 10000.0,
        planes: int | None = None,
        key_heads: int | None = None,
    ):
        super().__init__()
        self.check_at_least(1, heads=heads)
        count, tables = head_dim // 2 if planes is None else planes, heads if key_heads is None else key_heads
        if not 1 <= count <= head_dim // 2:
            raise ValueError(f"head_dim={head_dim} has room for 1 to {head_dim // 2} planes, got {count}")
        if tables < 1 or heads % tables:
            raise ValueError(f"key_heads must share {heads} query heads evenly, got {key_heads}")
        self.heads, self.head_dim, self.base, self.planes, self.key_heads = heads, head_dim, base, planes, key_heads
        self.inv_freq = geometric(2 * count, base).tensor()
        self.vectors = nn.Parameter(torch.eye(head_dim)[:, : 2 * count].repeat(tables, 1, 1))  # a_0 .. , then b_0 ..
        self.alpha = nn.Parameter(torch.zeros(tables, count))

    def basis(self) -> Tensor:
        """The planes' vectors made orthonormal one after another, in float64: (key_heads, head_dim, 2 planes)."""
        q, r = torch.linalg.qr(self.vectors.double())
        basis: Tensor = q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None]  # pointing as the learned ones do
        return basis

    def turn(self, x: Tensor, pos: Tensor) -> Tensor:
        """Pure rotation of ``x`` (B H L D) of query or key heads by ``pos`` (L or B L)."""
        tables = len(self.alpha)
        if x.shape[1] not in (tables, self.heads):
            raise ValueError(f"{self!r} has planes for {self.heads} heads that share {tables}, got {x.shape[1]} heads")
        work, share = torch.promote_types(x.dtype, torch.float32), x.shape[1] // tables
        basis = self.basis().to(work).repeat_interleave(share, dim=0)
        speeds = (self.inv_freq.to(x.device) * self.alpha.double().exp()).repeat_interleave(share, dim=0)
        angle = pos.double()[..., None, :, None] * speeds[:, None]  # (B) H L planes
        angle = angle if angle.dim() == 4 else angle[None]
        part = x.to(work) @ basis
        turned = rotate(part, angle.cos().to(work), angle.sin().to(work), part.shape[-1], "half")
        return (x + (turned - part) @ basis.mT).to(x.dtype)

    def query(self, q: Tensor, pos: Tensor) -> Tensor:
        return self.turn(q, pos)

    def key(self, k: Tensor, pos: Tensor) -> Tensor:
        return self.turn(k, pos)

    def rekey(self, k: Tensor, pos: Tensor, was: Encoding, was_pos: Tensor) -> Tensor:
        """One more turn, by the difference of the positions."""
        return self.turn(k, pos - was_pos) if was is self else super().rekey(k, pos, was, was_pos)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Moves and casts, but for casts to half precision: frequencies are multiplied by large positions."""
        return super()._apply(not_halved(fn), recurse)  # type: ignore[no-untyped-call]
