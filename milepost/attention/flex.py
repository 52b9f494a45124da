"""flex: FlexAttention, for GPUs: the same pointwise bias as its score_mod, and the layout as its block mask.

On CPUs it runs forward only (torch has no backward there), and is here to be compared.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import torch
from torch import Tensor

from milepost.encoding import Encoding
from milepost.layout import Layout
from milepost.positions import extent


def obstacle(q: Tensor, k: Tensor, v: Tensor, enc: Encoding, at: Layout, to: Layout, causal: bool) -> str | None:
    """Why this backend can't do it, or None."""
    if enc.content_dependent:
        return "the encoding depends on content, and a score_mod sees positions and the score alone"
    if (
        q.device.type == "cpu"
        and torch.is_grad_enabled()
        and any(t.requires_grad for t in (q, k, v, *enc.parameters()))
    ):
        return "FlexAttention has no backward on the CPU"
    if not enc.toeplitz and q.device.type != "cpu":
        return "its bias looks numbers up in a way that a compiled score_mod can't"
    if q.dtype == torch.float64 and q.device.type != "cpu":
        return "FlexAttention has no float64 on GPUs"
    return None


def flex(
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
    """Attention of q (B H I D) to k, v (B G J Dv); see `milepost.attend`."""
    from torch.nn.attention.flex_attention import create_block_mask

    batch, (I, J) = max(at.batch, to.batch), (q.shape[2], k.shape[2])
    i, j, a, b = at.index, to.index, at.segment, to.segment
    window = at.window

    def seen(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        mine, theirs = row % i.shape[0], row % j.shape[0]
        visible = (a[mine, query] == b[theirs, key]) & (a[mine, query] >= 0)
        if causal:
            visible = visible & (j[theirs, key] <= i[mine, query])
        if window is not None:
            visible = visible & ((i[mine, query] - j[theirs, key]).abs() < window)
        return visible

    if enc.toeplitz and "bias" in enc.points and not at.remapped and not to.remapped:  # a look-up: any bias compiles
        (first, last), (low, high) = extent(i), extent(j)
        nearest, farthest = int(first - high), int(last - low)
        distance = torch.arange(nearest, farthest + 1, device=q.device)
        h = torch.arange(first_head, first_head + q.shape[1], device=q.device)[:, None]
        table = enc.bias(h, distance, torch.zeros_like(distance)).to(torch.promote_types(q.dtype, torch.float32))

        def biased(score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return score + table[head, i[row % i.shape[0], query] - j[row % j.shape[0], key] - nearest].to(score.dtype)
    else:

        def biased(score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            mine, theirs = _place(at.pos, row, query), _place(to.pos, row, key)
            return score + enc.bias(head + first_head, mine, theirs).to(score.dtype)

    mask = create_block_mask(seen, batch if batch > 1 else None, None, I, J, device=str(q.device))
    run = _compiled() if q.device.type == "cuda" else _plain()
    with warnings.catch_warnings():  # uncompiled on the CPU: that is meant
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile")
        done: Tensor = run(
            q,
            k,
            v,
            score_mod=biased if "bias" in enc.points else None,
            block_mask=mask,
            scale=scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )
    return done


def _place(pos: Tensor, row: Tensor, token: Tensor) -> Tensor:
    """The position of one token: a number, or one for each axis."""
    if pos.dim() == 2:
        return pos[row % pos.shape[0], token]
    return torch.stack([axis[row % pos.shape[1], token] for axis in pos.unbind()])


@cache
def _compiled() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention, dynamic=True)


@cache
def _plain() -> Any:
    from torch.nn.attention.flex_attention import flex_attention

    return flex_attention
