"""Dual chunk attention: places that start anew in every chunk.

    c = chunk - local,    key n at n mod c,    query m at   m mod c                       for keys of its own chunk
                                                            min(m mod c + c, chunk)       for keys of the chunk before
                                                            min(2c - 1, chunk)            for keys of earlier chunks

An et al., "Training-Free Long-Context Scaling of Large Language Models", 2024, section 3. arXiv:2402.17463

The chunk of m is floor(m/c). The second line keeps the true distance for the first `local + 1` tokens of a chunk, so
that neighbours stay neighbours across an edge; texts of up to chunk + 1 (and 2c) tokens are plain RoPE. No distance is
larger than `chunk`.

Departure: the paper calls c the chunk size s, takes 3/4 of the trained length for it, and puts far queries at the
trained length - 1. The released code (and so this page) names c + local the chunk, takes chunk = 3/4 and local = 1/8 of
the trained length (so c is 5/8), and puts far queries at min(2c - 1, chunk).

Mechanism: scores by RoPE at places inside chunks, with three places for each query
Information: relative in a chunk and near its edge; of far keys only the place in their chunk
Prior: RoPE's; far keys are as far as a chunk, less their place in it
Content: as RoPE
Storage: none
Used by: ChunkLlama, Qwen2.5-1M (vLLM, SGLang)
"""

from __future__ import annotations

import torch
from torch import Tensor

from milepost.encodings.rope import RoPE
from milepost.maps.mapped import Mapped, places, unless_hidden, whole


class DualChunk(Mapped):
    """``rope`` in chunks of ``chunk - local`` tokens, with true distances over the first ``local`` tokens past an
    edge.
    """

    shift_invariant = False
    causal_only = True
    fractional = False

    def __init__(self, rope: RoPE, chunk: int, local: int):
        super().__init__(rope)
        self.chunk = whole("chunk", chunk, 1, "the largest distance; 3/4 of the trained length is usual")
        self.local = whole(
            "local", local, 0, "tokens past an edge that keep true distances; 1/8 of the trained length is usual"
        )
        if local >= chunk:
            raise ValueError(
                f"local must be smaller than chunk, since chunks start every chunk - local tokens, got chunk={chunk}, "
                f"local={local}"
            )

    def rescore(self, s: Tensor, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
        (m, n), rope, c = places(i, j), self.rope, self.chunk - self.local
        keys = rope.key(k, n % c).mT
        own = rope.query(q, m % c) @ keys
        before = rope.query(q, (m % c + c).clamp(max=self.chunk)) @ keys
        older = rope.query(q, torch.full_like(m, min(2 * c - 1, self.chunk))) @ keys
        back = i // c - j // c
        return unless_hidden(s, torch.where(back == 0, own, torch.where(back == 1, before, older)))

    def key_places(self, n: Tensor) -> tuple[Tensor, ...]:
        return (n % (self.chunk - self.local),)

    def cases(self, m: int) -> tuple[tuple[int, int, int, float], ...]:
        c = self.chunk - self.local
        own = m // c * c
        before = max(0, own - c)
        return (
            (own, m + 1, 0, m % c),
            (before, own, 0, min(m % c + c, self.chunk)),
            (0, before, 0, min(2 * c - 1, self.chunk)),
        )

    def reach(self, length: int) -> float:
        last = whole("length", length, 1, "tokens of a text") - 1
        return min(last, 2 * (self.chunk - self.local) - 1, self.chunk)
