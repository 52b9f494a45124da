"""StreamingLLM: the first tokens and a window, at their places in the cache.

    query m sees key n         where n < sinks  or  m - n <= window
    distance of m and n      = min(m, sinks + window) - n         of a sink, n < sinks
                               m - n                              of a key in the window

Xiao et al., "Efficient Streaming Language Models with Attention Sinks", 2023, section 3.2. arXiv:2309.17453

Softmax needs somewhere to put weight that no key deserves, and models put it on the first tokens: dropping those breaks
the model, so a rolling cache keeps them. Positions are places in that cache (0, 1, 2, ... without a gap), never indices
of the text.

The cache holds `sinks + window` tokens when a query comes, and the query is one more, as in the paper's figure. So this
page equals a `KVCache(rope)` with `evict(sinks=, window=)` after every token; one that evicts more rarely sees more,
and is another thing. A `KVCache(streaming)` may evict at any time, by the same numbers, and nothing changes but memory.

Departure: the authors' demo makes room before it reads, so that the new tokens count as part of the window; their
evaluation, the paper and this page make room after. Sinks are the tokens at positions 0 to sinks - 1: a text that
starts elsewhere has none.

Mechanism: hides keys past the window but for the first few, and scores those by RoPE at their place in the cache
Information: relative in the window; of sinks their number
Prior: none past the window
Content: as RoPE
Storage: none
Used by: StreamingLLM; rolling caches of serving engines
"""

from __future__ import annotations

import torch
from torch import Tensor

from milepost.encodings.rope import RoPE
from milepost.maps.mapped import Mapped, places, unless_hidden, whole


class Streaming(Mapped):
    """``rope`` over the first ``sinks`` tokens, the last ``window``, and the query itself."""

    shift_invariant = False
    causal_only = True
    fractional = False
    negative = False

    def __init__(self, rope: RoPE, sinks: int = 4, window: int = 512):
        super().__init__(rope)
        self.sinks = whole("sinks", sinks, 0, "first tokens that stay; 4 is usual")
        self.window = whole("window", window, 1, "tokens before the query that stay")
        self.shift_invariant = sinks == 0

    def rescore(self, s: Tensor, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
        (m, n), rope = places(i, j), self.rope
        keys, sink = rope.key(k, n).mT, j < self.sinks
        near = rope.query(q, m) @ keys
        first = rope.query(q, m.clamp(max=self.sinks + self.window)) @ keys
        dropped = ~sink & (i - j > self.window)
        return unless_hidden(s, torch.where(sink, first, near)).masked_fill(dropped, float("-inf"))

    def key_places(self, n: Tensor) -> tuple[Tensor, ...]:
        return (n,)

    def cases(self, m: int) -> tuple[tuple[int, int, int, float], ...]:
        near = max(self.sinks, m - self.window)
        return (near, m + 1, 0, m), (0, min(self.sinks, m + 1), 0, min(m, self.sinks + self.window))

    def reach(self, length: int) -> float:
        return min(whole("length", length, 1, "tokens of a text") - 1, self.sinks + self.window)
