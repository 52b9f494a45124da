"""key_row: a bias that depends on the key alone, which is how many checkpoints write ALiBi.

    logits[b, h, i, j] = scale q_i · k_j + row[b, h, j]

A softmax does not see what is added to a whole row of its logits, so -m (i - j) and m j give the same weights, and the
bias is one number a key: rounded as the checkpoint rounds it, with padded keys put out of sight. torch's CPU flash
kernel takes it as a mask whose rows are one row, together with the causal flag: no I x J tensor, no strips. A text that
goes on is two calls (the keys before the first query, then the square), merged by their log-sum-exp.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from milepost.attention.blocks import Block
from milepost.attention.hidden import finite, in_block, repaired, transformed
from milepost.attention.kernel import flash, flash_backward, gradients_of, merged

CHUNK = 128
"""Rows at a time where the flash kernel can't be used."""


def key_row(q: Tensor, k: Tensor, v: Tensor, row: Tensor, *, scale: float, causal: bool = True) -> Tensor:
    """Attention of q (B H I D), the last I of J tokens, to k and v (B G J D), with a fixed bias ``row`` (B|1, H|1, 1,
    J): B H I D.

    G divides H. A key with -inf is hidden; what a query gives that sees no key at all is finite, and means nothing.
    """
    (B, H, I), J = q.shape[:3], k.shape[2]
    if row.dim() != 4 or row.shape[0] not in (1, B) or row.shape[1] not in (1, H) or row.shape[2:] != (1, J):
        raise ValueError(
            f"a key row for q {tuple(q.shape)} and {J} keys has shape (1 or {B}, 1 or {H}, 1, {J}), got "
            f"{tuple(row.shape)}"
        )
    if row.requires_grad:
        raise ValueError(
            "a key row is fixed, got one that requires a gradient; give row.detach(), or attend() with an encoding "
            "that learns"
        )
    if causal and I > J:
        raise ValueError(f"{I} queries can't be the last of {J} keys; attend with causal=False")
    work = torch.promote_types(q.dtype, torch.float32)
    least = torch.finfo(work).min
    row = row.to(work).clamp(min=least)  # of -inf alone the kernel gives a log-sum-exp of 0
    if k.shape[1] != H:
        k, v = (
            t[:, :, None].expand(-1, -1, H // t.shape[1], -1, -1).flatten(1, 2) for t in (k, v)
        )  # a view where G = 1
    compiled = torch.compiler.is_compiling()
    if not compiled and not transformed() and ((I == 1 and bool((row > least).all())) or finite(q, k, v)):
        return _run(q, k, v, row, scale, causal)

    def touched(broken: Tensor) -> Tensor:
        return in_block(broken & (row[:, :, 0] > least), Block(None, 0, I, 0, J, J - I), causal, 0)

    q, k, v, spoilt = repaired(q, k, v, touched)
    return _run(q, k, v, row, scale, causal) + spoilt


def _run(q: Tensor, k: Tensor, v: Tensor, row: Tensor, scale: float, causal: bool) -> Tensor:
    if transformed():
        return _rows(q, k, v, row, scale=scale, causal=causal)
    if q.device.type != "cpu" or v.shape[-1] != q.shape[-1]:
        return _by_chunks(q, k, v, row, scale, causal)
    out: Tensor = _key_row(q, k, v, row, scale, causal)[0]
    return out


def _calls(q: Tensor, row: Tensor, causal: bool) -> Iterator[tuple[slice, bool, Tensor]]:
    """The calls of the kernel: which keys, whether by the causal flag, and the bias as a view (B H I keys) with one row
    in memory.
    """
    (B, H, I), J = q.shape[:3], row.shape[-1]
    edges = [(0, J - I, False), (J - I, J, True)] if causal and I > 1 else [(0, J, False)]
    for low, high, flag in edges:
        if high > low:
            yield slice(low, high), flag, row[..., low:high].expand(B, H, I, high - low)


@torch.library.custom_op("milepost::key_row", mutates_args=())
def _key_row(q: Tensor, k: Tensor, v: Tensor, row: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    """Output (B H I D) and log-sum-exp (B H I) for q (B H I D), k and v (B H J D) and a row (B|1 H|1 1 J)."""
    parts = []
    for keys, flag, mask in _calls(q, row, causal):
        parts.append(flash(q, k[:, :, keys], v[:, :, keys], mask=mask, causal=flag, scale=scale))
    out, lse = parts[0]
    for more, weight in parts[1:]:
        out, lse = merged(out, lse, more, weight)
    return out, lse


@_key_row.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, row: Tensor, scale: float, causal: bool) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), torch.empty(q.shape[:3], dtype=row.dtype, device=q.device)


@torch.library.custom_op("milepost::key_row_backward", mutates_args=())
def _key_row_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, row: Tensor, out: Tensor, lse: Tensor, scale: float, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients to q, k and v: the kernel's own, each call with the whole output and log-sum-exp."""
    dq, dk, dv = (torch.zeros(t.shape, dtype=row.dtype, device=t.device) for t in (q, k, v))
    for keys, flag, mask in _calls(q, row, causal):
        parts = flash_backward(grad, q, k[:, :, keys], v[:, :, keys], out, lse, mask=mask, causal=flag, scale=scale)
        dq += parts[0]
        dk[:, :, keys] += parts[1]
        dv[:, :, keys] += parts[2]
    return dq.to(q.dtype), dk.to(q.dtype), dv.to(q.dtype)


@_key_row_backward.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, row: Tensor, out: Tensor, lse: Tensor, scale: float, causal: bool
) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = (torch.empty(t.shape, dtype=q.dtype, device=t.device) for t in (q, k, v))
    return dq, dk, dv


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, row, ctx.scale, ctx.causal = inputs
    ctx.save_for_backward(q, k, v, row, *output)


def _backward(ctx: Any, grad: Tensor, grad_lse: Tensor) -> tuple[Tensor | None, ...]:
    if torch.is_grad_enabled():  # a gradient of the gradient is asked for: by the definition
        q, k, v, row = ctx.saved_tensors[:4]
        out = _rows(q, k, v, row, scale=ctx.scale, causal=ctx.causal)
        return *gradients_of(out, (q, k, v), ctx.needs_input_grad[:3], grad), None, None, None
    return (
        *torch.ops.milepost.key_row_backward(grad.contiguous(), *ctx.saved_tensors, ctx.scale, ctx.causal),
        None,
        None,
        None,
    )


_key_row.register_autograd(_backward, setup_context=_save)


def _by_chunks(q: Tensor, k: Tensor, v: Tensor, row: Tensor, scale: float, causal: bool) -> Tensor:
    """The same without the kernel (other devices, values of another width), a few rows at a time, recomputed in the
    backward pass.
    """
    done = []
    for a in range(0, q.shape[2], CHUNK):
        e = min(a + CHUNK, q.shape[2])
        seen = k.shape[2] - q.shape[2] + e if causal else k.shape[2]
        run = partial(_rows, scale=scale, causal=causal)
        done.append(
            checkpoint(
                run,
                q[:, :, a:e],
                k[:, :, :seen],
                v[:, :, :seen],
                row[..., :seen],
                use_reentrant=False,
                preserve_rng_state=False,
            )
        )
    return torch.cat(done, dim=2)


def _rows(q: Tensor, k: Tensor, v: Tensor, row: Tensor, *, scale: float, causal: bool) -> Tensor:
    I, J = q.shape[2], k.shape[2]
    logits = (q.to(row.dtype) @ k.to(row.dtype).transpose(-1, -2)) * scale + row
    if causal:
        future = torch.ones(I, J, dtype=torch.bool, device=q.device).triu(1 + J - I)
        logits = logits.masked_fill(future, float("-inf"))
    return (torch.softmax(logits, dim=-1) @ v.to(row.dtype)).to(q.dtype)
