"""by_row: a bias that is not a function of i - j alone, made for a strip of rows at a time as a function of row and
distance. For CPUs.

An encoding that has a quick way to such a strip says so by `Encoding.bias_by_row`. With a column for each distance, the
strip is the mask of `bands`, seen with a row stride one shorter. In the backward pass it is made again, but
attention is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from milepost.attention.backends import chunked
from milepost.attention.backends.bands import HIDDEN, Room, Strip, bands_backward, shape_of, skewed
from milepost.attention.backends.toeplitz import fold
from milepost.attention.blocks import Block
from milepost.attention.call import Call
from milepost.attention.kernel import flash, fused, gradients_of
from milepost.encoding import ByRow, Encoding, has_quick, parts_of

ROWS = 256
"""Rows in a strip."""
HELD = 1 << 20
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
    return call.by_block(run_block)


def run_block(call: Call, block: Block) -> Tensor:
    """The output of one block, B H I D."""
    q, k, v = block.queries(call.q), block.keys(call.k), block.keys(call.v)
    if block.shape[0] == 1 and not call.learning:
        return _one_query(call, block, q, k, v)
    out: Tensor = _Attention.apply(call, block, q, k, v, *call.enc.parameters())  # type: ignore[no-untyped-call]
    return out


def _one_query(call: Call, block: Block, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """One query of each head over its keys, B H 1 D: a row is its own mask, and no key is copied for a group."""
    J, i = k.shape[2], call.at.part(block.row, block.first, block.stop).index[0]
    distance = block.ahead - torch.arange(J, device=q.device)
    row = _bias(call.enc, i, distance)(call.head_numbers(), None)
    mask = row.to(call.work_dtype).reshape(1, k.shape[1], call.group, J)
    return fused(fold(q, k), k, v, mask=mask, scale=call.scale).reshape(q.shape)


class _Part(NamedTuple):
    """Some heads of a strip of rows, each with its keys."""

    strip: Strip
    heads: slice
    key_heads: slice

    def queries(self, t: Tensor) -> Tensor:
        """Its part of what there is for each query (B H I ...)."""
        return t[:, self.heads, self.strip.first : self.strip.stop]

    def keys(self, t: Tensor) -> Tensor:
        """Its part of what there is for each key (B G J D)."""
        return t[:, self.key_heads, self.strip.low : self.strip.high]


def _strips(call: Call, block: Block) -> Iterator[tuple[Strip, Tensor, Tensor, list[_Part]]]:
    """Strips of rows, each with its queries' places, its distances, and some heads at a time."""
    (I, J), group, far = block.shape, call.group, block.ahead + block.shape[0] - 1
    index = call.at.part(block.row, block.first, block.stop).index[0]
    for s in shape_of(I, J, block.ahead, call.causal, call.at.window or 0, far, 0, False, True).strips(ROWS):
        distance = torch.arange(far - s.start, far - s.start - (s.end - s.begin), -1, device=index.device)
        step, parts = max(1, HELD // ((s.stop - s.first) * s.wide)), []
        for r in range(group):
            for g in range(0, call.k.shape[1], step):
                stop = min(g + step, call.k.shape[1])
                parts.append(_Part(s, slice(r + g * group, r + (stop - 1) * group + 1, group), slice(g, stop)))
        yield s, index[s.first : s.stop], distance, parts


class _Attention(torch.autograd.Function):
    """The queries of a block to its keys, with gradients to q, k, v and the parameters of the encoding."""

    @staticmethod
    def forward(ctx: Any, call: Call, block: Block, q: Tensor, k: Tensor, v: Tensor, *parameters: Tensor) -> Tensor:
        out = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
        lse = torch.zeros(q.shape[:3], dtype=call.work_dtype, device=q.device)
        room, numbers = Room(call.work_dtype, q.device), call.head_numbers()
        for s, i, distance, parts in _strips(call, block):
            bias = _bias(call.enc, i, distance)
            for part in parts:
                some = part.queries(q)
                x = room.of(some.shape[1], s.stop - s.first, s.wide)
                x[..., : s.begin], x[..., s.end :] = HIDDEN, HIDDEN
                bias(numbers[part.heads], x[..., s.begin : s.end])
                mask = skewed(x[None], s.high - s.low)
                done = flash(some, part.keys(k), part.keys(v), mask=mask, scale=call.scale)
                part.queries(out)[:], part.queries(lse)[:] = done
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
        learned, numbers = [p for p in parameters if p.requires_grad], call.head_numbers()
        dq, dk, dv = (torch.zeros(t.shape, dtype=lse.dtype, device=t.device) for t in (q, k, v))
        learn = {id(p): torch.zeros_like(p) for p in learned}
        none, window = lse.new_empty(0), call.at.window or 0
        for s, i, distance, parts in _strips(call, block):
            ahead, far = block.ahead + s.first - s.low, int(distance[0])
            how = (call.scale, ahead, call.causal, window, far, len(distance), False, False)
            with torch.enable_grad():
                bias = _bias(call.enc, i, distance)
            for part in parts:
                with torch.enable_grad():
                    table = bias(numbers[part.heads], None).to(lse.dtype)
                some, some_grad = part.queries(q), part.queries(grad).contiguous()
                given = (some, some, part.keys(k), part.keys(v), None, None, table.detach())
                results = (part.queries(out), part.queries(lse), none)
                grads = bands_backward(some_grad, None, *given, *results, *how)
                part.queries(dq).add_(grads[0])
                part.keys(dk).add_(grads[2])
                part.keys(dv).add_(grads[3])
                if table.requires_grad:
                    keep = part is not parts[-1]  # heads share what depends on the rows alone
                    of_bias = torch.autograd.grad(table, learned, grads[6], retain_graph=keep, allow_unused=True)
                    for p, g in zip(learned, of_bias, strict=True):
                        if g is not None:
                            learn[id(p)] += g
        of_inputs = (t.to(like.dtype) for t, like in zip((dq, dk, dv), (q, k, v), strict=True))
        return None, None, *of_inputs, *(learn.get(id(p)) for p in parameters)


def _bias(enc: Encoding, i: Tensor, distance: Tensor) -> ByRow:
    """The bias of a strip of rows."""
    parts = [part for part in parts_of(enc) if "bias" in part.points]
    rows = [made for part in parts if not part.toeplitz and (made := part.bias_by_row(i, distance)) is not None]
    alike = [part for part in parts if part.toeplitz]

    def of_heads(h: Tensor, out: Tensor | None) -> Tensor:
        total: Tensor | None = None
        for of_row in rows:
            total = of_row(h, out) if total is None else total + of_row(h, None)
        for part in alike:
            more = part.bias(h[:, None, None], distance, torch.zeros_like(distance))
            total = more if total is None else total + more
        assert total is not None
        if out is not None and total is not out:
            out.copy_(total)
        return total.expand(len(h), len(i), len(distance))

    return of_heads
