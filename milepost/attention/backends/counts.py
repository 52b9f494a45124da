"""counts: attention whose score looks up how much the gates between a query and a key have counted (CoPE), as two
operators that compilers see whole.

    g_ij = sigmoid(q_i · k_j / sqrt(D)),    c_ij = sum over t = j .. i of g_it,    at most n - 1
    logits[i, j] = scale (q_i · k_j + sqrt(D) q_i · e[c_ij]) + t(i - j),      e linear between two of its n vectors

Gates are never negative, so a count grows with the distance, and once it has reached n - 1 it stays there: all keys
farther away add scale sqrt(D) q_i · e[n - 1], one number for a whole row. So only the keys near a query need their
counts: a band, whose width is found by looking. The others go through the flash kernel without a mask, by its own
causal flag, and are merged with the band by their log-sum-exp. Where gates are half open, some 2 n keys are near; where
they hardly open, all keys may be, and every pair is looked up.

Keys are taken from the nearest to the farthest, so that a count is a running sum along memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from milepost.attention.backends.bands import HIDDEN, Side, far_keys, far_keys_backward, groups, of_heads, summed
from milepost.attention.kernel import gradients_of, merge, rows

STRIP = 64
"""Rows in a strip."""
SPARE = 64
"""Keys that the first band has beyond two for each of the n positions."""


class _Strip(NamedTuple):
    """Rows ``first .. stop-1`` with keys ``low .. high-1``, of which those nearer than ``reach`` are in the band.

    Column c of what is made of a strip is key high - 1 - c: row r meets it at distance c - (stop - 1 - r).
    """

    first: int
    stop: int
    low: int
    high: int
    reach: int

    def keys(self, backwards: Tensor) -> Tensor:
        """Its keys or values, of all of them from the last to the first (B H J D)."""
        J = backwards.shape[2]
        return backwards[:, :, J - self.high : J - self.low]

    def columns(self, first: int, stop: int, device: torch.device) -> Tensor:
        """The distance at which each row meets some of the columns."""
        behind = torch.arange(self.stop - self.first - 1, -1, -1, device=device)
        return torch.arange(first, stop, device=device) - behind[:, None]


def _strip(first: int, stop: int, ahead: int, reach: int) -> _Strip:
    return _Strip(first, stop, max(0, ahead + first - reach + 1), ahead + stop, reach)


class _Counted(NamedTuple):
    """Of a strip (B H R n each): scores q · k, gates, their running sums, the whole number below, and the rest."""

    s: Tensor
    gates: Tensor
    sums: Tensor
    below: Tensor
    rest: Tensor


def _count(q: Tensor, k: Tensor, strip: _Strip, last: int) -> _Counted:
    """The counts of a strip's queries (B H R D) and keys (B H n D, the nearest first)."""
    s = q @ k.transpose(-1, -2)
    R = q.shape[2]
    s[..., :R].masked_fill_(strip.columns(0, R, q.device) < 0, HIDDEN)
    gates = torch.mul(s, q.shape[-1] ** -0.5).sigmoid_()
    sums = gates.cumsum(-1)
    rest = sums.clamp(max=last)
    below = rest.to(torch.int64).clamp_(max=last - 1)
    return _Counted(s, gates, sums, below, rest.sub_(below))


def _settled(sums: Tensor, strip: _Strip, last: int) -> bool:
    """Whether all rows that have keys past the band have counted more than ``last`` before those."""
    R, n = sums.shape[-2:]
    many = min(R, n - strip.reach + 1)  # so many rows see the last distance of the band
    first = 0 if strip.low else 1  # the first of them sees none past it where the keys end there
    if many <= first:
        return True
    ends = sums[..., R - many :, strip.reach - 1 : strip.reach - 1 + many].flip(-1).diagonal(dim1=-2, dim2=-1)
    return bool((ends[..., first:] > last).all())


def _logits(
    c: _Counted, strip: _Strip, by_position: Tensor, table: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """The logits of a strip's band, -inf past it; and by how much each score grows with its count."""
    slope = by_position.diff(dim=-1).gather(-1, c.below)
    logits = by_position.gather(-1, c.below).addcmul_(c.rest, slope).add_(c.s).mul_(scale)
    R, n = logits.shape[-2:]
    if table is not None:
        rising = F.pad(table.flip(-1), (R - 1, 0)).contiguous()
        logits += rising.as_strided((len(table), R, n), (rising.stride(0), 1, 1))
    if n > strip.reach:
        logits[..., strip.reach :].masked_fill_(strip.columns(strip.reach, n, logits.device) >= strip.reach, HIDDEN)
    return logits, slope


def _stretches(reaches: list[int], queries: int, ahead: int) -> Iterator[tuple[slice, Side]]:
    """The keys past the band: rows whose bands are equally wide, and which keys they see there."""
    begin = 0
    for n, reach in enumerate(reaches):
        if n + 1 < len(reaches) and reaches[n + 1] == reach:
            continue
        first, stop = max(begin * STRIP, reach - ahead), min(queries, (n + 1) * STRIP)
        if first < stop:
            yield slice(first, stop), Side(False, 0, ahead + first - reach, 0)
        begin = n + 1


@torch.library.custom_op("milepost::counts", mutates_args=())
def counts(
    q: Tensor, k: Tensor, v: Tensor, e: Tensor, table: Tensor | None, scale: float, ahead: int, window: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Output (B H I D), log-sum-exp (B H I) and the width of the band in each strip (B H strips), for q (B H I D), k
    and v (B H J D), e (H|1 n D), and a table (H ahead+I) of a bias by falling distance.
    """
    work = torch.promote_types(q.dtype, torch.float32)
    (B, H, I, D), J, last, root = q.shape, k.shape[2], e.shape[1] - 1, math.sqrt(q.shape[3])
    k, v = rows(k), rows(v)
    back_k, back_v = (t.flip(2).to(work) for t in (k, v))
    e = e.to(work) * root
    out = torch.empty(B, H, I, D, dtype=q.dtype, device=q.device)
    lse = torch.empty(B, H, I, dtype=work, device=q.device)
    widths = torch.empty(B, H, -(-I // STRIP), dtype=torch.int64)
    for batch, heads in groups(B, H, STRIP * J):
        some_q, some_k, some_v = (t[batch, heads] for t in (q, back_k, back_v))
        some_e, some_table = of_heads(e, heads), None if table is None else table[heads].to(work)
        reach = window or (J if table is not None else min(J, 2 * (last + 1) + SPARE))
        reaches = []
        for a in range(0, I, STRIP):
            stop = min(a + STRIP, I)
            rows_q = some_q[:, :, a:stop].to(work)
            while True:
                strip = _strip(a, stop, ahead, reach)
                counted = _count(rows_q, strip.keys(some_k), strip, last)
                if window or _settled(counted.sums, strip, last):
                    break
                reach *= 2
            logits, _ = _logits(counted, strip, rows_q @ some_e.mT, some_table, scale)
            weight = torch.logsumexp(logits, dim=-1)
            out[batch, heads, a:stop] = (logits.sub_(weight[..., None]).exp_() @ strip.keys(some_v)).to(q.dtype)
            lse[batch, heads, a:stop] = weight
            reaches.append(reach)
        for these, side in () if window else _stretches(reaches, I, ahead):
            more, weight = far_keys(side, some_q[:, :, these], k[batch, heads], v[batch, heads], scale)
            weight = weight.to(work) + (some_q[:, :, these].to(work) @ some_e[:, -1, :, None])[..., 0] * scale
            merge(out[batch, heads, these], lse[batch, heads, these], more, weight)
        widths[batch, heads] = torch.tensor(reaches)
    return out, lse, widths


@counts.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, e: Tensor, table: Tensor | None, scale: float, ahead: int, window: int
) -> tuple[Tensor, Tensor, Tensor]:
    work = torch.promote_types(q.dtype, torch.float32)
    return (
        torch.empty(q.shape, dtype=q.dtype, device=q.device),
        torch.empty(q.shape[:3], dtype=work, device=q.device),
        torch.empty(*q.shape[:2], -(-q.shape[2] // STRIP), dtype=torch.int64),
    )


@torch.library.custom_op("milepost::counts_backward", mutates_args=())
def counts_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, e: Tensor, table: Tensor | None, out: Tensor, lse: Tensor,
    widths: Tensor, scale: float, ahead: int, window: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients to q, k, v, e and the table (empty where there is none), in the precision of the work."""
    work = lse.dtype
    (B, H, I), J, last, root = q.shape[:3], k.shape[2], e.shape[1] - 1, math.sqrt(q.shape[3])
    q, k, v, grad, out = (t.to(work) for t in (q, k, v, grad, out))
    k, v = rows(k), rows(v)
    back_k, back_v = k.flip(2), v.flip(2)
    e = e.to(work) * root
    dq, dk, dv = (torch.zeros_like(t, memory_format=torch.contiguous_format) for t in (q, k, v))
    de, dt = torch.zeros_like(e), torch.zeros(0 if table is None else table.shape, dtype=work, device=q.device)
    delta = (grad * out).sum(-1)
    back_dk, back_dv = torch.zeros_like(back_k), torch.zeros_like(back_v)
    for batch, heads in groups(B, H, STRIP * J):
        reaches = widths[batch.start, heads.start].tolist()
        some_e, some_table = of_heads(e, heads), None if table is None else table[heads].to(work)
        on_last = torch.zeros_like(delta[batch, heads])  # of dS over the band, row by row
        for n, reach in enumerate(reaches):
            strip = _strip(n * STRIP, min((n + 1) * STRIP, I), ahead, reach)
            own = (batch, heads, slice(strip.first, strip.stop))
            some_q, some_grad = q[own], grad[own]
            some_k, some_v = strip.keys(back_k[batch, heads]), strip.keys(back_v[batch, heads])
            counted = _count(some_q, some_k, strip, last)
            by_position = some_q @ some_e.mT
            weights, slope = _logits(counted, strip, by_position, some_table, scale)
            weights.sub_(lse[own][..., None]).exp_()
            strip.keys(back_dv[batch, heads]).add_(weights.transpose(-1, -2) @ some_grad)
            ds = (some_grad @ some_v.transpose(-1, -2)).sub_(delta[own][..., None]).mul_(weights)
            on_last[:, :, strip.first : strip.stop] = ds.sum(-1)
            if some_table is not None:
                _give_table(dt[heads], ds)
            ds.mul_(scale)
            higher = ds * counted.rest
            on_positions = torch.zeros_like(by_position)
            on_positions.scatter_add_(-1, counted.below + 1, higher)
            on_positions.scatter_add_(-1, counted.below, ds - higher)
            de_part = summed(on_positions.transpose(-1, -2) @ some_q, de)
            of_heads(de, heads).add_(de_part)
            on_counts = slope.mul_(ds).masked_fill_(counted.sums > last, 0.0)
            on_gates = on_counts.flip(-1).cumsum(-1).flip(-1)
            ds.add_(on_gates.mul_(counted.gates).mul_(1 - counted.gates), alpha=1 / root)
            dq[own] = (ds @ some_k).add_(on_positions @ some_e)
            strip.keys(back_dk[batch, heads]).add_(ds.transpose(-1, -2) @ some_q)
        for these, side in () if window else _stretches(reaches, I, ahead):
            rows_ = (batch, heads, these)
            level = (q[rows_] @ some_e[:, -1, :, None])[..., 0] * scale
            given = (grad[rows_], q[rows_], k[batch, heads], v[batch, heads], out[rows_], lse[rows_] - level)
            parts = far_keys_backward(side, *given, None, scale)
            dq[rows_] += parts[0]
            dk[batch, heads] += parts[1]
            dv[batch, heads] += parts[2]
            on_level = on_last[:, :, these].neg()[..., None] * scale  # all of dS adds up to nothing in a row
            dq[rows_] += on_level * some_e[:, -1, None]
            of_heads(de, heads)[:, -1] += summed((on_level * q[rows_]).sum(2), de)
    dk += back_dk.flip(2)
    dv += back_dv.flip(2)
    return dq, dk, dv, de.mul_(root), dt


def _give_table(dt: Tensor, ds: Tensor) -> None:
    """Add dS (B H R n) of each distance to the gradient of a table by falling distance (H count)."""
    B, H, R, n = ds.shape
    wide = F.pad(ds, (0, R))
    skewed = wide.as_strided((B, H, R, n + R - 1), (*wide.stride()[:2], n + R - 1, 1))  # a column for each distance
    by_distance = skewed.sum(dim=(0, 2))[:, R - 1 :]
    dt[:, dt.shape[1] - n :] += by_distance.flip(-1)


@counts_backward.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, e: Tensor, table: Tensor | None, out: Tensor, lse: Tensor,
    widths: Tensor, scale: float, ahead: int, window: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    like = [lse.new_empty(0 if t is None else t.shape) for t in (q, k, v, e, table)]
    return like[0], like[1], like[2], like[3], like[4]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.scale, ctx.ahead, ctx.window = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.set_materialize_grads(False)


def _backward(
    ctx: Any, grad: Tensor | None, grad_lse: Tensor | None, grad_widths: Tensor | None
) -> tuple[Tensor | None, ...]:
    if grad_lse is not None:
        raise ValueError("the log-sum-exp of counts() is for merging, and has no gradient")
    if grad is None:
        return (None,) * 8
    saved: Any = ctx.saved_tensors
    given, results, how = saved[:5], saved[5:], (ctx.scale, ctx.ahead, ctx.window)
    if torch.is_grad_enabled():  # a gradient of the gradient is asked for: by the definition
        arguments: Any = (*given, *how)
        return *gradients_of(dense(*arguments), given, ctx.needs_input_grad[:5], grad), None, None, None
    grads = torch.ops.milepost.counts_backward(grad.contiguous(), *given, *results, *how)
    parts = tuple(None if t is None else g.to(t.dtype) for t, g in zip(given, grads, strict=True))
    return *parts, None, None, None


def dense(
    q: Tensor, k: Tensor, v: Tensor, e: Tensor, table: Tensor | None, scale: float, ahead: int, window: int
) -> Tensor:
    """The output by the definition (O(I J) memory): for gradients of gradients, which no kernel has."""
    (I, J), dtype, work = (q.shape[2], k.shape[2]), q.dtype, torch.promote_types(q.dtype, torch.float32)
    q, k, v, e = (t.to(work) for t in (q, k, v, e))
    root, last = math.sqrt(q.shape[-1]), e.shape[1] - 1
    distance = ahead + torch.arange(I, device=q.device)[:, None] - torch.arange(J, device=q.device)
    hidden = distance < 0
    if window:
        hidden = hidden | (distance >= window)
    s = (q @ k.mT).masked_fill(hidden, HIDDEN)
    count = torch.sigmoid(s / root).flip(-1).cumsum(-1).flip(-1).clamp(max=last)
    below = count.detach().floor().long().clamp(max=last - 1)
    by_position = q @ e.mT
    low, high = by_position.gather(-1, below), by_position.gather(-1, below + 1)
    logits = (s + root * (low + (count - below) * (high - low))) * scale
    if table is not None:
        number = (table.shape[1] - 1 - distance).clamp(0, table.shape[1] - 1)
        logits = logits + table.to(work)[:, number]
    return (torch.softmax(logits.masked_fill(hidden, HIDDEN), dim=-1) @ v).to(dtype)


counts.register_autograd(_backward, setup_context=_save)
