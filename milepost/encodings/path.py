"""PaTH: the path between two tokens, as a product of reflections that the tokens on it choose.

    score[i, j] = q_i · H_i H_{i-1} ... H_{j+1} k_j,      H_t = I - b_t w_t w_t^T
    w_t = W x_t / |W x_t|,    b_t = 2 sigmoid(u · x_t + c)

Yang et al., "PaTH Attention: Position Encoding via Accumulating Householder Transformations", NeurIPS 2025, section 3.
arXiv:2505.16381

RoPE multiplies by the same rotation at each step; here each token has its own matrix. It can track a state along the
text, which no rotation by position can.

Departure: the paper's layer runs w through a convolution over 3 tokens; it is left out (an option in its released code,
too): features are each token's own. w is made for each query head, through 32 numbers. The products are taken all at
once, by a triangular system over the keys, as the paper does within a chunk: O(N^3) for a text of N tokens, and as much
again for every chunk of queries. For models to train there are the paper's own kernels; this is the definition.

Mechanism: multiplies the key by one reflection after another, those of the tokens between it and the query
Information: order, through what the tokens say
Prior: none
Content: each token's hidden state makes its reflection
Storage: rank x (C + H D) + H (C + 1) parameters, and D + 1 numbers a head and token in the cache
Used by: PaTH, PaTH-FoX; flash-linear-attention
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost.encoding import Encoding


class PaTH(Encoding):
    """Reflections in ``heads`` heads of ``head_dim`` channels, from hidden states of ``width`` through ``rank``
    numbers.
    """

    causal_only = True

    def __init__(self, heads: int, head_dim: int, width: int, rank: int = 32):
        super().__init__()
        self.check_at_least(1, heads=heads, head_dim=head_dim, width=width, rank=rank)
        self.heads, self.head_dim, self.width, self.rank = heads, head_dim, width, rank
        self.feature_count = heads * (head_dim + 1)
        self.down, self.up = nn.Linear(width, rank, bias=False), nn.Linear(rank, heads * head_dim, bias=False)
        self.strength = nn.Linear(width, heads)

    def features(self, x: Tensor, pos: Tensor) -> Tensor:
        work = torch.promote_types(x.dtype, torch.float32)
        axes = F.normalize(self.up(self.down(x)).to(work).unflatten(-1, (self.heads, -1)), dim=-1)
        return torch.cat([axes.flatten(-2), 2 * torch.sigmoid(self.strength(x).to(work))], dim=-1)

    def relate(self, s: Tensor, q: Tensor, k: Tensor, f: Tensor, g: Tensor, i: Tensor, j: Tensor) -> Tensor:
        place = j.expand(s.shape[0], 1, 1, -1)[:, 0, 0].argsort(dim=-1, stable=True)  # keys in the order of the text
        size = q.shape[1] * q.shape[-1]
        w = _put(g[..., :size].to(q.dtype).reshape(*g.shape[:-1], q.shape[1], q.shape[-1]), place).transpose(
            1, 2
        )  # B H J D
        b = _put(g[..., size:].to(q.dtype), place).transpose(1, 2)[..., None]  # B H J 1
        k = _put(k.transpose(1, 2), place).transpose(1, 2)
        seen = (s > float("-inf")).gather(-1, place[:, None, None].expand(s.shape)).to(q.dtype)  # B H I J
        together = (seen.mT @ seen > 0).to(q.dtype)  # keys that some query sees both of: others are never on one path
        across, along = (w @ w.mT * together).tril(-1), (w @ k.mT * together).tril(-1)
        eye = torch.eye(w.shape[2], dtype=q.dtype, device=q.device)
        met = torch.linalg.solve_triangular(eye + b * across, b * along, upper=False)
        taken = (q @ w.mT * seen) @ met
        return s - torch.zeros_like(taken).scatter(-1, place[:, None, None].expand(s.shape), taken)


def _put(x: Tensor, place: Tensor) -> Tensor:
    """The tokens of ``x`` (B J ...) at these places (B J), in their order."""
    return x.gather(1, place.reshape(*place.shape, *[1] * (x.dim() - 2)).expand(x.shape))
