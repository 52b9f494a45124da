"""Selective RoPE: rotations whose angles the tokens choose.

    q_i -> R(a_i) q_i,   k_j -> R(a_j) k_j,     pair c turns by a_c(i) = w_c sum over t <= i of (W x_t)_c
    a logit sees the sum between the two tokens:  w_c sum over t = j+1 .. i of (W x_t)_c

Movahedi et al., "Selective Rotary Position Embedding", 2025, section 4. arXiv:2511.17388

Where W x is 1 for every token this is RoPE. Here a token says how far it moves the clock of each pair, forwards or
backwards; w_c = base^(-2c/D) keeps the pairs at different speeds.

Departure: the authors' code has a convolution over the last 4 tokens' angles, and gates as an option. Both are left
out, since features are each token's own. As there, x is normalised in one slice a head, W has rank 16, and the base is
500000. The angles are known when the whole text is, so keys are cached as they are and turned when they are attended
to: three products of q and k instead of one, and O(N D) turns for each token of a decode.

Mechanism: turns pairs of channels of q and k by the running sum of angles that the tokens choose
Information: order, in units that each token chooses
Prior: none
Content: each token's hidden state makes its angles
Storage: rank x (C + H D/2) parameters, and D/2 numbers a head and token in the cache
Used by: research models
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from milepost.encoding import Encoding
from milepost.rotation import rotate
from milepost.spectrum import geometric


class SelectiveRoPE(Encoding):
    """Angles for ``heads`` heads of ``head_dim`` channels, from hidden states of ``width`` through ``rank`` numbers."""

    causal_only = True
    running = True

    def __init__(self, heads: int, head_dim: int, width: int, base: float = 500000.0, rank: int = 16):
        super().__init__()
        self.check_at_least(1, heads=heads, head_dim=head_dim, width=width, rank=rank)
        if head_dim % 2 or width % heads:
            raise ValueError(
                f"head_dim must be even and width a multiple of heads, got head_dim={head_dim}, width={width}, "
                f"heads={heads}"
            )
        self.heads, self.head_dim, self.width, self.base, self.rank = heads, head_dim, width, base, rank
        self.feature_count, self.slice = heads * head_dim // 2, width // heads
        self.inv_freq = geometric(head_dim, base).tensor()
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, self.feature_count, bias=False)

    def features(self, x: Tensor, pos: Tensor) -> Tensor:
        slices = F.normalize(x.reshape(*x.shape[:-1], x.shape[-1] // self.slice, self.slice), dim=-1)
        steps: Tensor = self.up(self.down(slices.flatten(-2)))
        return steps

    def _turned(self, x: Tensor, f: Tensor) -> Tensor:
        angles = (
            f.double().reshape(*f.shape[:-1], x.shape[1], x.shape[-1] // 2) * self.inv_freq.to(f.device)
        ).transpose(1, 2)
        return rotate(x, angles.cos().to(x.dtype), angles.sin().to(x.dtype), x.shape[-1], "half")

    def relate(self, s: Tensor, q: Tensor, k: Tensor, f: Tensor, g: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return s + self._turned(q, f) @ self._turned(k, g).mT - q @ k.mT
