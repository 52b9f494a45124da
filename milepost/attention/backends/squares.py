"""squares: attention whose score meets the distance with content, for texts short enough to hold all their weights.

    logits[i, j] = scale (q_i · k_j + p_i · a[d] + k_j · b[d]) + t[d],   out_i = sum of w_ij (v_j + c[d]),   d = i - j

`bands` (and `strips`, for a learned bias t) do the same for any length: they never hold all weights, so they make them
twice, and what they save is in keys that are far or hidden. A short text has few. There, products of whole matrices
take half the time.

The rows of a text are done in two steps, the first of which meets the first half of the keys alone: a quarter of all
pairs is hidden from both, and not computed. In a step, X = p a^T has a column for each distance, by falling distance.
Seen with a row stride one shorter, it is the term itself: row i meets distance d at key i - d. Pairs that the mask
hides read numbers of other rows there, and are overwritten. Backwards dS is 0 at all hidden pairs, and seen with a row
stride one longer it is the gradient to X. Only the first row of a step would begin before its matrix, and is done
apart. The term of the keys is a product for each half of them, whose columns are rising distances.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from milepost.attention.backends.bands import HIDDEN, Room, between, dense, give, summed
from milepost.attention.kernel import gradients_of

LONGEST = 256
"""Tokens of a text that is short."""
MOST = 1 << 24
"""Weights that may be held from the forward pass to the backward pass."""
WORTH = 64
"""Tokens from which on a text is done in two steps."""
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


class Stair(NamedTuple):
    """Rows ``first .. stop-1`` of a text, with the keys ``0 .. stop-1``."""

    first: int
    stop: int

    @property
    def rows(self) -> int:
        """How many rows."""
        return self.stop - self.first


def _steps(length: int) -> list[Stair]:
    """Two steps down a text, or one where it is short."""
    half = length // 2
    return [Stair(0, half), Stair(half, length)] if length >= WORTH else [Stair(0, length)]


def _count(matrices: int, steps: list[Stair]) -> int:
    """Weights of all steps."""
    return matrices * sum(step.rows * step.stop for step in steps)


def _held(held: Tensor, steps: list[Stair], matrices: int) -> list[Tensor]:
    """The weights of each step (matrices rows keys), which are kept one step after the other."""
    sizes = [matrices * step.rows * step.stop for step in steps]
    parts = torch.split(held, sizes)
    return [part.view(matrices, step.rows, step.stop) for part, step in zip(parts, steps, strict=True)]


def _by_pairs(x: Tensor) -> Tensor:
    """Columns by falling distance (M R J) as pairs of query and key: a view, ``[r, j] = x[r, j - r + R - 1]``."""
    M, R, J = x.shape
    return x.as_strided((M, R, J), (R * J, J - 1, 1), x.storage_offset() + R - 1)


def _by_keys(z: Tensor, ahead: int, rows: int) -> Tensor:
    """Columns by rising distance of each key (M K W) as pairs (M rows K), the first row ``ahead`` of the first key: a
    view, ``[r, j] = z[j, ahead + r - j]``.
    """
    M, K, W = z.shape
    return z.as_strided((M, rows, K), (K * W, 1, W - 1), z.storage_offset() + ahead)


def _by_distance(pairs: Tensor) -> Tensor:
    """Pairs of a step (M R J), 0 where hidden, as columns by falling distance: a view of all rows but the first."""
    M, R, J = pairs.shape
    return pairs.as_strided((M, R - 1, J), (R * J, J + 1, 1), pairs.storage_offset() + J - R + 2)


def _first_row(pairs: Tensor) -> tuple[Tensor, slice]:
    """The first row of a step with the keys that it sees (M 1 n), and which columns by falling distance they are."""
    _, R, J = pairs.shape
    return pairs[:, :1, : J - R + 1], slice(R - 1, J)


@torch.library.custom_op("milepost::squares", mutates_args=())
def squares(
    q: Tensor, p: Tensor, k: Tensor, v: Tensor, a: Tensor | None, b: Tensor | None, c: Tensor | None,
    table: Tensor | None, scale: float, far: int, keep: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output (B H N D) of q, k, v (B H N D) and p (B H N C), a (H|1 n C), b and c (H|1 n D) by distance from ``far``
    down, and a table (H 2N-1) from N - 1 down, -inf where it hides; and the weights by steps (empty unless ``keep``).
    """
    work, (B, H, N, D) = torch.promote_types(q.dtype, torch.float32), q.shape
    parts, same, steps = list(_texts(B, H * N * N)), a is None or _is_same(p, q), _steps(N)
    a, b, c = (_vectors(t, far, N, H, parts[0].stop, work) for t in (a, b, c))
    rising = None if b is None else b.flip(1) * scale
    later = torch.ones(N, N, dtype=torch.bool, device=q.device).triu(1)
    bias = None if table is None else table.to(work).unfold(1, N, 1).flip(1).repeat(parts[0].stop, 1, 1)
    out = torch.empty(B, H, N, D, dtype=work, device=q.device)
    held = torch.empty(_count(B * H, steps) if keep else 0, dtype=work, device=q.device)
    by_step = _held(held, steps, B * H) if keep else []
    room, room_of_weights, rooms = Room(work, q.device), Room(work, q.device), [Room(work, q.device) for _ in steps]
    for texts in parts:
        all_q, all_k, all_v = (_matrices(t, texts, work) for t in (q, k, v))
        all_p = all_q if same else _matrices(p, texts, work)
        M, done, these = len(all_q), out[texts].flatten(0, 1), slice(texts.start * H, texts.stop * H)
        met: list[Tensor] = []  # the term of the keys of each step, by rising distance
        if rising is not None:
            for step, own in zip(steps, rooms, strict=True):
                z = own.of(M, step.rows, N - step.first)
                met.append(torch.bmm(all_k[:, step.first : step.stop], rising[:M, : z.shape[2]].mT, out=z))
        for number, step in enumerate(steps):
            R, J, own_rows = step.rows, step.stop, slice(step.first, step.stop)
            weights = by_step[number][these] if keep else room_of_weights.of(M, R, J)
            torch.bmm(all_q[:, own_rows] * scale, all_k[:, :J].mT, out=weights)
            if a is not None:
                x = torch.bmm(all_p[:, own_rows] * scale, a[:M, N - J :].mT, out=room.of(M, R, J))
                weights += _by_pairs(x)
            for keys, z in zip(steps, met[: number + 1], strict=False):
                weights[:, :, keys.first : keys.stop] += _by_keys(z, step.first - keys.first, R)
            if bias is not None:
                weights += bias[:M, own_rows, :J]
            weights[:, :, own_rows].masked_fill_(later[:R, :R], HIDDEN)
            torch.softmax(weights, dim=-1, out=weights)
            some = torch.bmm(weights, all_v[:, :J])
            if c is not None:
                row, columns = _first_row(weights)
                some[:, 1:] += torch.bmm(_by_distance(weights), c[:M, N - J :])
                some[:, :1] += torch.bmm(row, c[:M, N - J :][:, columns])
            done[:, own_rows] = some
    return out.to(q.dtype), held


@squares.register_fake
def _(
    q: Tensor, p: Tensor, k: Tensor, v: Tensor, a: Tensor | None, b: Tensor | None, c: Tensor | None,
    table: Tensor | None, scale: float, far: int, keep: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    work = torch.promote_types(q.dtype, torch.float32)
    held = _count(q.shape[0] * q.shape[1], _steps(q.shape[2])) if keep else 0
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
    parts, same, steps = list(_texts(B, H * N * N)), a is None or _is_same(p, q), _steps(N)
    by_step = _held(held, steps, B * H)
    a, b, c = (_vectors(t, far, N, H, parts[0].stop, work) for t in (a, b, c))
    rising = None if b is None else b.flip(1)
    room, room_of_pairs, rooms = Room(work, q.device), Room(work, q.device), [Room(work, q.device) for _ in steps]
    for texts in parts:
        all_grad, all_q, all_k, all_v = (_matrices(t, texts, work) for t in (grad, q, k, v))
        all_p = all_q if same else _matrices(p, texts, work)
        M, these = len(all_q), slice(texts.start * H, texts.stop * H)
        on_q, on_k, on_v = (t[texts].flatten(0, 1) for t in (dq, dk, dv))
        met: list[Tensor] = []  # gradients to the term of the keys of each step, by rising distance
        for step, own in zip(steps, rooms, strict=True) if rising is not None else ():
            met.append(own.of(M, step.rows, N - step.first).zero_())
        for number, step in reversed(list(enumerate(steps))):  # the last one meets all keys
            R, J, own_rows, first = step.rows, step.stop, slice(step.first, step.stop), far - step.stop + 1
            some_q, some_grad, some_k = all_q[:, own_rows], all_grad[:, own_rows], all_k[:, :J]
            weights, ds = by_step[number][these], room_of_pairs.of(M, R, J)
            torch.bmm(some_grad, all_v[:, :J].mT, out=ds)  # the gradient to the weights, and then to the logits
            if c is not None:
                row, columns = _first_row(weights)
                ds += _by_pairs(torch.bmm(some_grad, c[:M, N - J :].mT, out=room.of(M, R, J)))
                part = _by_distance(weights).mT @ some_grad[:, 1:]
                part[:, columns] += row.mT @ some_grad[:, :1]
                give(dc, first, summed(part.view(-1, H, J, D), dc))
            ds = torch._softmax_backward_data(ds, weights, -1, work).mul_(scale)
            on_q[:, own_rows] = torch.bmm(ds, some_k)
            if J == N:
                torch.bmm(weights.mT, some_grad, out=on_v)
                torch.bmm(ds.mT, some_q, out=on_k)
            else:
                on_v[:, :J] += torch.bmm(weights.mT, some_grad)
                on_k[:, :J] += torch.bmm(ds.mT, some_q)
            row, columns = _first_row(ds)
            if table is not None:
                part = _by_distance(ds).view(-1, H, R - 1, J).sum(dim=(0, 2))
                part[:, columns] += row.view(-1, H, step.first + 1).sum(dim=0)
                dt[:, N - J : N] += part / scale
            if a is not None:
                by_distance, on_p, some_p = _by_distance(ds), dp[texts].flatten(0, 1), all_p[:, own_rows]
                on_p[:, step.first + 1 : J] = torch.bmm(by_distance, a[:M, N - J :])
                on_p[:, step.first : step.first + 1] = torch.bmm(row, a[:M, N - J :][:, columns])
                part = by_distance.mT @ some_p[:, 1:]
                part[:, columns] += row.mT @ some_p[:, :1]
                give(da, first, summed(part.view(-1, H, J, p.shape[-1]), da))
            for keys, z in zip(steps, met[: number + 1], strict=False):
                pairs, some = _by_keys(z, step.first - keys.first, R), ds[:, :, keys.first : keys.stop]
                if keys is step:  # hidden pairs of its first row lie where others are
                    pairs[:, 1:] = some[:, 1:]
                    z[:, 0, 0] = some[:, 0, 0]
                else:
                    pairs.copy_(some)
        for step, z in zip(steps, met, strict=False):
            assert rising is not None
            wide, keys_of = z.shape[2], slice(step.first, step.stop)
            on_k[:, keys_of] += torch.bmm(z, rising[:M, :wide])
            part = z.mT @ all_k[:, keys_of]
            give(db, far - wide + 1, summed(part.view(-1, H, wide, D), db).flip(1))
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
