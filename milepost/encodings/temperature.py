"""Temperature: queries grow sharper with their own position, in the forms of released models.

    q_p -> q_p * t(p),      L: length, a: rate
    llama4    t = 1 + a ln(1 + floor((p + 1) / L))
    mistral   t = 1 + a ln(1 + floor(p / L))
    inkling   t = 1 + a ln max(1, (p + 1) / L)
    beam      t = (1 + (p + 1) / L)^a
    logn      t = max(1, ln(p + 1) / ln L)

Su, "Viewing the Scale of Attention from Entropy Invariance", 2021; Chiang & Cholak, 2022, arXiv:2202.12172, section 5;
Nakanishi, 2025, arXiv:2501.19399, which llama4, mistral and beam name as their source

With more keys a softmax flattens; sharper logits keep its entropy. By the query's own position, never by the length of
the text, so cached keys stay right. The steps of llama4 and mistral are one token apart: at p = L - 1 the one has
begun, the other has not.

Departure: none in t. Llama 4 and Beam use it in their layers without positions alone, Mistral and Inkling in others
too. It multiplies q·k; Inkling's tau multiplies its relative logits besides, which are not a part of q·k here. `ssmax`
learns its temperature and has a page of its own. The name of old, `logn(length=...)`, is still read.

Mechanism: multiplies the query
Information: absolute, as a temperature only; it can't tell keys apart
Prior: attention stays as sharp at any length
Content: multiplies its logits
Storage: none
Used by: Llama 4, Ministral 3, Mistral 4, Inkling, Beam; logn: ReRoPE, SelfExtend, Qwen 1
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from milepost.encoding import Encoding

FORMS = ("llama4", "mistral", "inkling", "beam", "logn")


class Temperature(Encoding):
    """Queries at p are multiplied by t(p), whose steps or growth are measured in ``length`` tokens."""

    shift_invariant = False
    negative = False

    def __init__(
        self, length: int, form: Literal["llama4", "mistral", "inkling", "beam", "logn"] = "llama4", rate: float = 0.1
    ):
        super().__init__()
        self.check_choice("form", form, FORMS)
        self.check_at_least(2 if form == "logn" else 1, length=length)  # the logarithm of log-n's length divides
        if not 0 < rate <= 100:
            raise ValueError(f"rate must be above 0 and at most 100, got {rate}")
        if form == "logn" and rate != 0.1:
            raise ValueError(f"logn has no rate: its only number is the length; got rate={rate}")
        self.length, self.form, self.rate = length, form, rate
        self.step = length if form in ("llama4", "mistral") else 1

    def factor(self, pos: Tensor) -> Tensor:
        """t(p) in float64, of the shape of ``pos``."""
        p = pos.double()
        if self.form == "llama4":
            return 1 + self.rate * torch.log1p(((p + 1) / self.length).floor())
        if self.form == "mistral":
            return 1 + self.rate * torch.log1p((p / self.length).floor())
        if self.form == "inkling":
            return 1 + self.rate * ((p + 1) / self.length).clamp(min=1.0).log()
        if self.form == "beam":
            return (self.rate * torch.log1p((p + 1) / self.length)).exp()
        return (p.log1p() / math.log(self.length)).clamp(min=1.0)

    def query(self, q: Tensor, pos: Tensor) -> Tensor:
        work = torch.promote_types(q.dtype, torch.float32)
        return q * self.factor(pos)[..., None, :, None].to(work).to(q.dtype)
