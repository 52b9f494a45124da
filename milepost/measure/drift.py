"""Drift: the same text read at once, and continued token by token from a cache. Both should give the same next token.

largest       the largest difference of any logit
divergence    KL(at once || continued) of the next token's distribution, nats
allowed       4 x rounding: how far the logits of one pass are from the same in float64, once for each of the two ways,
              and doubled because models do some steps in float32 even then. None where no model in float64 is given
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Last = Callable[[Tensor], Tensor]
"""Tokens (B L) to the logits after the last of them (B V)."""
Continued = Callable[[Tensor, int], Tensor]
"""Tokens (B L) and how many of them come one by one, to the logits after each of these (B stepped V)."""
ALLOWANCE = 4
"""How many times its rounding a difference of logits may be."""


@dataclass(frozen=True)
class Drift:
    """One length: the last ``stepped`` tokens came one by one.

    ``largest`` in units of logits, ``divergence`` in nats.
    """

    length: int
    stepped: int
    largest: float
    divergence: float
    allowed: float | None

    @property
    def beyond(self) -> bool:
        """Whether the difference is more than rounding; a difference that is not a number always is."""
        return self.allowed is not None and not self.largest <= self.allowed


@torch.no_grad()
def drift(last: Last, continued: Continued, ids: Tensor, stepped: int, exact: Last | None = None) -> Drift:
    """How far a cached reading of ids (B L) ends from an uncached one; ``exact`` is the model in float64."""
    length = ids.shape[1]
    if not 1 <= stepped < length:
        raise ValueError(f"from 1 to {length - 1} of {length} tokens can come one by one, got {stepped}")
    whole, cached = last(ids), continued(ids, stepped)[:, -1]
    allowed = None
    if exact is not None:
        rounded = max(
            _apart(whole, exact(ids)),
            torch.finfo(torch.promote_types(whole.dtype, torch.float32)).eps * float(whole.abs().max()),
        )
        allowed = ALLOWANCE * rounded
    before, after = (torch.log_softmax(logits.double(), -1) for logits in (whole, cached))
    divergence = (before.exp() * (before - after)).sum(-1).max().clamp(min=0)  # a NaN stays a NaN
    return Drift(length, stepped, _apart(whole, cached), float(divergence), allowed)


def _apart(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).abs().max())
