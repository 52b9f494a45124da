"""flex: FlexAttention, for GPUs: the same pointwise bias as its score_mod, and the layout as its block mask.

On CPUs it runs forward only (torch has no backward there), and is here to be compared.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor

from milepost.attention.call import Call
from milepost.positions import extent


def obstacle(call: Call) -> str | None:
    """Why this backend can't do it, or None."""
    on_cpu = call.q.device.type == "cpu"
    if call.enc.content_dependent:
        return "the encoding depends on content, and a score_mod sees positions and the score alone"
    if on_cpu and call.learning:
        return "FlexAttention has no backward on the CPU"
    if not call.enc.toeplitz and not on_cpu:
        return "its bias looks numbers up in a way that a compiled score_mod can't"
    if call.q.dtype == torch.float64 and not on_cpu:
        return "FlexAttention has no float64 on GPUs"
    return None


def run(call: Call) -> Tensor:
    """The output, B H I Dv."""
    from torch.nn.attention.flex_attention import create_block_mask

    q, k, enc, at, to = call.q, call.k, call.enc, call.at, call.to
    batch, (I, J) = max(at.batch, to.batch), (q.shape[2], k.shape[2])
    i, j, a, b = at.index, to.index, at.segment, to.segment

    def seen(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        mine, theirs = row % i.shape[0], row % j.shape[0]
        visible = (a[mine, query] == b[theirs, key]) & (a[mine, query] >= 0)
        if call.causal:
            visible = visible & (j[theirs, key] <= i[mine, query])
        if at.window is not None:
            visible = visible & ((i[mine, query] - j[theirs, key]).abs() < at.window)
        return visible

    if enc.toeplitz and "bias" in enc.points and not at.remapped and not to.remapped:  # a look-up: any bias compiles
        (first, last), (low, high) = extent(i), extent(j)
        nearest, farthest = int(first - high), int(last - low)
        distance = torch.arange(nearest, farthest + 1, device=q.device)
        table = enc.bias(call.head_numbers()[:, None], distance, torch.zeros_like(distance)).to(call.work_dtype)

        def biased(score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return score + table[head, i[row % i.shape[0], query] - j[row % j.shape[0], key] - nearest].to(score.dtype)
    else:

        def biased(score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            mine, theirs = _place(at.pos, row, query), _place(to.pos, row, key)
            return score + enc.bias(head + (call.first_head or 0), mine, theirs).to(score.dtype)

    mask = create_block_mask(seen, batch if batch > 1 else None, None, I, J, device=str(q.device))
    with warnings.catch_warnings():  # uncompiled on the CPU: that is meant
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
        done: Tensor = _attention(compiled=q.device.type == "cuda")(
            q,
            k,
            call.v,
            score_mod=biased if "bias" in enc.points else None,
            block_mask=mask,
            scale=call.scale,
            enable_gqa=call.group > 1,
        )
    return done


def _place(pos: Tensor, row: Tensor, token: Tensor) -> Tensor:
    """The position of one token: a number, or one for each axis."""
    if pos.dim() == 2:
        return pos[row % pos.shape[0], token]
    return torch.stack([axis[row % pos.shape[1], token] for axis in pos.unbind()])


@cache
def _attention(compiled: bool) -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True) if compiled else flex_attention
