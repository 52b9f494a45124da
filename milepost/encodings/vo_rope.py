"""VO-RoPE: values are turned by their position, and the output is turned back by the query's.

    v_j -> R(j) v_j,    y_i -> R(-i) y_i:        y_i = sum over j of p_ij R(j - i) v_j

DeepSeek-V4, 2026: as in transformers, models/deepseek_v4/modeling_deepseek_v4.py, where one vector is key and value

What a token receives says how far away it comes from: a value turned by the signed distance, whatever the weights. It
changes no logit, and goes beside an encoding that does: rope + vo_rope.

Departure: DeepSeek-V4 turns its values because they are its keys; here values are turned and q and k are left alone.
The last `rotary` channels turn, in neighbouring pairs, with exponents over `rotary`, as there. The paper's compressed
entries and its two bases by kind of layer are a model's choice: give each layer its own `base`.

Mechanism: turns pairs of channels of the values by the key's position, and of the output back by the query's
Information: relative, in the output and not in the weights
Prior: none
Content: turns what is received
Storage: none
Used by: DeepSeek-V4
"""

from __future__ import annotations

import torch
from torch import Tensor

from milepost.angles import cos_sin
from milepost.encoding import Encoding
from milepost.rotation import PAIRINGS, Pairing, rotary_size, rotate
from milepost.spectrum import geometric


class VORoPE(Encoding):
    """Rotations of the last ``rotary`` of ``head_dim`` channels (all, by default) of values and output."""

    rotation = True

    def __init__(
        self, head_dim: int, base: float = 10000.0, pairing: Pairing = "interleaved", rotary: int | None = None
    ):
        super().__init__()
        turned = rotary_size(head_dim, rotary)
        self.check_choice("pairing", pairing, PAIRINGS)
        self.head_dim, self.base, self.pairing, self.rotary = head_dim, base, pairing, rotary
        self.turned = turned
        self.inv_freq = geometric(turned, base).tensor()

    def _turn(self, x: Tensor, pos: Tensor, sign: int) -> Tensor:
        cos, sin = cos_sin(pos, self.inv_freq, x.dtype)
        rest, last = x[..., : x.shape[-1] - self.turned], x[..., x.shape[-1] - self.turned :]
        last = rotate(last, cos.unsqueeze(-3), sign * sin.unsqueeze(-3), self.turned, self.pairing)
        return torch.cat([rest, last], dim=-1) if rest.shape[-1] else last

    def value(self, v: Tensor, pos: Tensor) -> Tensor:
        return self._turn(v, pos, +1)

    def restore(self, y: Tensor, pos: Tensor) -> Tensor:
        return self._turn(y, pos, -1)

    def revalue(self, v: Tensor, pos: Tensor, was_pos: Tensor) -> Tensor:
        """One more turn, by the difference of the positions."""
        return self._turn(v, pos - was_pos, +1)
