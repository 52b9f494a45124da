"""SelfExtend: near keys at their own distance, far keys by groups.

    distance of m and n = m - n                                          where m - n < W
                          floor(m/G) - floor(n/G) + W - floor(W/G)       where m - n >= W

Jin et al., "LLM Maybe LongLM: Self-Extend LLM Context Window Without Tuning", 2024, section 3. arXiv:2401.01325

The second line goes on where the first one ends: with G a divisor of W the distance at m - n = W is W. The authors
advise W and G such that W + (N - W)/G stays below 1/2 to 2/3 of the trained length, for texts of N tokens; `reach(N)`
gives the exact number.

Departure: the authors' code drops the shift W - floor(W/G) while the text is shorter than W, where no distance is far:
nothing changes. It multiplies queries by log-n if asked to: here that is a part of its own, `self_extend(...) +
temperature(length=4096, form='logn')`.

Mechanism: scores near keys by RoPE, far keys by RoPE at floor(position / group)
Information: relative near by; far away relative in groups
Prior: RoPE's, stretched past the window
Content: as RoPE
Storage: none
Used by: training-free extension of Llama, Mistral, Phi, Gemma (LongLM); a variant in llama.cpp (`--grp-attn-n`)
"""

from __future__ import annotations

import torch
from torch import Tensor

from milepost.encodings.rope import RoPE
from milepost.maps.mapped import Mapped, places, unless_hidden, whole


class SelfExtend(Mapped):
    """``rope`` with far positions in groups of ``group``, and the ``window`` nearest tokens as they are."""

    shift_invariant = False
    causal_only = True
    fractional = False

    def __init__(self, rope: RoPE, group: int = 8, window: int = 1024):
        super().__init__(rope)
        self.group = whole("group", group, 1, "far tokens that share a position; 1 changes nothing")
        self.window = whole("window", window, 1, "near tokens that keep their distance, the query itself among them")
        self.shift_invariant = group == 1

    def rescore(self, s: Tensor, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
        (m, n), rope, G, W = places(i, j), self.rope, self.group, self.window
        near = rope.query(q, m) @ rope.key(k, n).mT
        far = rope.query(q, m // G + W - W // G) @ rope.key(k, n // G).mT
        return unless_hidden(s, torch.where(i - j < W, near, far))

    def key_places(self, n: Tensor) -> tuple[Tensor, ...]:
        return n, n // self.group

    def cases(self, m: int) -> tuple[tuple[int, int, int, float], ...]:
        G, W = self.group, self.window
        edge = max(0, m - W + 1)
        return (edge, m + 1, 0, m), (0, edge, 1, m // G + W - W // G)

    def reach(self, length: int) -> float:
        last = whole("length", length, 1, "tokens of a text") - 1
        return last if last < self.window else last // self.group + self.window - self.window // self.group
