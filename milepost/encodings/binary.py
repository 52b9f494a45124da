"""Binary: the position's bits, one for each channel.

    x_p[c] -> x_p[c] + bit_c(p),        p = sum over c of bit_c(p) 2^c

Fleetwood, "You could have designed state of the art positional encoding", 2024, section "Binary Position Encoding"

The second idea: bounded, unique, exact up to 2^C; but neighbours such as 7 and 8 differ in many channels at once.

Departure: none; channels past the 62nd bit stay as they are, for positions are 64-bit integers.

Mechanism: adds bits to the embedding
Information: absolute
Prior: channel c is a square wave of period 2^(c+1)
Content: added to it
Storage: none
Used by: nobody for text; a step of the story
"""

from __future__ import annotations

import torch
from torch import Tensor

from milepost.encoding import Encoding


class Binary(Encoding):
    """``x + bits(p)`` over ``width`` channels, lowest bit first; ends at position ``2^width``."""

    shift_invariant = False
    negative = False
    fractional = False

    def __init__(self, width: int):
        super().__init__()
        self.check_at_least(1, width=width)
        self.width = width
        self.end = 2**width if width < 63 else None

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        assert self.width is not None
        channel = torch.arange(self.width, device=pos.device)
        bits = (pos[..., None] >> channel.clamp(max=62)) & (channel < 63)
        return x + bits.to(x.dtype)
