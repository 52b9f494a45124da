"""chunked: anything at all, a few rows of queries at a time: O(chunk x J) memory, recomputed in the backward pass.

The arithmetic is `reference`'s own. Where the layout is known to be made of blocks, only the keys that a chunk can see
are touched.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from milepost.attention.blocks import Block, assemble, blocks
from milepost.attention.hidden import transformed
from milepost.attention.reference import reference
from milepost.encoding import Encoding
from milepost.layout import Layout

NUMBERS = 1 << 22
"""Logits in a chunk, over all heads and rows of the batch."""


def obstacle(q: Tensor, k: Tensor, v: Tensor, enc: Encoding, at: Layout, to: Layout, causal: bool) -> str | None:
    """Why this backend can't do it: never."""
    return None


def chunked(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    enc: Encoding,
    at: Layout,
    to: Layout,
    *,
    causal: bool,
    scale: float,
    first_head: int = 0,
) -> Tensor:
    """Attention of q (B H I D) to k, v (B G J D*); see `milepost.attend`."""
    found = blocks(at, to, causal)
    known = not isinstance(found, str)
    if isinstance(found, str):
        found = (Block(None, 0, q.shape[2], 0, k.shape[2], 0),)
    learning = torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v, *enc.parameters()))
    pieces: list[tuple[Block, Tensor]] = []
    for block in found:
        count, keys = block.shape
        for a, e in _chunks(count, keys * q.shape[1] * (q.shape[0] if block.row is None else 1)):
            some = block.cut(a, e, causal, at.window) if known else replace(block, first=a, stop=e)
            here, there = some.layouts(at, to)
            run = partial(_output, enc=enc, at=here, to=there, causal=causal, scale=scale, first_head=first_head)
            given = some.queries(q), some.keys(k), some.keys(v)
            if learning and not torch.compiler.is_compiling() and not transformed():
                done = checkpoint(run, *given, use_reentrant=False, preserve_rng_state=False)
            else:
                done = run(*given)
            pieces.append((some, done))
    return assemble(q, v.shape[-1], pieces)


def _chunks(queries: int, numbers: int) -> list[tuple[int, int]]:
    """First and end row of each chunk. In a compiled graph their number is fixed, so that one graph serves all
    lengths.
    """
    if torch.compiler.is_compiling():
        parts = 1 if queries < 1024 else 8
        return [(n * queries // parts, (n + 1) * queries // parts) for n in range(parts)]
    step = max(16, NUMBERS // max(1, numbers))
    return [(a, min(a + step, queries)) for a in range(0, queries, step)]


def _output(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    enc: Encoding,
    at: Layout,
    to: Layout,
    causal: bool,
    scale: float,
    first_head: int,
) -> Tensor:
    return reference(q, k, v, enc, at, to, causal=causal, scale=scale, first_head=first_head).output
