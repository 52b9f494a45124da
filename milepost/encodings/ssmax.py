"""SSMax: a softmax whose temperature grows with the number of keys, learned for each head.

    q_p -> q_p * s_h ln(p + 1),         softmax(s ln(n) z)_j = n^(s z_j) / sum_l n^(s z_l),     n = p + 1 keys
    affine:  q_p -> q_p * (s_h ln(p + 1) + b_h)

Nakanishi, "Scalable-Softmax Is Superior for Attention", 2025, section 2. arXiv:2501.19399

n is the number of keys that a query of a causal text sees: its position and itself. The query at 0 sees one key, and
any temperature gives it that one.

Departure: the paper draws its figures with s = 0.43. Ours begins at 1 / ln(length), so that a query at the end of the
trained length begins with the logits of a plain softmax; `start` says another number. The affine form is Mistral Large
4's, in every layer and in its indexers; it begins at s = 0 and b = 1, a plain softmax. transformers rounds ln(p + 1), s
and b to the model's precision before it multiplies; ours is rounded once.

Mechanism: multiplies the query by a learned multiple of ln(p + 1)
Information: absolute, as a temperature only; it can't tell keys apart
Prior: attention stays as sharp at any length, from the first token on
Content: multiplies its logits
Storage: one number for each head; two in the affine form
Used by: Mistral Large 4 (affine), TabICL
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from milepost.encoding import Encoding


class SSMax(Encoding):
    """One learned number ``scale`` for each head, which begins at ``start``, or at 1 / ln(``length``); with ``affine``
    at 0, and a second one, ``added``, at 1.
    """

    shift_invariant = False
    negative = False

    def __init__(self, heads: int, length: int, start: float | None = None, affine: bool = False):
        super().__init__()
        self.check_at_least(1, heads=heads)
        self.check_at_least(2, length=length)
        if start is not None and not 0 < start <= 100:
            raise ValueError(f"start must be above 0 and at most 100, got {start}")
        self.heads, self.length, self.start, self.affine = heads, length, start, affine
        usual = 0.0 if affine else 1 / math.log(length)
        self.scale = nn.Parameter(torch.full((heads,), usual if start is None else start))
        self.added = nn.Parameter(torch.ones(heads)) if affine else None

    def query(self, q: Tensor, pos: Tensor) -> Tensor:
        if q.shape[1] != self.heads:
            raise ValueError(f"{self!r} has temperatures for {self.heads} heads, got {q.shape[1]}")
        work = torch.promote_types(q.dtype, torch.float32)
        factor = self.scale.double()[:, None] * pos.double().log1p()[..., None, :]  # (B) H L
        factor = factor if self.added is None else factor + self.added.double()[:, None]
        return q * factor[..., None].to(work).to(q.dtype)
