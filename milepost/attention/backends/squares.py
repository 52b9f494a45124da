"""squares: attention whose score meets the distance with content, for texts short enough to hold all their weights.

    logits[i, j] = scale (q_i · k_j + p_i · a[d] + k_j · b[d]) + t[d],   out_i = sum of w_ij (v_j + c[d]),   d = i - j

`bands` (and `strips`, for a learned bias t) do the same for any length: they never hold all weights, so they make them
twice, and what they save is in keys that are far or hidden. A short text has few. There, products of whole matrices
take half the time.

X = p a^T has a column for each distance, by falling distance. Seen with a row stride one shorter, it is the term
itself: row i meets distance d at key i - d. Pairs that the mask hides read numbers of other rows there, and are
overwritten. Backwards dS is 0 at all hidden pairs, and seen with a row stride one longer it is the gradient to X. Only
the first row would begin before its matrix; it sees one key, with weight 1, and has no gradient. The term of the keys
is the same with queries and keys exchanged, and there the last key is the one apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from milepost.attention.backends.bands import HIDDEN, Room, between, dense, give, summed
from milepost.attention.kernel import gradients_of

LONGEST = 256
"""Tokens of a text that is short."""
MOST = 1 << 24
"""Weights that may be held from the forward pass to the backward pass."""
TOGETHER = 1 << 18
"""Weights that each thread makes together, so that they stay in the processor's cache."""


def are_short(batch: int, heads: int, length: int) -> bool:
    """Whether texts of so many tokens are short enough."""
    return 1 < length <= LONGEST and 0 < batch * heads * length * length <= MOST


def attend_whole(
    q: Tensor, p: Tensor, k: Tensor, v: Tensor, a: Tensor | None, b: Tensor | None, c: Tensor | None,
    table: Tensor | None, scale: float, far: int,
) -> Tensor:  # fmt: skip
    """Causal attention over whole texts, B H N D; weights are held where a gradient will be asked for."""
    learned = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (q, p, k, v, a, b, c, table))
    out: Tensor = squares(q, p, k, v, a, b, c, table, scale, far, learned)[0]
    return out


def _texts(batch: int, weights: int) -> Iterator[slice]:
    """Rows of the batch that are done together, where one of them has so many weights."""
    some = max(1, min(batch, TOGETHER * torch.get_num_threads() // weights))
    return (slice(b, b + some) for b in range(0, batch, some))


def _matrices(t: Tensor, texts: slice, dtype: torch.dtype) -> Tensor:
    """Some texts of (B H N D) as matrices one after another: products of others copy what they are given."""
    return t[texts].to(dtype).contiguous().flatten(0, 1)


def _is_same(p: Tensor, q: Tensor) -> bool:
    return p.data_ptr() == q.data_ptr() and (p.shape, p.stride(), p.dtype) == (q.shape, q.stride(), q.dtype)


def _vectors(t: Tensor | None, far: int, length: int, heads: int, texts: int, dtype: torch.dtype) -> Tensor | None:
    """A matrix (N D) of vectors of the distances length - 1 to 0 for each head of so many texts, of those (H|1 n D) of
    the distances from ``far`` down.
    """
    if t is None:
        return None
    return between(t.to(dtype), far - length + 1, length).expand(heads, -1, -1).repeat(texts, 1, 1)


def _by_pairs(x: Tensor) -> Tensor:
    """Columns by falling distance (M N N) as pairs of query and key: a view, ``[i, j] = x[i, j - i + N - 1]``."""
    M, N, _ = x.shape
    return x.as_strided((M, N, N), (N * N, N - 1, 1), x.storage_offset() + N - 1)


def _by_keys(z: Tensor) -> Tensor:
    """Columns by rising distance of each key (M N N) as pairs: a view, ``[i, j] = z[j, i - j]``."""
    M, N, _ = z.shape
    return z.as_strided((M, N, N), (N * N, 1, N - 1), z.storage_offset())


def _by_distance(pairs: Tensor) -> Tensor:
    """Pairs (M N N), 0 where hidden, as columns by falling distance: a view of all rows but the first."""
    M, N, _ = pairs.shape
    return pairs.as_strided((M, N - 1, N), (N * N, N + 1, 1), pairs.storage_offset() + 2)


def _by_distance_of_keys(pairs: Tensor) -> Tensor:
    """Pairs by key and query (M N N), 0 where hidden, as columns by rising distance: all keys but the last."""
    M, N, _ = pairs.shape
    return pairs.as_strided((M, N - 1, N), (N * N, N + 1, 1), pairs.storage_offset())


@torch.library.custom_op("milepost::squares", mutates_args=())
def squares(
    q: Tensor, p: Tensor, k: Tensor, v: Tensor, a: Tensor | None, b: Tensor | None, c: Tensor | None,
    table: Tensor | None, scale: float, far: int, keep: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output (B H N D) of q, k, v (B H N D) and p (B H N C), a (H|1 n C), b and c (H|1 n D) by distance from ``far``
    down, and a table (H 2N-1) from N - 1 down, -inf where it hides; and the weights (B H N N; empty unless ``keep``).
    """
    work, (B, H, N, D) = torch.promote_types(q.dtype, torch.float32), q.shape
    parts, same = list(_texts(B, H * N * N)), a is None or _is_same(p, q)
    a, b, c = (_vectors(t, far, N, H, parts[0].stop, work) for t in (a, b, c))
    rising = None if b is None else b.flip(1) * scale
    later = torch.ones(N, N, dtype=torch.bool, device=q.device).triu(1)
    bias = None if table is None else table.to(work).unfold(1, N, 1).flip(1).repeat(parts[0].stop, 1, 1)
    out = torch.empty(B, H, N, D, dtype=work, device=q.device)
    held = torch.empty((B, H, N, N) if keep else 0, dtype=work, device=q.device)
    room, room_of_weights = Room(work, q.device), Room(work, q.device)
    for texts in parts:
        some_q, some_k, some_v = (_matrices(t, texts, work) for t in (q, k, v))
        some_p = some_q if same else _matrices(p, texts, work)
        M = len(some_q)
        x, done = room.of(M, N, N), out[texts].flatten(0, 1)
        weights = held[texts].flatten(0, 1) if keep else room_of_weights.of(M, N, N)
        torch.bmm(some_q * scale, some_k.mT, out=weights)
        if a is not None:
            weights += _by_pairs(torch.bmm(some_p * scale, a[:M].mT, out=x))
        if rising is not None:
            weights += _by_keys(torch.bmm(some_k, rising[:M].mT, out=x))
        if bias is not None:
            weights += bias[:M]
        if a is not None or rising is not None or bias is None:
            weights.masked_fill_(later, HIDDEN)
        torch.softmax(weights, dim=-1, out=weights)
        torch.bmm(weights, some_v, out=done)
        if c is not None:
            done[:, 1:] += torch.bmm(_by_distance(weights), c[:M])
            done[:, :1] += c[:M, -1:]
    return out.to(q.dtype), held


@squares.register_fake
def _(
    q: Tensor, p: Tensor, k: Tensor, v: Tensor, a: Tensor | None, b: Tensor | None, c: Tensor | None,
    table: Tensor | None, scale: float, far: int, keep: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    work = torch.promote_types(q.dtype, torch.float32)
    held = (*q.shape[:3], k.shape[2]) if keep else (0,)
    return torch.empty_like(v), torch.empty(held, dtype=work, device=q.device)


@torch.library.custom_op("milepost::squares_backward", mutates_args=())
def squares_backward(
    grad: Tensor, q: Tensor, p: Tensor, k: Tensor, v: Tensor, a: Tensor | None, b: Tensor | None, c: Tensor | None,
    table: Tensor | None, held: Tensor, scale: float, far: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients to q, p, k, v, a, b, c and the table (empty for those that are None, and p's
    without a), in the precision of the work.
    """
    work, (B, H, N, D) = held.dtype, q.shape
    dq, dk, dv = (torch.empty(t.shape, dtype=work, device=q.device) for t in (q, k, v))
    dp = torch.empty(p.shape if a is not None else 0, dtype=work, device=q.device)
    da, db, dc, dt = (torch.zeros(0 if t is None else t.shape, dtype=work, device=q.device) for t in (a, b, c, table))
    parts, same = list(_texts(B, H * N * N)), a is None or _is_same(p, q)
    a, b, c = (_vectors(t, far, N, H, parts[0].stop, work) for t in (a, b, c))
    rising = None if b is None else b.flip(1)
    room, room_of_pairs, first = Room(work, q.device), Room(work, q.device), far - N + 1
    for texts in parts:
        some_grad, some_q, some_k, some_v = (_matrices(t, texts, work) for t in (grad, q, k, v))
        some_p = some_q if same else _matrices(p, texts, work)
        weights = held[texts].flatten(0, 1)
        M = len(weights)
        x, ds = room.of(M, N, N), room_of_pairs.of(M, N, N)
        on_q, on_k, on_v = (t[texts].flatten(0, 1) for t in (dq, dk, dv))
        torch.bmm(weights.mT, some_grad, out=on_v)
        torch.bmm(some_grad, some_v.mT, out=ds)  # the gradient to the weights, and then to the logits
        if c is not None:
            ds += _by_pairs(torch.bmm(some_grad, c[:M].mT, out=x))
            part = _by_distance(weights).mT @ some_grad[:, 1:]
            part[:, -1] += some_grad[:, 0]
            give(dc, first, summed(part.view(-1, H, N, D), dc))
        ds = torch._softmax_backward_data(ds, weights, -1, work).mul_(scale)
        torch.bmm(ds, some_k, out=on_q)
        torch.bmm(ds.mT, some_q, out=on_k)
        if table is not None:
            dt[:, :N] += _by_distance(ds).view(-1, H, N - 1, N).sum(dim=(0, 2)) / scale
        if a is not None:
            by_distance, on_p = _by_distance(ds), dp[texts].flatten(0, 1)
            on_p[:, 0] = 0
            torch.bmm(by_distance, a[:M], out=on_p[:, 1:])
            give(da, first, summed((by_distance.mT @ some_p[:, 1:]).view(-1, H, N, p.shape[-1]), da))
        if rising is not None:
            last, by_distance = ds[:, -1, -1, None, None], _by_distance_of_keys(x.copy_(ds.mT))
            on_k[:, :-1] += torch.bmm(by_distance, rising[:M])
            on_k[:, -1:] += last * rising[:M, :1]
            part = by_distance.mT @ some_k[:, :-1]
            part[:, :1] += last * some_k[:, -1:]
            give(db, first, summed(part.view(-1, H, N, D), db).flip(1))
    return dq, dp, dk, dv, da, db, dc, dt


@squares_backward.register_fake
def _(
    grad: Tensor, q: Tensor, p: Tensor, k: Tensor, v: Tensor, a: Tensor | None, b: Tensor | None, c: Tensor | None,
    table: Tensor | None, held: Tensor, scale: float, far: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    like = [held.new_empty(0 if t is None else t.shape) for t in (q, None if a is None else p, k, v, a, b, c, table)]
    return like[0], like[1], like[2], like[3], like[4], like[5], like[6], like[7]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.scale, ctx.far, _ = inputs
    ctx.save_for_backward(*tensors, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 11
    *given, held = ctx.saved_tensors
    if torch.is_grad_enabled():  # a gradient of the gradient is asked for: by the definition
        given = [None if t is None else t.view_as(t) for t in given]  # q and p may be one tensor
        q, p, k, v, a, b, c, table = given
        count = next(t.shape[1] for t in (a, b, c, table) if t is not None)
        out, mass = dense(q, p, k, v, a, b, table, ctx.scale, 0, True, 0, ctx.far, count, False, c is not None)
        out = out if c is None else out + (mass @ c.to(mass.dtype)).to(out.dtype)
        wanted = list(ctx.needs_input_grad[:8])
        wanted[1] &= a is not None  # p meets nothing but a
        return *gradients_of(out, given, wanted, grad), None, None, None
    grads = torch.ops.milepost.squares_backward(grad, *given, held, ctx.scale, ctx.far)
    given[1] = None if given[4] is None else given[1]  # p meets nothing but a
    parts = tuple(None if t is None else g.to(t.dtype) for t, g in zip(given, grads, strict=True))
    return *parts, None, None, None


squares.register_autograd(_backward, setup_context=_save)
