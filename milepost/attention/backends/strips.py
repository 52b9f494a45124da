"""strips: attention with a Toeplitz bias as two operators that compilers see whole, and whose gradients are exact.

    logits[h, i, j] = scale q_i · k_j + b_h(d),     d = ahead + i - j

Attention does not care about the order of its rows, so take the queries in *reverse*: with i' = I-1-i the bias becomes
b(ahead + I-1 - (i' + j)), a Hankel matrix, which is a view with strides (1, 1) of I + J - 1 numbers. torch's CPU flash
kernel takes that view as its mask, and no I x J tensor is ever made. Where the mask is causal, rows go in strips, so
that the hidden half is skipped; each strip goes down the diagonal by stairs, whose calls are merged by their
log-sum-exp.

`table` (H, I+J-1) holds b by falling distance, from d = ahead+I-1 down to ahead-J+1, with -inf where the mask hides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from milepost.attention.kernel import flash, flash_backward, gradients_of, merge, rows

STRIP = 1024
"""Rows in a strip: the kernel uses its large block only for many rows."""
STEP = 256
"""Rows and keys of a step: a strip that meets the diagonal goes down it by stairs, so that little that the mask hides
is computed.
"""
CHUNK = 128
"""Rows at a time in the backward pass of a learned bias."""
HELD = 1 << 20
"""Numbers that such a chunk may hold: those of a few heads, which stay in the processor's cache, and of fewer rows over
many keys.
"""


def hankel(table: Tensor, rows: int, keys: int, offset: int) -> Tensor:
    """The bias of ``rows`` reversed queries and ``keys`` keys as a view: 1 H rows keys, ``[i', j] = table[offset + i' +
    j]``.
    """
    return table.as_strided(
        (1, table.shape[0], rows, keys),
        (0, table.stride(0), table.stride(1), table.stride(1)),
        table.storage_offset() + offset,
    )


def _strips(
    queries: int, keys: int, ahead: int, causal: bool, window: int
) -> Iterator[tuple[int, int, list[tuple[int, int, int, int]]]]:
    """Strips of rows (a, e), each with its calls (first row, end row, first key, end key); a row's calls never
    overlap.
    """
    if not causal and not window:
        yield 0, queries, [(0, queries, 0, keys)]
        return
    height = STRIP if not window else min(STRIP, max(256, window))
    for a in range(0, queries, height):
        e = min(a + height, queries)
        low = max(0, ahead + a - window + 1) if window else 0
        high = min(keys, ahead + e) if causal else min(keys, ahead + e - 1 + window)
        if causal and not window and e - a > 512 and ahead + a + STEP < high:
            stairs = [(a, e, 0, ahead + a + STEP)]
            for first in range(a + STEP, e, STEP):
                if ahead + first < high:
                    stairs.append((first, e, ahead + first, min(high, ahead + first + STEP)))
            yield a, e, stairs
        elif high > low:
            yield a, e, [(a, e, low, high)]
        else:
            yield a, e, []


@torch.library.custom_op("milepost::strips", mutates_args=())
def strips(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, scale: float, ahead: int, causal: bool, window: int
) -> tuple[Tensor, Tensor]:
    """Output (B H I D) and log-sum-exp (B H I) for q (B H I D), k and v (B H J D), and a table (H, I+J-1)."""
    k, v, table = rows(k), rows(v), table.contiguous()  # once, not once a strip
    B, H, I, D = q.shape
    J = k.shape[2]
    parts = list(_strips(I, J, ahead, causal, window))
    if len(parts) == 1 and len(parts[0][2]) == 1:  # a short text: nothing to merge, nothing to copy into its place
        _, end, low, high = parts[0][2][0]
        mask = hankel(table, I, high - low, I - end + low)
        back, weight = flash(q.flip(2), k[:, :, low:high], v[:, :, low:high], mask=mask, scale=scale)
        return back.flip(2), weight.to(table.dtype).flip(2)
    out = torch.empty(B, H, I, D, dtype=q.dtype, device=q.device)
    lse = torch.empty(B, H, I, dtype=table.dtype, device=q.device)
    for a, e, calls in parts:
        back = q[:, :, a:e].flip(2)
        o: Tensor | None = None
        for first, end, low, high in calls:
            count = end - first  # reversed: the last rows of the strip come first
            mask = hankel(table, count, high - low, I - end + low)
            part, weight = flash(back[:, :, :count], k[:, :, low:high], v[:, :, low:high], mask=mask, scale=scale)
            if o is None:
                o, total = part, weight.to(lse.dtype)
            else:  # the second call sees the strip's last rows again, with the keys that the first left out
                merge(o[:, :, :count], total[:, :, :count], part, weight)
        out[:, :, a:e] = 0 if o is None else o.flip(2)
        lse[:, :, a:e] = 0 if o is None else total.flip(2)
    return out, lse


@strips.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, scale: float, ahead: int, causal: bool, window: int
) -> tuple[Tensor, Tensor]:
    return torch.empty(q.shape, dtype=q.dtype, device=q.device), torch.empty(
        q.shape[:3], dtype=table.dtype, device=q.device
    )


@torch.library.custom_op("milepost::strips_backward", mutates_args=())
def strips_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, table: Tensor, out: Tensor, lse: Tensor,
    scale: float, ahead: int, causal: bool, window: int, learned: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients to q, k, v and, where it is ``learned``, to the table (else an empty tensor)."""
    if learned:
        return _backward_learned(grad, q, k, v, table, out, lse, scale, ahead, causal, window)
    k, v, table = rows(k), rows(v), table.contiguous()
    I, J = q.shape[2], k.shape[2]
    dq, dk, dv = (torch.zeros(t.shape, dtype=lse.dtype, device=t.device) for t in (q, k, v))
    for a, e, calls in _strips(I, J, ahead, causal, window):
        back, back_out, back_grad, back_lse = (t[:, :, a:e].flip(2) for t in (q, out, grad, lse))
        for first, end, low, high in calls:
            count, seen = end - first, slice(low, high)
            mask = hankel(table, count, high - low, I - end + low)
            some_grad, some_q, some_out, some_lse = (t[:, :, :count] for t in (back_grad, back, back_out, back_lse))
            parts = flash_backward(
                some_grad, some_q, k[:, :, seen], v[:, :, seen], some_out, some_lse, mask=mask, scale=scale
            )
            dq[:, :, first:end] += parts[0].flip(2)
            dk[:, :, seen] += parts[1]
            dv[:, :, seen] += parts[2]
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), table.new_empty(0)


def _backward_learned(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    table: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float,
    ahead: int,
    causal: bool,
    window: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As above with the bias's gradient: the sum of dS over each anti-diagonal.

    dS is written into rows that are a chunk longer than the keys; seen with a row stride one shorter, that padding
    skews it, and the sum over anti-diagonals becomes a sum over rows.
    """
    (B, H, I, D), (J, Dv), work = q.shape, v.shape[2:], lse.dtype
    dq, dk, dv = (torch.empty(t.shape, dtype=work, device=t.device) for t in (q, k, v))
    dt = torch.zeros(table.shape, dtype=work, device=table.device)
    chunk = max(16, min(CHUNK, HELD // max(1, J)))
    some = min(H, max(1, HELD // max(1, B * chunk * J)))

    def room(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=work, device=q.device)

    # a few heads are done at a time, in the same rooms: fresh pages of memory take longer than the numbers
    pairs, wider = room(some * B * chunk * J), room(some * B * chunk * (J + chunk))
    of_q, of_k, of_grad, of_v = (room(some * B, n, width + 8) for n, width in ((I, D), (J, D), (I, Dv), (J, Dv)))
    to_k, to_v = room(some * B, J, D), room(some * B, J, Dv)
    for heads in (slice(h, min(H, h + some)) for h in range(0, H, some)):
        own = heads.stop - heads.start
        count = B * own
        # one more channel takes off the log-sum-exp, and delta, in the products themselves: no pass over pairs for them
        some_grad, delta = grad[:, heads].to(work), (grad[:, heads].to(work) * out[:, heads]).sum(-1)
        onto_keys = _with(of_q[:count], (q[:, heads].to(work) * scale).flip(2), -lse[:, heads].flip(2))
        onto_values = _with(of_grad[:count], some_grad.flip(2), -delta.flip(2))
        keys_and_one, values_and_one = _with(of_k[:count], k[:, heads], 1.0), _with(of_v[:count], v[:, heads], 1.0)
        more_k, more_v = to_k[:count].zero_(), to_v[:count].zero_()
        for a in range(0, I, chunk):
            e = min(a + chunk, I)
            low = max(0, ahead + a - window + 1) if window else 0
            high = min(J, ahead + e) if causal else min(J, ahead + e - 1 + window) if window else J
            if high <= low:
                dq[:, heads, a:e] = 0
                continue
            size, keys, first = high - low, slice(low, high), I - e + low
            back, back_grad = onto_keys[:, I - e : I - a], onto_values[:, I - e : I - a]  # the last row comes first
            shape = (count, e - a)
            p = pairs[: math.prod(shape) * size].view(*shape, size)
            p.view(B, own, e - a, size).copy_(hankel(table[heads], e - a, size, first))
            p.baddbmm_(back, keys_and_one[:, keys].mT).exp_()
            wide = wider[: math.prod(shape) * (size + e - a)].view(*shape, size + e - a)
            wide[..., size:] = 0
            ds = wide[..., :size]
            torch.bmm(back_grad, values_and_one[:, keys].mT, out=ds)
            ds.mul_(p)
            along = size + e - a - 1
            skewed = wide.as_strided((*shape, along), (wide.stride(0), along, 1)).view(B, own, e - a, along)
            dt[heads, first : first + along] += skewed.sum(dim=(0, 2))
            more_v[:, keys].baddbmm_(p.mT, back_grad[..., :Dv])
            more_k[:, keys].baddbmm_(ds.mT, back[..., :D])
            by_row = torch.bmm(ds, keys_and_one[:, keys, :D]).mul_(scale).flip(1)
            dq[:, heads, a:e] = by_row.view(B, own, e - a, D)
        dk[:, heads], dv[:, heads] = more_k.view(B, own, J, D), more_v.view(B, own, J, Dv)
    return dq, dk, dv, dt


def _with(room: Tensor, t: Tensor, channel: Tensor | float) -> Tensor:
    """``t`` (B H L D) with one more channel, in ``room`` (B x H, L, D + 8): the other seven are 0 and keep rows
    aligned.
    """
    as_heads, width = room.view(*t.shape[:3], room.shape[-1]), t.shape[-1]
    as_heads[..., :width] = t
    as_heads[..., width] = channel
    as_heads[..., width + 1 :] = 0
    return room


@strips_backward.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, table: Tensor, out: Tensor, lse: Tensor,
    scale: float, ahead: int, causal: bool, window: int, learned: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    dtype = lse.dtype if learned else q.dtype
    like = [torch.empty(t.shape, dtype=dtype, device=t.device) for t in (q, k, v)]
    return like[0], like[1], like[2], table.new_empty(table.shape if learned else 0)


def save_inputs(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Keep what the backward pass needs, whether the table or the gates (the fourth input) are learned among it."""
    q, k, v, table, *ctx.how = inputs
    ctx.save_for_backward(q, k, v, table, *output)
    ctx.learned = ctx.needs_input_grad[3]
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad_lse is not None:
        raise ValueError("the log-sum-exp of strips() is for merging, and has no gradient")
    if grad is None:
        return (None,) * 8
    q, k, v, table, out, lse = ctx.saved_tensors
    if torch.is_grad_enabled():  # a gradient of the gradient is asked for
        out = dense(q, k, v, table, ctx.how[0])
        return *gradients_of(out, (q, k, v, table), ctx.needs_input_grad[:4], grad), None, None, None, None
    dq, dk, dv, dt = torch.ops.milepost.strips_backward(
        grad.contiguous(), q, k, v, table, out, lse, *ctx.how, ctx.learned
    )
    return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), dt if ctx.learned else None, None, None, None, None


def dense(q: Tensor, k: Tensor, v: Tensor, table: Tensor, scale: float) -> Tensor:
    """What `strips` computes, by its definition (O(I J) memory): for gradients of gradients, which no kernel has."""
    (I, J), work = (q.shape[2], k.shape[2]), table.dtype
    place = torch.arange(I - 1, -1, -1, device=q.device)[:, None] + torch.arange(J, device=q.device)
    logits = (q.to(work) @ k.to(work).transpose(-1, -2)) * scale + table[:, place]
    blind = logits.isneginf().all(dim=-1, keepdim=True)
    weights = torch.softmax(logits.masked_fill(blind, 0.0), dim=-1).masked_fill(blind, 0.0)
    return (weights @ v.to(work)).to(q.dtype)


strips.register_autograd(_backward, setup_context=save_inputs)
