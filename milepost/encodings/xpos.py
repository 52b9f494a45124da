"""xPos: rotation with an exponential decay of each pair.

    q_m -> R(m) q_m z^(m/scale_base),   k_n -> R(n) k_n z^(-n/scale_base),      z_i = (2i + 0.4 D) / (1.4 D)
    so a logit holds z_i^((m-n)/scale_base): pair i fades with distance, the fast pairs first

Sun et al., "A Length-Extrapolatable Transformer", 2022, section 3.2. arXiv:2212.10554

Departure: released codes centre the exponents at half the current length, so a cached key is wrong as soon as the text
grows. The centre cancels in the logit; ours is 0 for good, and keys can be cached. The price: z^(-n/512) leaves
float32 near position 32,600 (float16: 4,070), and positions past that are refused instead of overflowing.

Mechanism: turns pairs of q and k and scales them, q down and k up
Information: relative
Prior: exponential decay with distance, faster for fast pairs
Content: multiplies it, channel pair by channel pair
Storage: none
Used by: TorchScale, RetNet's ancestors
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from milepost.angles import cos_sin
from milepost.encoding import Encoding
from milepost.positions import extent
from milepost.rotation import PAIRINGS, Pairing, pairs_of, rotate
from milepost.spectrum import geometric


class XPos(Encoding):
    """RoPE times a decay; for causal attention only, since a key after its query would grow without bound."""

    causal_only = True
    negative = False

    def __init__(self, head_dim: int, base: float = 10000.0, scale_base: float = 512.0, pairing: Pairing = "half"):
        super().__init__()
        if not 0 < scale_base <= 1e300:
            raise ValueError(f"scale_base must be above 0 and at most 1e300, got {scale_base}")
        self.check_choice("pairing", pairing, PAIRINGS)
        self.head_dim, self.base, self.scale_base, self.pairing = head_dim, base, scale_base, pairing
        self.spectrum = geometric(head_dim, base)
        self.inv_freq = self.spectrum.tensor()
        pair = torch.arange(0, head_dim, 2, dtype=torch.float64, device="cpu")
        self.rate = ((pair + 0.4 * head_dim) / (1.4 * head_dim)).log() / scale_base  # log z_i, a token
        self.end = self._end(torch.float32)

    def _end(self, dtype: torch.dtype) -> int:
        """The first position whose decay leaves the range of ``dtype``, with a tenth of its exponents to spare for q
        and k.
        """
        return int(0.9 * math.log(torch.finfo(dtype).max) / -self.rate[0].item())

    def _turn(self, x: Tensor, pos: Tensor, sign: int) -> Tensor:
        if x.dtype == torch.float16 and not torch.compiler.is_compiling() and extent(pos)[1] >= self._end(x.dtype):
            raise ValueError(
                f"position {extent(pos)[1]:.12g} makes {self!r} overflow float16, which ends at {self._end(x.dtype)}; "
                "use bfloat16 or float32"
            )
        cos, sin = (t[..., None, :, :] for t in cos_sin(pos, self.inv_freq, x.dtype))
        turned = rotate(x.to(cos.dtype), cos, sin, x.shape[-1], self.pairing)
        scale = (sign * pos.double()[..., None] * self.rate.to(pos.device)).exp().to(cos.dtype)[..., None, :, :]
        a, b = pairs_of(turned, scale.shape[-1], x.shape[-1], self.pairing)
        both = (a * scale, b * scale)
        joined = torch.cat(both, dim=-1) if self.pairing == "half" else torch.stack(both, dim=-1).flatten(-2)
        return joined.to(x.dtype)

    def query(self, q: Tensor, pos: Tensor) -> Tensor:
        return self._turn(q, pos, +1)

    def key(self, k: Tensor, pos: Tensor) -> Tensor:
        return self._turn(k, pos, -1)

    def past_end(self, position: float) -> str:
        return (
            f"position {position:.12g}: the decay of {self!r} leaves float32 at position {self.end}; "
            "use a larger scale_base, or rope with a bias"
        )
