"""chunked: anything at all, a few rows of queries at a time: O(chunk x J) memory, recomputed in the backward pass.

The arithmetic is `reference`'s own. Where the layout is known to be made of blocks, only the keys that a chunk can see
are touched.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from milepost.attention.blocks import Block, assemble, blocks
from milepost.attention.reference import reference
from milepost.encoding import Encoding
from milepost.layout import Layout

NUMBERS = 1 << 22
"""Logits in a chunk, over all heads and rows of the batch."""


def lacks(q: Tensor, k: Tensor, v: Tensor, enc: Encoding, at: Layout, to: Layout, causal: bool) -> str | None:
    """Why this backend can't do it: never."""
    return None


def chunked(q: Tensor, k: Tensor, v: Tensor, enc: Encoding, at: Layout, to: Layout, *, causal: bool, scale: float, first_head: int = 0) -> Tensor:
    """Attention of q (B H I D) to k, v (B G J D*); see `milepost.attend`."""
    found = blocks(at, to, causal)
    known = not isinstance(found, str)
    if isinstance(found, str):
        found = (Block(slice(None), slice(0, q.shape[2]), slice(0, k.shape[2]), 0),)
    learning = torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v, *enc.parameters()))
    pieces: list[tuple[slice, slice, Tensor]] = []
    for block in found:
        I, J = block.shape
        step = _step(I, J * q.shape[1] * (q.shape[0] if block.rows == slice(None) else 1))
        for a in range(0, I, step):
            e = min(a + step, I)
            low, high = _seen(block, a, e, causal, at.window) if known else (0, J)
            queries = slice(block.queries.start + a, block.queries.start + e)
            keys = slice(block.keys.start + low, block.keys.start + high)
            where = at.part(block.rows, queries), to.part(block.rows, keys)
            run = partial(_output, enc=enc, at=where[0], to=where[1], causal=causal, scale=scale, first_head=first_head)
            some = q[block.rows, :, queries], k[block.rows, :, keys], v[block.rows, :, keys]
            if learning and not torch.compiler.is_compiling():
                done = checkpoint(run, *some, use_reentrant=False, preserve_rng_state=False)
            else:
                done = run(*some)
            pieces.append((block.rows, queries, done))
    return assemble(q, v.shape[-1], pieces)


def _step(queries: int, numbers: int) -> int:
    """Rows in a chunk. In a compiled graph the number of chunks is fixed instead, so that one graph serves all lengths."""
    if torch.compiler.is_compiling():
        return queries if queries < 1024 else (queries + 7) // 8
    return max(16, NUMBERS // max(1, numbers))


def _seen(block: Block, a: int, e: int, causal: bool, window: int | None) -> tuple[int, int]:
    low, high = 0, block.shape[1]
    if window is not None:
        low = max(0, block.ahead + a - window + 1)
        high = min(high, block.ahead + e - 1 + window)
    if causal:
        high = min(high, block.ahead + e)
    return low, max(low, high)


def _output(q: Tensor, k: Tensor, v: Tensor, *, enc: Encoding, at: Layout, to: Layout, causal: bool, scale: float, first_head: int) -> Tensor:
    return reference(q, k, v, enc, at, to, causal=causal, scale=scale, first_head=first_head).output
