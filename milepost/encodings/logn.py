"""log-n: a temperature that grows with the query's position.

    q_p -> q_p * max(1, ln(p + 1) / ln(length)),          length: the trained length

Su, "Viewing the Scale of Attention from Entropy Invariance", 2021; Chiang & Cholak, 2022, arXiv:2202.12172, section 5

With more keys a softmax flattens; sharper logits keep its entropy. By the query's own position, never by the length of
the text, so cached keys stay right.

Departure: none; the floor of 1 leaves texts of the trained length untouched, as ReRoPE and SelfExtend do.

Mechanism: multiplies the query
Information: absolute, as a temperature only; it can't tell keys apart
Prior: attention stays as sharp at any length
Content: multiplies its logits
Storage: none
Used by: ReRoPE, SelfExtend, Qwen 1; in another form Llama 4
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from milepost.encoding import Encoding


class LogN(Encoding):
    """Queries past the trained ``length`` are sharpened by ``ln(p + 1) / ln(length)``."""

    shift_invariant = False
    negative = False

    def __init__(self, length: int):
        super().__init__()
        if length < 2:
            raise ValueError(f"length must be at least 2 (its logarithm divides), got {length}")
        self.length = length

    def query(self, q: Tensor, pos: Tensor) -> Tensor:
        factor = (torch.log1p(pos.double()) / math.log(self.length)).clamp(min=1.0)
        return q * factor[..., None, :, None].to(torch.float64 if q.dtype == torch.float64 else torch.float32).to(
            q.dtype
        )
