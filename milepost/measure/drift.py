"""Drift: the same text read at once, and continued token by token from a cache. Both should say the same of the next token.

largest       the largest difference of any logit
divergence    KL(at once || continued) of the next token's distribution, nats
allowed       4 x rounding: how far the logits of one pass are from the same in float64, for each of the two ways, and twice
              because models do some steps in float32 even then. None where there is no model in float64 to compare with
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Last = Callable[[Tensor], Tensor]
"""Tokens (B L) to the logits after the last of them (B V)."""
Continued = Callable[[Tensor, int], Tensor]
"""Tokens (B L) and how many of them come one by one, to the logits after each of these (B said V)."""
DOUBT = 4
"""How many times its rounding a difference of logits may be."""


@dataclass(frozen=True)
class Drift:
    """One length: ``said`` tokens came one by one. ``largest`` in units of logits, ``divergence`` in nats."""

    length: int
    said: int
    largest: float
    divergence: float
    allowed: float | None

    @property
    def beyond(self) -> bool:
        """Whether it is more than rounding; what is no number is."""
        return self.allowed is not None and not self.largest <= self.allowed


@torch.no_grad()
def drift(last: Last, continued: Continued, ids: Tensor, said: int, exact: Last | None = None) -> Drift:
    """How far a cached reading of ids (B L) ends from an uncached one; ``exact`` is the model in float64."""
    length = ids.shape[1]
    if not 1 <= said < length:
        raise ValueError(f"from 1 to {length - 1} of {length} tokens can come one by one, got {said}")
    whole, cached = last(ids), continued(ids, said)[:, -1]
    allowed = None
    if exact is not None:
        rounded = max(
            _apart(whole, exact(ids)),
            torch.finfo(torch.promote_types(whole.dtype, torch.float32)).eps * float(whole.abs().max()),
        )
        allowed = DOUBT * rounded
    before, after = (torch.log_softmax(logits.double(), -1) for logits in (whole, cached))
    divergence = float((before.exp() * (before - after)).sum(-1).max())
    return Drift(
        length, said, _apart(whole, cached), max(divergence, 0.0) if divergence == divergence else divergence, allowed
    )


def _apart(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).abs().max())
