"""Swin v2: a bias from log-spaced offsets, by a small network.

    logits[h, i, j] += 16 sigmoid( f_h(c) ),        c_a = sign(d_a) log2(1 + |d_a|) / log2(8)
    d_a = 8 (i_a - j_a) / (trained_a - 1)
    f: ReLU network axes - hidden - H, with a bias inside and none outside

Liu et al., "Swin Transformer V2: Scaling Up Capacity and Resolution", 2022, section 3.3. arXiv:2111.09883

The network has an answer for every offset, so that a larger window needs no new table; logarithms keep far offsets
close to those it knows.

Departure: the formula of the paper is sign(d) log(1 + |d|) of the offset alone; we follow the authors' code, which
first scales the `trained` window to -8 .. 8, and bounds the bias by 16 sigmoid. Where offsets are whole numbers, the
network is asked once for each offset, not for each pair of tokens. The cosine attention of Swin v2 is not position's
business: normalise q and k, and give attend(..., scale=1.0).

Mechanism: adds a learned function of the offset to the logit
Information: relative on every axis
Prior: none; fine near, coarse far
Content: added to its logit
Storage: (axes + 1 + H) x hidden parameters
Used by: Swin v2
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from milepost.encoding import Encoding
from milepost.positions import grid


class SwinV2(Encoding):
    """A network of ``hidden`` units, with one output for each of ``heads`` heads; ``trained`` is the window that was
    scaled to -8 .. 8.
    """

    def __init__(self, heads: int, trained: tuple[int, ...] = (8, 8), hidden: int = 512):
        super().__init__()
        if (
            not isinstance(trained, tuple | list)
            or len(trained) < 2
            or any(type(n) is not int or n < 2 for n in trained)
        ):
            raise ValueError(
                "trained must be two whole numbers or more, each at least 2, such as (8, 8) for rows and columns; "
                f"got {trained!r}"
            )
        self.check_at_least(1, heads=heads, hidden=hidden)
        self.heads, self.trained, self.hidden, self.axes = heads, tuple(trained), hidden, len(trained)
        self.inner, self.outer = nn.Linear(self.axes, hidden), nn.Linear(hidden, heads, bias=False)

    def answers(self, offset: Tensor) -> Tensor:
        """The network's bias for offsets (axes, n): n H."""
        dtype = torch.promote_types(self.inner.weight.dtype, torch.float32)
        scaled = torch.stack(
            [8 * d.double() / (side - 1) for side, d in zip(self.trained, offset, strict=True)], dim=-1
        )
        near = (scaled.sign() * torch.log2(1 + scaled.abs()) / math.log2(8)).to(dtype)
        inside = torch.relu(near @ self.inner.weight.to(dtype).T + self.inner.bias.to(dtype))
        return 16 * torch.sigmoid(inside @ self.outer.weight.to(dtype).T)

    def bias(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        offset = i - j
        place = torch.arange(offset[0].numel(), device=offset.device).view(offset.shape[1:])
        if (
            not offset.is_floating_point()
            and not torch.compiler.is_compiling()
            and torch._C._functorch.peek_interpreter_stack() is None
        ):
            reach = offset.flatten(1).abs().amax(1).tolist() if offset.numel() else [0] * self.axes
            sides = [2 * most + 1 for most in reach]
            if math.prod(sides) < offset[0].numel():  # fewer offsets than pairs: a table of them
                place = torch.zeros_like(place)
                for side, most, d in zip(sides, reach, offset, strict=True):
                    place = place * side + d + most
                offset = grid(*sides).to(offset.device)[:, 0] - torch.tensor(reach, device=offset.device)[:, None]
        return self.answers(offset.reshape(self.axes, -1))[place, h]
