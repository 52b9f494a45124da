"""strips: attention with a Toeplitz bias as two operators that compilers see whole, and whose gradients are exact.

    logits[h, i, j] = scale q_i · k_j + b_h(d),     d = ahead + i - j

Attention does not care about the order of its rows, so take the queries in *reverse*: with i' = I-1-i the bias becomes
b(ahead + I-1 - (i' + j)), a Hankel matrix, which is a view with strides (1, 1) of I + J - 1 numbers. torch's CPU flash
kernel takes that view as its mask, and no I x J tensor is ever made. Where the mask is causal, rows go in strips, so
that the hidden half is skipped; each strip is two calls, merged by their log-sum-exp.

`table` (H, I+J-1) holds b by falling distance, from d = ahead+I-1 down to ahead-J+1, with -inf where the mask hides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from milepost.attention.kernel import flash, flash_backward, gradients_of, merged, rows

STRIP = 1024
"""Rows in a strip: the kernel uses its large block only for many rows."""
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
        middle = (a + e) // 2
        if causal and not window and e - a > 512 and ahead + middle < high:
            yield a, e, [(a, e, 0, ahead + middle), (middle, e, ahead + middle, high)]
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
                o[:, :, :count], total[:, :, :count] = merged(o[:, :, :count], total[:, :, :count], part, weight)
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
    (B, H, I), J, work = q.shape[:3], k.shape[2], lse.dtype
    q, k, v, grad, out = (t.to(work) for t in (q, k, v, grad, out))
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    dt = torch.zeros(table.shape, dtype=work, device=table.device)
    # one more channel takes off the log-sum-exp, and delta, in the products themselves: no pass over the pairs for them
    onto_keys, keys_and_one = _with(q * scale, -lse), _with(k, 1.0)
    onto_values, values_and_one = _with(grad, -(grad * out).sum(-1)), _with(v, 1.0)
    chunk = max(16, min(CHUNK, HELD // max(1, J)))
    some = min(H, max(1, HELD // max(1, B * chunk * J)))
    room, wider_room = (torch.empty(some * B * chunk * n, dtype=work, device=q.device) for n in (J, J + chunk))
    for a in range(0, I, chunk):
        e = min(a + chunk, I)
        low = max(0, ahead + a - window + 1) if window else 0
        high = min(J, ahead + e) if causal else min(J, ahead + e - 1 + window) if window else J
        if high <= low:
            continue
        count, size, keys, first = e - a, high - low, slice(low, high), I - e + low
        for heads in (slice(h, h + some) for h in range(0, H, some)):
            back, back_grad = (t[:, heads, a:e].flip(2) for t in (onto_keys, onto_values))
            shape = (B, back.shape[1], count)
            p = room[: math.prod(shape) * size].view(*shape, size)
            torch.matmul(back, keys_and_one[:, heads, keys].mT, out=p)
            p.add_(hankel(table[heads], count, size, first)).exp_()
            wide = wider_room[: math.prod(shape) * (size + count)].view(*shape, size + count)
            wide[..., size:] = 0
            ds = wide[..., :size]
            torch.matmul(back_grad, values_and_one[:, heads, keys].mT, out=ds)
            ds.mul_(p)
            skewed = wide.as_strided((*shape, size + count - 1), (*wide.stride()[:2], size + count - 1, 1))
            dt[heads, first : first + size + count - 1] += skewed.sum(dim=(0, 2))
            dv[:, heads, keys] += p.mT @ back_grad[..., : v.shape[-1]]
            dk[:, heads, keys] += ds.mT @ back[..., : q.shape[-1]]
            dq[:, heads, a:e] = (ds @ k[:, heads, keys]).mul_(scale).flip(2)
    return dq, dk, dv, dt


def _with(t: Tensor, channel: Tensor | float) -> Tensor:
    """``t`` (B H L D) with one more channel; eight, of which the others are 0, keep rows aligned."""
    t = torch.nn.functional.pad(t, (0, 8))
    t[..., -8] = channel
    return t


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
