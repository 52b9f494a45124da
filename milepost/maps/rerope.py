"""ReRoPE: distances that stop growing at a window, or go on slowly.

    distance of m and n = m - n                       where m - n < w
                          w                           where m - n >= w
                          w + (m - n - w)/leak        the same, leaky

Su, "Rectified Rotary Position Embeddings", 2023. kexue.fm/archives/9708, github.com/bojone/rerope

A rectifier of the distance: RoPE with its order near by, and no order (or little, leaky) past the window. `leak` is the
published code's `scaling_factor`, 16 there. Both forms see distances alone, so they are shift-invariant.

Departure: the published code also multiplies queries by log-n with the trained length: here that is a part of its own,
`rerope(...) + temperature(length=4096, form='logn')`. It takes the distance without its sign; here a key after its
query is refused.

Mechanism: scores near keys by RoPE, far keys by RoPE at one distance, or at distances divided by `leak`
Information: relative; past the window none, or coarse
Prior: RoPE's up to the window; past it all keys are alike
Content: as RoPE
Storage: none
Used by: training-free extension of Llama (bojone/rerope)
"""

from __future__ import annotations

import torch
from torch import Tensor

from milepost.encodings.rope import RoPE
from milepost.maps.mapped import Mapped, places, unless_hidden, whole


class ReRoPE(Mapped):
    """``rope`` up to distance ``window``; past it no further, or by ``1/leak`` a token."""

    causal_only = True

    def __init__(self, rope: RoPE, window: int = 512, leak: float | None = None):
        super().__init__(rope)
        self.window = whole("window", window, 1, "the distance from which on nothing, or little, is added")
        if leak is not None and (
            isinstance(leak, bool) or not isinstance(leak, int | float) or not 1 <= leak < float("inf")
        ):
            raise ValueError(
                "leak must be a finite number of at least 1 (far tokens that add one to the distance), or None for "
                f"no leak, got {leak!r}"
            )
        self.leak = leak

    def rescore(self, s: Tensor, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
        (m, n), rope, w = places(i, j), self.rope, self.window
        near = rope.query(q, m) @ rope.key(k, n).mT
        if self.leak is None:
            far = rope.query(q, torch.full_like(m, w)) @ k.mT  # a key at place 0 is as it came
        else:
            far = rope.query(q, w + (m.double() - w) / self.leak) @ rope.key(k, n.double() / self.leak).mT
        return unless_hidden(s, torch.where(i - j < w, near, far))

    def key_places(self, n: Tensor) -> tuple[Tensor, ...]:
        return n, torch.zeros_like(n) if self.leak is None else n.double() / self.leak

    def cases(self, m: int) -> tuple[tuple[int, int, int, float], ...]:
        w, edge = self.window, max(0, m - self.window + 1)
        return (edge, m + 1, 0, m), (0, edge, 1, w if self.leak is None else w + (m - w) / self.leak)

    def reach(self, length: int) -> float:
        last = whole("length", length, 1, "tokens of a text") - 1
        past = max(last - self.window, 0)
        return min(last, self.window) + (0 if self.leak is None else past / self.leak)
