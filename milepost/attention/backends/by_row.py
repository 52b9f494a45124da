"""by_row: a bias that is not a function of i - j alone, made for a strip of rows at a time as a function of row and
distance. For CPUs.

An encoding that has a quick way to such a strip says so by `Encoding.bias_by_row`. With a column for each distance, the
strip is the mask of `bands`, seen with a row stride one shorter. In the backward pass it is made again, but
attention is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from milepost.attention.backends import chunked
from milepost.attention.backends.bands import bands, bands_backward
from milepost.attention.backends.toeplitz import fold
from milepost.attention.blocks import Block
from milepost.attention.call import Call
from milepost.attention.kernel import fused, gradients_of
from milepost.encoding import Encoding, has_quick, parts_of

ROWS = 256
"""Rows in a strip."""
HELD = 1 << 21
"""Numbers of a strip that are held at a time: of as many heads as fit."""


def obstacle(call: Call) -> str | None:
    """Why this backend can't do it, or None."""
    enc = call.enc
    if call.q.device.type != "cpu":
        return f"it drives the CPU's flash kernel, and q is on {call.q.device.type}"
    if torch.compiler.is_compiling():
        return "where its pieces begin depends on numbers, which a compiled graph does not look at"
    if "bias" not in enc.points or enc.content_dependent:
        return "it is for an encoding that has a bias, and no part that depends on content"
    slow = [p for p in parts_of(enc) if not p.toeplitz and not has_quick(p, "bias_by_row", "bias")]
    if slow:
        return f"{slow[0]!r} has no quick way to the bias of a strip of rows"
    return call.blocks_obstacle()


def run(call: Call) -> Tensor:
    """The output, B H I D."""
    return call.by_block(_run_block)


def _run_block(call: Call, block: Block) -> Tensor:
    q, k, v = block.queries(call.q), block.keys(call.k), block.keys(call.v)
    if block.shape[0] == 1 and not call.learning:
        return _one_query(call, block, q, k, v)
    out: Tensor = _Attention.apply(call, block, q, k, v, *call.enc.parameters())  # type: ignore[no-untyped-call]
    return out


def _one_query(call: Call, block: Block, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One query of each head over its keys, B H 1 D: a row is its own mask, and no key is copied for a group."""
    J, i = k.shape[2], block.layouts(call.at, call.to)[0].index[0]
    row = call.enc.bias(call.head_numbers()[:, None], i, i - block.ahead + torch.arange(J, device=q.device))
    mask = row.to(call.work_dtype).expand(q.shape[1], J).reshape(1, k.shape[1], call.group, J)
    return fused(fold(q, k), k, v, mask=mask, scale=call.scale).reshape(q.shape)


@dataclass(frozen=True)
class _Part:
    """Some heads of a strip of rows, each with its keys: which rows, query heads, keys and key heads they are."""

    rows: slice
    heads: slice
    keys: slice
    key_heads: slice
    ahead: int
    far: int
    count: int

    def queries(self, t: Tensor) -> Tensor:
        """Its part of what there is for each query (B H I ...)."""
        return t[:, self.heads, self.rows]

    def keys_of(self, t: Tensor) -> Tensor:
        """Its part of what there is for each key (B G J D)."""
        return t[:, self.key_heads, self.keys]

    def bias(self, call: Call, index: Tensor) -> Tensor:
        """The bias of its heads by row and distance (H R n); ``index`` holds the places of the block's queries."""
        distance = torch.arange(self.far, self.far - self.count, -1, device=index.device)
        return _bias(call.enc, call.head_numbers()[self.heads], index[self.rows], distance).to(call.work_dtype)

    def how(self, call: Call) -> tuple[Any, ...]:
        """The plain arguments of `bands`."""
        return call.scale, self.ahead, call.causal, call.at.window or 0, self.far, self.count, False, False


def _parts(call: Call, block: Block) -> Iterator[_Part]:
    group, window = call.group, call.at.window or 0
    for a in range(0, block.shape[0], ROWS):
        strip = block.cut(a, min(a + ROWS, block.shape[0]), call.causal, call.at.window)
        (I, J), ahead, low = strip.shape, strip.ahead, strip.key_first - block.key_first
        if J == 0:
            continue
        far, near = ahead + I - 1, 0 if call.causal else ahead - J + 1
        if window:
            far, near = min(far, window - 1), max(near, 1 - window)
        step = max(1, HELD // max(1, I * (far - near + 1)))
        for r in range(group):
            for g in range(0, call.k.shape[1], step):
                stop = min(g + step, call.k.shape[1])
                heads = slice(r + g * group, r + (stop - 1) * group + 1, group)
                keys = slice(low, low + J)
                yield _Part(slice(a, a + I), heads, keys, slice(g, stop), ahead, far, far - near + 1)


class _Attention(torch.autograd.Function):
    """The queries of a block to its keys, with gradients to q, k, v and the parameters of the encoding."""

    @staticmethod
    def forward(ctx: Any, call: Call, block: Block, q: Tensor, k: Tensor, v: Tensor, *parameters: Tensor) -> Tensor:
        index = block.layouts(call.at, call.to)[0].index[0]
        out = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
        lse = torch.zeros(q.shape[:3], dtype=call.work_dtype, device=q.device)
        for part in _parts(call, block):
            some = part.queries(q)
            given = (some, some, part.keys_of(k), part.keys_of(v), None, None, part.bias(call, index))
            part.queries(out)[:], part.queries(lse)[:], _ = bands(*given, *part.how(call))
        ctx.call, ctx.block = call, block
        ctx.save_for_backward(q, k, v, out, lse, *parameters)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        call, block, (q, k, v, out, lse, *parameters) = ctx.call, ctx.block, ctx.saved_tensors
        if torch.is_grad_enabled():  # a gradient of the gradient is asked for: in plain operations
            at, to = block.layouts(call.at, call.to)
            again = chunked.run(Call(q, k, v, call.enc, at, to, call.causal, call.scale, call.first_head))
            return None, None, *gradients_of(again, (q, k, v, *parameters), ctx.needs_input_grad[2:], grad)
        index, learned = block.layouts(call.at, call.to)[0].index[0], [p for p in parameters if p.requires_grad]
        dq, dk, dv = (torch.zeros(t.shape, dtype=lse.dtype, device=t.device) for t in (q, k, v))
        learn = {id(p): torch.zeros_like(p) for p in learned}
        none = lse.new_empty(0)
        for part in _parts(call, block):
            with torch.enable_grad():
                bias = part.bias(call, index)
            some = part.queries(q)
            given = (some, some, part.keys_of(k), part.keys_of(v), None, None, bias.detach())
            results = (part.queries(out), part.queries(lse), none)
            some_grad = part.queries(grad).contiguous()
            parts = bands_backward(some_grad, None, *given, *results, *part.how(call))
            part.queries(dq).add_(parts[0])
            part.keys_of(dk).add_(parts[2])
            part.keys_of(dv).add_(parts[3])
            if bias.requires_grad:
                for p, g in zip(learned, torch.autograd.grad(bias, learned, parts[6], allow_unused=True), strict=True):
                    if g is not None:
                        learn[id(p)] += g
        of_inputs = (t.to(like.dtype) for t, like in zip((dq, dk, dv), (q, k, v), strict=True))
        return None, None, *of_inputs, *(learn.get(id(p)) for p in parameters)


def _bias(enc: Encoding, h: Tensor, i: Tensor, distance: Tensor) -> Tensor:
    """The bias of a strip by row and distance, H R n."""
    total: Tensor | None = None
    for part in parts_of(enc):
        if "bias" not in part.points:
            continue
        if part.toeplitz:
            more: Tensor | None = part.bias(h[:, None, None], distance, torch.zeros_like(distance))
        else:
            more = part.bias_by_row(h, i, distance)
        assert more is not None
        total = more if total is None else total + more
    assert total is not None
    return total.expand(len(h), len(i), len(distance))
