"""Mixed: RoPE whose pairs turn by all axes at once, in directions that each head learns.

    pair i of head h turns by w_hi · p = sum over axes a of w_hia p_a,          w learned
    start: w = |w| u,   |w| = base^(-2i/size) over size = D/axes channels,   u the axes of a frame turned at random for
                                                                             each head

Heo et al., "Rotary Position Embedding for Vision Transformer", 2024, section 3. arXiv:2403.13298

Axial rotations see rows and columns apart; here a pair may follow a diagonal.

Departure: none for two axes: the authors' start, base = 10, and neighbouring channels as pairs. For more axes the
random angle becomes a random rotation. Frequencies are learned, angles are still computed in float64. Keys must have as
many heads as queries.

Mechanism: turns pairs of channels of q and k by a learned mix of the axes
Information: relative, in every direction
Prior: similarity falls slowly in all directions, which training turns and stretches
Content: multiplies it, channel pair by channel pair
Storage: axes x heads x D/2 parameters in each layer
Used by: rope-vit
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from milepost.encoding import Encoding
from milepost.rotation import PAIRINGS, Pairing, rotate
from milepost.spectrum import geometric


class Mixed(Encoding):
    """Learned frequencies of shape (axes, heads, head_dim/2)."""

    rotation = True

    def __init__(self, heads: int, head_dim: int, axes: int = 2, base: float = 10.0, pairing: Pairing = "interleaved"):
        super().__init__()
        if heads < 1 or axes < 2 or head_dim < 2 * axes or head_dim % (2 * axes):
            raise ValueError(
                f"mixed needs heads >= 1, axes >= 2 and head_dim a multiple of 2 x axes, got heads={heads}, "
                f"axes={axes}, head_dim={head_dim}" + ("; one axis is rope" if axes == 1 else "")
            )
        self.check_choice("pairing", pairing, PAIRINGS)
        self.heads, self.head_dim, self.axes, self.base, self.pairing = heads, head_dim, axes, base, pairing
        fast = geometric(head_dim // axes, base).tensor()
        start = (_frames(heads, axes)[..., None] * fast).permute(1, 0, 2, 3).flatten(2)  # axis, head, pair
        self.frequencies = nn.Parameter(torch.empty(start.shape))
        with torch.no_grad():
            self.frequencies.copy_(start)

    def turn(self, x: Tensor, pos: Tensor) -> Tensor:
        """Rotation of ``x`` (B H L D) by ``pos`` (axes B L), each head by its own frequencies."""
        if x.shape[1] != self.heads:
            raise ValueError(
                f"{self!r} has frequencies for {self.heads} heads, got {x.shape[1]}: keys need as many heads as "
                "queries here, and no shard of them"
            )
        angle = torch.stack(
            [p.double()[:, None, :, None] * w[:, None] for p, w in zip(pos, self.frequencies.double(), strict=True)]
        ).sum(0)  # B H L pairs
        work = torch.promote_types(x.dtype, torch.float32)
        assert self.head_dim is not None
        return rotate(x, angle.cos().to(work), angle.sin().to(work), self.head_dim, self.pairing)

    def query(self, q: Tensor, pos: Tensor) -> Tensor:
        return self.turn(q, pos)

    def key(self, k: Tensor, pos: Tensor) -> Tensor:
        return self.turn(k, pos)


def _frames(heads: int, axes: int) -> Tensor:
    """A frame of unit vectors for each head, turned at random: (heads, axes, axes), a vector in each column."""
    q, r = torch.linalg.qr(torch.randn(heads, axes, axes, dtype=torch.float64, device="cpu"))
    q = q * r.diagonal(dim1=-2, dim2=-1).sign()[:, None]
    return torch.cat(
        [q[..., :-1], q[..., -1:] * torch.linalg.det(q)[:, None, None]], dim=-1
    )  # a rotation, not a mirror
