"""hidden: what the mask hides never reaches a row, not even a NaN.

A hidden pair has weight 0, but 0 times NaN is NaN, and a fused kernel multiplies whole blocks. So a token with a number
that is not finite is taken out (its q, k and v become zeros) before anything is computed, and the rows that see it are
made NaN afterwards: exactly those rows, in every backend. The other rows, and the gradients of a loss over them, are
what they are without that token.

Uncompiled, one sum over q, k and v decides whether there is such a token at all. In a compiled graph and under
torch.func, where no number can be looked at, the two steps are always taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from milepost.attention.blocks import Block
from milepost.attention.call import Call

ROWS = 512
"""Rows of a mask that are looked at together where the layout is not made of blocks."""


def transformed() -> bool:
    """Whether torch.func (grad, jvp, vmap, ...) or forward-mode differentiation is at work: opaque operators do not
    serve there.
    """
    if torch.autograd.forward_ad._current_level >= 0:
        return True
    # a compiler takes any stack for one; what it can't map, it refuses itself
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None


def finite(*tensors: Tensor) -> bool:
    """Whether every number is finite. (A sum is finite only if all its terms are; if it overflows, the slower path is
    taken.)
    """
    for t in tensors:
        narrow = t.dtype is not torch.float32 and t.dtype is not torch.float64  # half precision overflows too soon
        total = t.detach().sum(dtype=torch.float32) if narrow else t.detach().sum()
        if not math.isfinite(total.item()):
            return False
    return True


def repaired(
    q: Tensor, k: Tensor, v: Tensor, touched: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """q, k and v with zeros for tokens that are not finite, and what to add to each row (B H I 1): NaN where it sees
    one, else 0.

    Added, not multiplied: a loss that leaves such rows out has a gradient of 0 there, and 0 it must stay.

    ``touched`` says which rows (B H I) see one of the given keys (B H J, true where a key or a value is not finite).
    """
    broken_q, broken_k, broken_v = (~t.isfinite().all(dim=-1) for t in (q, k, v))  # B H I, B G J, B G J
    broken = broken_k | broken_v
    group = q.shape[1] // k.shape[1]
    nan_rows = broken_q | touched(broken.repeat_interleave(group, dim=1) if group > 1 else broken)
    spoilt = torch.zeros_like(nan_rows, dtype=q.dtype).masked_fill(nan_rows, float("nan"))[..., None]
    q, k, v = (t.masked_fill(b[..., None], 0.0) for t, b in ((q, broken_q), (k, broken), (v, broken)))
    return q, k, v, spoilt


def all_seen(call: Call) -> bool:
    """Whether every query sees every key: then nothing is hidden."""
    blocks, queries = call.blocks, call.q.shape[2]
    if isinstance(blocks, str) or len(blocks) != 1 or blocks[0].row is not None:
        return False
    whole = blocks[0].shape == (queries, call.k.shape[2])
    return whole and (queries == 1 or (not call.causal and call.at.window is None))


def repaired_call(call: Call) -> tuple[Call, Tensor]:
    """A call without tokens that are not finite, and what to add to each row of its output; see `repaired`."""
    q, k, v = call.q, call.k, call.v
    if call.f is not None and call.g is not None:  # a token whose features are broken is broken
        broken_f, broken_g = (~t.isfinite().all(dim=-1) for t in call.numbers)
        q, k = (t.masked_fill(b[:, None, :, None], float("nan")) for t, b in ((q, broken_f), (k, broken_g)))
        f, g = (t.masked_fill(b[..., None], 0.0) for t, b in ((call.f, broken_f), (call.g, broken_g)))
        call = replace(call, f=f, g=g)
    q, k, v, spoilt = repaired(q, k, v, lambda broken: rows_that_see(broken, call))
    return call.given(q, k, v), spoilt


def whole_tokens(call: Call) -> Call:
    """A call with zeros for tokens of q, k and v that are not finite.

    The derivative of a turn by a learned number is the token itself, and 0 times NaN is NaN: so a broken token is taken
    out before it is turned, where a gradient will be asked for.
    """
    q, k, v = (t.masked_fill(~t.isfinite().all(dim=-1, keepdim=True), 0.0) for t in (call.q, call.k, call.v))
    return call.given(q, k, v)


def rows_that_see(broken: Tensor, call: Call) -> Tensor:
    """Which queries (B H I) of a call see at least one of the ``broken`` keys (B H J)."""
    at, blocks = call.at, call.blocks
    if isinstance(blocks, str):
        masks = [at[a : a + ROWS].mask(call.to, causal=call.causal) for a in range(0, at.length, ROWS)]
        return torch.cat([(mask & broken[:, :, None]).any(dim=-1) for mask in masks] or [broken[..., :0]], dim=-1)
    touched = broken.new_zeros(*broken.shape[:2], at.length)
    for block in blocks:
        seen = in_block(block.keys(broken), block, call.causal, at.window or 0)
        block.queries(touched).logical_or_(seen)
    return touched


def in_block(broken: Tensor, block: Block, causal: bool, window: int) -> Tensor:
    """`rows_that_see` inside of one block, where a query sees a stretch of keys: by running counts, without a mask."""
    (I, J), ahead = block.shape, block.ahead
    counts = torch.nn.functional.pad(broken.long().cumsum(-1), (1, 0))  # how many are broken before each key
    place = torch.arange(ahead, ahead + I, device=broken.device)
    end = place + 1 if causal else place + window if window else torch.full_like(place, J)
    first = place - window + 1 if window else torch.zeros_like(place)
    return counts[..., end.clamp(0, J)] > counts[..., first.clamp(0, J)]
