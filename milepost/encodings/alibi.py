"""ALiBi: attention with linear biases.

    logits[h, i, j] += -m_h |i - j|,          m_h = 2^(-8h/H),   h = 1 .. H

Press, Smith & Lewis, "Train Short, Test Long", ICLR 2022, section 3. arXiv:2108.12409

Departure: the paper gives m_h for H a power of two. Otherwise we follow the authors' code: the slopes of the power of
two below, then every other slope of the power of two above. mode="causal" (the paper) refuses attention without a
causal mask; "symmetric" is the same bias on both sides; "asymmetric" has slopes of its own for keys after the query
(by default the same slopes in reverse order, so that no head is short-sighted both ways).

Mechanism: subtracts a head's slope times the distance from the logit
Information: relative
Prior: nearer is better, at a different reach for every head
Content: added to its logit
Storage: none
Used by: BLOOM, MPT, Falcon-RW, BTLM, DNABERT-2
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from milepost.encoding import Encoding


def slopes(heads: int) -> tuple[float, ...]:
    """The published slopes for any number of heads."""
    below = 2 ** math.floor(math.log2(heads))
    first = [2.0 ** (-8 * h / below) for h in range(1, below + 1)]
    return tuple(first + [2.0 ** (-4 * (2 * h + 1) / below) for h in range(heads - below)])


class ALiBi(Encoding):
    """One slope for each of ``heads`` heads, or your own ``slopes`` (and ``future`` ones, when asymmetric)."""

    causal_only = True

    def __init__(
        self,
        heads: int,
        mode: Literal["causal", "symmetric", "asymmetric"] = "causal",
        slopes: tuple[float, ...] | None = None,
        future: tuple[float, ...] | None = None,
    ):
        super().__init__()
        self.check_at_least(1, heads=heads)
        self.check_choice("mode", mode, ("causal", "symmetric", "asymmetric"))
        if future is not None and mode != "asymmetric":
            raise ValueError(f'future slopes are for mode="asymmetric", got mode={mode!r}')
        self.heads, self.mode, self.causal_only = heads, mode, mode == "causal"
        for word, given in (("slopes", slopes), ("future", future)):
            if given is not None and not isinstance(given, tuple | list):
                raise ValueError(f"{word} must be {heads} numbers, such as (0.5, 0.25), got {given!r}")
        self.slopes = tuple(slopes) if slopes is not None else None
        self.future = tuple(future) if future is not None else None
        past = _published(heads) if self.slopes is None else self.slopes
        self.past_slopes = _column(past, heads, "slopes")
        self.future_slopes = (
            _column(past[::-1] if self.future is None else self.future, heads, "future")
            if mode == "asymmetric"
            else self.past_slopes
        )

    def bias(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        distance = i - j
        past = self.past_slopes.to(h.device)[h]
        if self.mode != "asymmetric":
            return -past * distance.abs()
        return torch.where(distance >= 0, -past * distance, self.future_slopes.to(h.device)[h] * distance)


_published = slopes  # `slopes` is also the name of an argument


def _column(values: tuple[float, ...], heads: int, word: str) -> Tensor:
    if len(values) != heads or not all(isinstance(v, int | float) and 0 <= v < float("inf") for v in values):
        raise ValueError(f"{word} must be {heads} finite numbers, none negative (one a head), got {values}")
    return torch.tensor(values, dtype=torch.float64, device="cpu")
