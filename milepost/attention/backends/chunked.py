"""chunked: anything at all, a few rows of queries at a time: O(chunk x J) memory, recomputed in the backward pass.

The arithmetic is `reference`'s own. Where the layout is known to be made of blocks, only the keys that a chunk can see
are touched.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from milepost.attention.backends.reference import reference
from milepost.attention.blocks import Block, assemble
from milepost.attention.call import Call
from milepost.attention.hidden import transformed

NUMBERS = 1 << 22
"""Logits in a chunk, over all heads and rows of the batch."""


def obstacle(call: Call) -> str | None:
    """Why this backend can't do it: never."""
    return None


def run(call: Call) -> Tensor:
    """The output, B H I Dv."""
    q, known = call.q, call.blocks
    everything = (Block(None, 0, q.shape[2], 0, call.k.shape[2], 0),)
    again = call.learning and not torch.compiler.is_compiling() and not transformed()  # recomputed in backward
    pieces: list[tuple[Block, Tensor]] = []
    for block in everything if isinstance(known, str) else known:
        count, keys = block.shape
        for a, e in _chunks(count, keys * q.shape[1] * (q.shape[0] if block.row is None else 1)):
            if isinstance(known, str):
                chunk = replace(block, first=a, stop=e)
            else:
                chunk = block.cut(a, e, call.causal, call.at.window)
            part = call.part(chunk)
            if again:
                done = checkpoint(_output, part, use_reentrant=False, preserve_rng_state=False)
            else:
                done = _output(part)
            pieces.append((chunk, done))
    return assemble(q, call.v.shape[-1], pieces)


def _chunks(queries: int, numbers: int) -> list[tuple[int, int]]:
    """First and end row of each chunk. In a compiled graph their number is fixed, so that one graph serves all
    lengths.
    """
    if torch.compiler.is_compiling():
        parts = 1 if queries < 1024 else 8
        return [(n * queries // parts, (n + 1) * queries // parts) for n in range(parts)]
    step = max(16, NUMBERS // max(1, numbers))
    return [(a, min(a + step, queries)) for a in range(0, queries, step)]


def _output(call: Call) -> Tensor:
    return reference(call).output
