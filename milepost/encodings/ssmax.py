"""SSMax: a softmax whose temperature grows with the number of keys, learned for each head.

    q_p -> q_p * s_h ln(p + 1),         softmax(s ln(n) z)_j = n^(s z_j) / sum_l n^(s z_l),     n = p + 1 keys

Nakanishi, "Scalable-Softmax Is Superior for Attention", 2025, section 2. arXiv:2501.19399

n is the number of keys that a query of a causal text sees: its position and itself. The query at 0 sees one key, and
any temperature gives it that one.

Departure: the paper draws its figures with s = 0.43. Ours begins at 1 / ln(length), so that a query at the end of the
trained length begins with the logits of a plain softmax; `start` says another number. The paper's variant with an added
bias loses what s was for on longer texts (its section 3) and is left out.

Mechanism: multiplies the query by a learned multiple of ln(p + 1)
Information: absolute, as a temperature only; it can't tell keys apart
Prior: attention stays as sharp at any length, from the first token on
Content: multiplies its logits
Storage: one number for each head
Used by: SSMax models; TabICL's attention over rows
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from milepost.encoding import Encoding


class SSMax(Encoding):
    """One learned number ``scale`` for each head, which begins at ``start``, or at 1 / ln(``length``)."""

    shift_invariant = False
    negative = False

    def __init__(self, heads: int, length: int, start: float | None = None):
        super().__init__()
        self.check_at_least(1, heads=heads)
        self.check_at_least(2, length=length)
        if start is not None and not 0 < start <= 100:
            raise ValueError(f"start must be above 0 and at most 100, got {start}")
        self.heads, self.length, self.start = heads, length, start
        self.scale = nn.Parameter(torch.full((heads,), 1 / math.log(length) if start is None else start))

    def query(self, q: Tensor, pos: Tensor) -> Tensor:
        if q.shape[1] != self.heads:
            raise ValueError(f"{self!r} has temperatures for {self.heads} heads, got {q.shape[1]}")
        work = torch.promote_types(q.dtype, torch.float32)
        factor = self.scale.double()[:, None] * pos.double().log1p()[..., None, :]  # (B) H L
        return q * factor[..., None].to(work).to(q.dtype)
