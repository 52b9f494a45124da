"""bands: attention whose score meets the distance with content, as two operators that compilers see whole.

    logits[i, j] = scale (q_i · k_j + p_i · a[d] + k_j · b[d]) + t(d),      d = ahead + i - j

`a` and `b` hold vectors by falling distance, from d = far down: n of them. Distances past either end are scored alike.

A strip of rows is one call of the flash kernel. Its mask is one product, X = p a^T, with a column for each distance
that the strip meets; seen with a row stride one shorter, X is the mask itself, since row r meets distance d at key
r - d. Distances that are hidden are columns of -inf. The term of the keys is made alike and added.

Where distances past the ends are all alike (``apart``), only the band between them needs a mask. For a key past an end,
p · a[end] is one number for a whole row, which is added to the log-sum-exp, and k · b[end] is met by q + b[end]. So
keys that are past an end for all rows of a strip go through the kernel without a mask, and are merged; the backward
pass takes all of them at once, by the kernel's own causal flag. Where keys have a term, the forward pass reverses the
rows of a strip: the vectors that neighbouring keys meet are then a view, as the mask is.

The mass is what the weights put on each of the n distances: Shaw's value term is its product with vectors of values.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from milepost.attention.kernel import flash, flash_backward, gradients_of, merge, merged, rows

STRIP = 512
"""Rows in a strip."""
NARROW = 128
"""Rows in a strip in the backward pass; keys past the ends that are worth a call of their own."""
TOGETHER = 1024
"""Rows for which keys past an end are met at once."""
ACROSS = 4096
"""Keys that a mask is made for at a time, so that it stays in the processor's cache: parts are merged."""
SEGMENT = 64
"""Keys that meet their distances together."""
HELD = 1 << 21
"""Numbers of a mask that are held at a time: a few heads of a strip, so that they stay in the processor's cache."""
HIDDEN = float("-inf")


class Strip(NamedTuple):
    """Rows ``first .. stop-1`` with keys ``low .. high-1``; columns ``begin .. end-1`` of its mask are distances that
    are seen, the first of them number ``start`` of the n.
    """

    first: int
    stop: int
    low: int
    high: int
    begin: int
    end: int
    start: int

    @property
    def wide(self) -> int:
        """Columns of its mask, one for each distance."""
        return self.stop - self.first + self.high - self.low - 1


class BandShape(NamedTuple):
    """What a call is about, apart from its numbers; ``nearest`` to ``farthest`` are the distances that need a mask, and
    ``least`` to ``most`` those that it shows.
    """

    queries: int
    keys: int
    ahead: int
    far: int
    nearest: int
    farthest: int
    least: int
    most: int

    def strips(self, height: int) -> Iterator[Strip]:
        """Strips of rows that see at least one key each, with the keys for which one of them needs a mask."""
        ahead, stop = self.ahead, min(self.queries, self.keys + self.most - self.ahead)
        for a in range(max(0, self.least - ahead), stop, height):
            e = min(a + height, stop)
            low = min(self.keys, max(0, ahead + a - self.farthest))
            yield self.strip(a, e, low, max(low, min(self.keys, ahead + e - self.nearest)))

    def strip(self, first: int, stop: int, low: int, high: int) -> Strip:
        """Rows with some keys."""
        top = self.ahead + stop - 1 - low  # the distance of column 0
        begin, end = max(0, top - self.most), min(stop - first + high - low - 1, top - self.least + 1)
        return Strip(first, stop, low, high, begin, end, self.far - (top - begin))

    def parts(self, s: Strip, most_keys: int) -> list[Strip]:
        """A strip cut into parts of about so many keys, each of which every row sees a key of; else the strip whole."""
        last = min(s.high - 1, self.ahead + s.first - self.least)  # the last key that all rows see
        if self.most < self.ahead + s.stop - 1 - s.low or last - s.low < most_keys:
            return [s]
        edges = [*range(s.low, last + 1, most_keys), s.high]
        return [self.strip(s.first, s.stop, low, high) for low, high in pairwise(edges)]


def shape_of(
    queries: int, keys: int, ahead: int, causal: bool, window: int, far: int, count: int, apart: bool, corners: bool
) -> BandShape:
    """With ``corners``, a strip's mask shows distances past an end where it meets them."""
    least, most = (0 if causal else ahead - keys + 1), ahead + queries - 1
    if window:
        least, most = max(least, 1 - window), min(most, window - 1)
    nearest, farthest = least, most
    if apart:
        nearest, farthest = max(nearest, far - count + 2), min(farthest, far - 1)
    if not corners:
        least, most = nearest, farthest
    return BandShape(queries, keys, ahead, far, nearest, farthest, least, most)


def _height(shape: BandShape, apart: bool) -> int:
    """Rows of a strip in the forward pass: few where the band is narrow, since a strip is as wide as both together."""
    if apart and shape.farthest - shape.nearest < 2 * NARROW:
        return NARROW
    return max(1, STRIP // 2) if apart else STRIP


class Room:
    """Memory that one strip after another is written into: fresh pages take longer to come than the numbers."""

    def __init__(self, dtype: torch.dtype, device: torch.device):
        self.flat = torch.empty(0, dtype=dtype, device=device)

    def of(self, *shape: int) -> Tensor:
        """A contiguous tensor of that shape; what it was last time is overwritten."""
        numbers = math.prod(shape)
        if numbers > self.flat.numel():  # strips of a text become longer: twice the room is there for the next ones
            self.flat = self.flat.new_empty(max(numbers, 2 * self.flat.numel()))
        return self.flat[:numbers].view(shape)


def groups(batch: int, heads: int, numbers: int, held: int | None = None) -> Iterator[tuple[slice, slice]]:
    """Rows of the batch and heads that are done together, where one of them holds so many numbers, and all may hold
    ``held`` (`HELD` if it is left out).
    """
    many = max(1, (held or HELD) // max(1, numbers))
    some, step = max(1, min(batch, many)), max(1, many // max(1, batch))
    for b in range(0, batch, some):
        for h in range(0, heads, step):
            yield slice(b, b + some), slice(h, h + step)


def of_heads(t: Tensor, heads: slice) -> Tensor:
    return t if t.shape[0] == 1 else t[heads]


def _numbers(s: Strip, count: int, device: torch.device) -> Tensor:
    """Which of the n vectors each distance of a strip has; those past an end have the end's."""
    return torch.arange(s.start, s.start + s.end - s.begin, device=device).clamp(0, count - 1)


def _extended(t: Tensor | None, reach: int) -> Tensor | None:
    """Vectors (H n D) with ``reach`` more past each end, which are the end's."""
    if t is None or reach == 0:
        return t
    return torch.cat([t[:, :1].expand(-1, reach, -1), t, t[:, -1:].expand(-1, reach, -1)], dim=1)


def between(t: Tensor, start: int, count: int) -> Tensor:
    """Vectors ``start .. start+count-1`` of (H n D); those past an end are the end's."""
    if start >= 0 and start + count <= t.shape[1]:
        return t[:, start : start + count]
    return t[:, torch.arange(start, start + count, device=t.device).clamp(0, t.shape[1] - 1)]


def give(t: Tensor, start: int, part: Tensor) -> None:
    """Add ``part`` (H count ...) where `between` took it."""
    count = part.shape[1]
    if start >= 0 and start + count <= t.shape[1]:
        t[:, start : start + count] += part
    else:
        t.index_add_(1, torch.arange(start, start + count, device=t.device).clamp(0, t.shape[1] - 1), part)


def skewed(x: Tensor, keys: int) -> Tensor:
    """Columns by distance (B H R wide) as pairs (B H R keys): a view, ``[r, c] = x[r, c - r + R - 1]``."""
    R, wide = x.shape[-2:]
    return x.as_strided(
        (*x.shape[:2], R, keys), (x.stride(0), x.stride(1), wide - 1 if R > 1 else wide, 1), x.storage_offset() + R - 1
    )


def summed(t: Tensor, like: Tensor) -> Tensor:
    """Gradients (B H ...) summed over the batch, and over heads where they share one table."""
    return t.sum(dim=(0, 1))[None] if like.shape[0] == 1 else t.sum(dim=0)


def _of_rows(table: Tensor, s: Strip) -> Tensor:
    """What a table says of a strip's distances: (H 1|R distances), the same for all rows, or row by row."""
    some = table[:, None] if table.dim() == 2 else table[:, s.first : s.stop]
    return some[..., s.start : s.start + s.end - s.begin]


def _mask(x: Tensor, s: Strip, p: Tensor, a: Tensor | None, table: Tensor | None, reach: int = 0) -> Tensor:
    """What is added to the logits of a strip, written into x (B H R wide): the view B H R keys. ``a`` begins with
    ``reach`` vectors past the end.
    """
    seen = x[..., s.begin : s.end]
    x[..., : s.begin] = HIDDEN
    x[..., s.end :] = HIDDEN
    if a is not None:
        torch.matmul(p, between(a, s.start + reach, s.end - s.begin).transpose(-1, -2), out=seen)
        if table is not None:
            seen.add_(_of_rows(table, s))
    elif table is not None:
        seen.copy_(_of_rows(table, s))
    else:
        seen.zero_()
    return skewed(x, s.high - s.low)


class _Met:
    """The vectors that the keys of a strip meet, by segments of keys; strips that lie alike meet the same."""

    def __init__(self, b: Tensor, shape: BandShape, alike: bool):
        self.b, self.shape, self.alike = b, shape, alike
        self.last: dict[tuple[int, ...], Tensor] = {}

    def segments(self, s: Strip) -> Iterator[tuple[slice, int, Tensor]]:
        """A strip's keys in segments of one size: which, how large, and the distances that each segment meets
        (segments, R + size - 1) as numbers of the n vectors, the nearest last.
        """
        whole, device = (s.high - s.low) // SEGMENT * SEGMENT, self.b.device
        for first, stop in ((s.low, s.low + whole), (s.low + whole, s.high)):
            if stop > first:
                size = min(SEGMENT, stop - first)
                nearest = self.shape.ahead + s.first - torch.arange(first, stop, size, device=device) - (size - 1)
                distance = nearest[:, None] + torch.arange(s.stop - s.first + size - 1, device=device)
                yield slice(first, stop), size, (self.shape.far - distance).clamp(0, self.b.shape[1] - 1)

    def vectors(self, s: Strip, heads: slice) -> Iterator[tuple[slice, int, Tensor, Tensor]]:
        """The same with the vectors themselves (H|1 segments R+size-1 D)."""
        for keys, size, numbers in self.segments(s):
            if not self.alike:
                yield keys, size, numbers, of_heads(self.b, heads)[:, numbers]
                continue
            lies = (s.stop - s.first, s.first - keys.start, keys.stop - keys.start)
            if lies not in self.last:
                self.last = {**({} if len(self.last) > 1 else self.last), lies: self.b[:, numbers]}
            yield keys, size, numbers, of_heads(self.last[lies], heads)


def _by_key(z: Tensor, rows_: int, size: int) -> Tensor:
    """Columns by rising distance of each key (B H segments size R+size-1) as pairs (B H R segments size): a view."""
    wide = z.shape[-1]
    return z.as_strided(
        (*z.shape[:2], rows_, z.shape[2], size),
        (z.stride(0), z.stride(1), 1, size * wide, wide - 1 if size > 1 else 1),
        z.storage_offset() + size - 1,
    )


def _cut(t: Tensor, dim: int, size: int) -> Tensor:
    """One dimension as segments of one size: a view."""
    return t.unfold(dim, size, size).movedim(-1, dim + 1)


def _add_keys(mask: Tensor, s: Strip, k: Tensor, met: _Met, heads: slice, room: Room) -> None:
    """Add k_j · b[d] to the mask of a strip."""
    for keys, size, _, vectors in met.vectors(s, heads):
        some = _cut(k[:, :, keys], 2, size)
        z = room.of(*some.shape[:4], vectors.shape[2])  # B H segments size R+size-1
        torch.matmul(some, vectors.transpose(-1, -2), out=z)
        part = _cut(mask[..., keys.start - s.low : keys.stop - s.low], 3, size)
        part.add_(_by_key(z, mask.shape[2], size))


def _leaning(x: Tensor, keys: int) -> Tensor:
    """`skewed` of reversed rows: a view, ``[r, c] = x[r, c + r]``."""
    return x.as_strided((*x.shape[:3], keys), (x.stride(0), x.stride(1), x.shape[-1] + 1, 1), x.storage_offset())


def _add_keys_reversed(mask: Tensor, s: Strip, k: Tensor, b: Tensor, start: int, room: Room) -> None:
    """Add k_j · b[d] to the mask of a strip whose rows are reversed. b (H n D) holds all distances of the strip: number
    ``start`` is that of its last row and its first key.
    """
    B, H, rows_ = mask.shape[:3]
    whole = (s.high - s.low) // SEGMENT * SEGMENT
    for first, stop in ((0, whole), (whole, s.high - s.low)):
        if stop == first:
            continue
        size, keys = min(SEGMENT, stop - first), slice(s.low + first, s.low + stop)
        many, wide, D = (stop - first) // size, rows_ + size - 1, b.shape[-1]
        offset = b.storage_offset() + (start + first) * D
        met = b.as_strided((len(b), many, wide, D), (b.stride(0), size * D, D, 1), offset)
        z = room.of(B, H, many, size, wide)
        torch.matmul(_cut(k[:, :, keys], 2, size), met.transpose(-1, -2), out=z)
        strides = (z.stride(0), z.stride(1), 1, size * wide, wide + 1)
        _cut(mask[..., first:stop], 3, size).add_(z.as_strided((B, H, rows_, many, size), strides))


def _past(strips: list[Strip], keys: int, causal: bool, height: int) -> Iterator[tuple[slice, slice, bool]]:
    """Rows with the keys past an end that no strip of theirs has in its mask, and whether that is the left end: first
    those of many rows together, for which the kernel is quickest, then those of a strip.
    """
    many = max(1, TOGETHER // height)
    for n in range(0, len(strips), many):
        some = strips[n : n + many]
        low, high = some[0].low, keys if causal else some[-1].high
        parts = [(slice(some[0].first, some[-1].stop), slice(0, low), slice(high, keys))]
        parts += [(slice(s.first, s.stop), slice(low, s.low), slice(high if causal else s.high, high)) for s in some]
        for these, left, right in parts:
            if left.stop > left.start:
                yield these, left, True
            if right.stop > right.start:
                yield these, right, False


class Side(NamedTuple):
    """Keys past one end: rows ``first ..``, of which row r sees keys up to r + ``reach``, counted from that end."""

    right: bool
    first: int
    reach: int
    vector: int

    def given(self, *tensors: Tensor) -> list[Tensor]:
        """As they are, or from the other end."""
        return [t.flip(2) for t in tensors] if self.right else list(tensors)


def _sides(shape: BandShape, causal: bool, count: int, apart: bool) -> list[Side]:
    """The far keys: to the left of each row, and to its right where that is seen."""
    if not apart:
        return []
    I, J, ahead, nearest = shape.queries, shape.keys, shape.ahead, shape.far - count + 1
    sides = [Side(False, max(0, shape.far - ahead), ahead - shape.far, 0)]
    if not causal:
        reach = J - I - ahead + nearest
        sides.append(Side(True, max(0, -reach), reach, count - 1))
    return [side for side in sides if side.first < I and J > 0]


def _calls(side: Side, queries: int, keys: int) -> Iterator[tuple[slice, bool]]:
    """The calls of the kernel for the rows of one side: which keys, and whether by the causal flag."""
    whole = min(keys, max(0, side.reach))
    if whole:
        yield slice(0, whole), False
    if whole < keys:
        yield slice(whole, min(keys, whole + queries)), True


def far_keys(side: Side, q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp of one side: its rows of q, over its keys."""
    q, k, v = side.given(q, k, v)
    calls = _calls(side, q.shape[2], k.shape[2])
    parts = [flash(q, k[:, :, keys], v[:, :, keys], scale=scale, causal=causal) for keys, causal in calls]
    out, lse = side.given(*(parts[0] if len(parts) == 1 else merged(*parts[0], *parts[1])))
    return out, lse


def _rows_of(side: Side, queries: int) -> slice:
    return slice(0, queries - side.first) if side.right else slice(side.first, queries)


@torch.library.custom_op("milepost::bands", mutates_args=())
def bands(
    q: Tensor, p: Tensor, k: Tensor, v: Tensor, a: Tensor | None, b: Tensor | None, table: Tensor | None,
    scale: float, ahead: int, causal: bool, window: int, far: int, count: int, apart: bool, weigh: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Output (B H I D), log-sum-exp (B H I) and the mass by distance (B H I n; empty unless ``weigh``) for q, p (B H I
    D), k, v (B H J D), a and b (H|1 n D), and a table (H n, or H I n where each row has its own).
    """
    work = torch.promote_types(q.dtype, torch.float32)
    k, v = rows(k), rows(v)
    (B, H, I, D), J = q.shape, k.shape[2]
    ends, room, room_of_keys = b, Room(work, q.device), Room(work, q.device)
    a, b = None if a is None else a.to(work), None if b is None else b.to(work) * scale
    shape = shape_of(I, J, ahead, causal, window, far, count, apart, True)
    height, held = _height(shape, apart), HELD // 4 if apart else HELD
    reach = height + max(0, shape.farthest - far, far - count + 1 - shape.nearest)  # distances past the ends
    wide_a, wide_b = (_extended(t, reach if apart or b is not None else 0) for t in (a, b))
    lean = skewed if b is None else _leaning
    out = torch.zeros(B, H, I, D, dtype=q.dtype, device=q.device)
    lse = torch.full((B, H, I), HIDDEN, dtype=work, device=q.device)
    mass = torch.zeros((B, H, I, count) if weigh else 0, dtype=work, device=q.device)
    across = J if weigh else ACROSS  # the mass is that of whole rows
    whole_and_parts = ((strip, shape.parts(strip, max(1, across))) for strip in shape.strips(height))
    for whole, s in ((strip, part) for strip, parts in whole_and_parts for part in parts):
        R, seen, these = s.stop - s.first, slice(s.low, s.high), slice(s.first, s.stop)
        for rows_, heads in groups(B, H, R * s.wide, held) if s.high > s.low else ():
            some_q, some_k, some_v = q[rows_, heads, these], k[rows_, heads, seen], v[rows_, heads, seen]
            x, scaled = room.of(*some_q.shape[:3], s.wide), p[rows_, heads, these].to(work) * scale
            one = None if wide_a is None else of_heads(wide_a, heads)
            added = None if table is None else table[heads]
            if wide_b is None:
                mask = _mask(x, s, scaled, one, added, reach if apart else 0)
            else:
                some_q = some_q.flip(2)
                _mask(x, s, scaled.flip(2), one, added, reach)
                mask = lean(x, s.high - s.low)
                start = s.start - s.begin + reach
                _add_keys_reversed(mask, s, k[rows_, heads].to(work), of_heads(wide_b, heads), start, room_of_keys)
            if weigh:
                logits = torch.add(mask, some_q.to(work) @ some_k.to(work).transpose(-1, -2), alpha=scale)
                weight = torch.logsumexp(logits, dim=-1)
                weights = logits.sub_(weight[..., None]).exp_()
                done = (weights @ some_v.to(work)).to(q.dtype)
                lean(x.zero_(), s.high - s.low).copy_(weights)
                by_distance = x if wide_b is None else x.flip(2)
                mass[rows_, heads, these].index_add_(
                    -1, _numbers(s, count, q.device), by_distance[..., s.begin : s.end]
                )
            else:
                done, weight = flash(some_q, some_k, some_v, mask=mask, scale=scale)
            if wide_b is not None:
                done, weight = done.flip(2), weight.flip(2)
            if s.low == whole.low:
                out[rows_, heads, these], lse[rows_, heads, these] = done, weight.to(work)
            else:
                merge(out[rows_, heads, these], lse[rows_, heads, these], done, weight)
    band_lse, beside = lse.clone() if weigh else lse, []
    for these, keys, left in _past(list(shape.strips(height)), J, causal, height) if apart else ():
        number = 0 if left else count - 1
        shifted = q[:, :, these] if ends is None else q[:, :, these] + ends[:, number, None].to(q.dtype)
        more, weight = flash(shifted, k[:, :, keys], v[:, :, keys], scale=scale)
        weight = weight.to(work)
        if a is not None:
            weight = weight + (p[:, :, these].to(work) @ a[:, number, :, None])[..., 0] * scale
        merge(out[:, :, these], lse[:, :, these], more, weight)
        if weigh:
            beside.append((these, number, weight))
    if beside:
        mass *= torch.where(lse.isneginf(), 0.0, (band_lse - lse).exp())[..., None]
    for these, number, weight in beside:
        mass[:, :, these, number] += (weight - lse[:, :, these]).exp()
    return out, lse, mass


@bands.register_fake
def _(
    q: Tensor, p: Tensor, k: Tensor, v: Tensor, a: Tensor | None, b: Tensor | None, table: Tensor | None,
    scale: float, ahead: int, causal: bool, window: int, far: int, count: int, apart: bool, weigh: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    work = torch.promote_types(q.dtype, torch.float32)
    return (
        torch.empty(q.shape, dtype=q.dtype, device=q.device),
        torch.empty(q.shape[:3], dtype=work, device=q.device),
        torch.empty((*q.shape[:3], count) if weigh else (0,), dtype=work, device=q.device),
    )


@torch.library.custom_op("milepost::bands_backward", mutates_args=())
def bands_backward(
    grad: Tensor, grad_mass: Tensor | None, q: Tensor, p: Tensor, k: Tensor, v: Tensor,
    a: Tensor | None, b: Tensor | None, table: Tensor | None, out: Tensor, lse: Tensor, mass: Tensor,
    scale: float, ahead: int, causal: bool, window: int, far: int, count: int, apart: bool, weigh: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients to q, p, k, v, a, b and the table (empty for those that are None), in the precision of the work."""
    work = lse.dtype
    (B, H, I), J = q.shape[:3], k.shape[2]
    q, p, k, v, grad, out = (t.to(work) for t in (q, p, k, v, grad, out))
    k, v = rows(k), rows(v)
    ends = b
    a, b = (None if t is None else t.to(work) * scale for t in (a, b))
    shape = shape_of(I, J, ahead, causal, window, far, count, apart, False)
    met = None if b is None else _Met(b, shape, apart)
    dq, dp, dk, dv = (torch.zeros(t.shape, dtype=work, device=t.device) for t in (q, p, k, v))
    da, db, dt = (torch.zeros(0 if t is None else t.shape, dtype=work, device=q.device) for t in (a, b, table))
    delta = (grad * out).sum(-1)
    if grad_mass is not None:
        delta += (grad_mass * mass).sum(-1)
    total = torch.zeros_like(delta)  # of dS over the band, row by row
    room, room_of_keys = Room(work, q.device), Room(work, q.device)
    for s in shape.strips(NARROW):
        R, seen, these = s.stop - s.first, slice(s.low, s.high), slice(s.first, s.stop)
        for rows_, heads in groups(B, H, R * s.wide):
            some_q, some_p, some_grad = (t[rows_, heads, these] for t in (q, p, grad))
            some_k, some_v = k[rows_, heads, seen], v[rows_, heads, seen]
            x = room.of(*some_q.shape[:3], s.wide)
            one = None if a is None else of_heads(a, heads)
            weights = _mask(x, s, some_p, one, None if table is None else table[heads])
            if met is not None:
                _add_keys(weights, s, k[rows_, heads], met, heads, room_of_keys)
            weights = weights.sub(lse[rows_, heads, these, None])
            weights.add_(some_q @ some_k.transpose(-1, -2), alpha=scale).exp_()
            dv[rows_, heads, seen] += weights.transpose(-1, -2) @ some_grad
            ds = some_grad @ some_v.transpose(-1, -2)
            if grad_mass is not None:
                x[..., s.begin : s.end] = grad_mass[rows_, heads, these][..., _numbers(s, count, q.device)]
                x[..., : s.begin] = x[..., s.end :] = 0
                ds += skewed(x, s.high - s.low)
            ds.sub_(delta[rows_, heads, these, None]).mul_(weights)
            dq[rows_, heads, these] = (ds @ some_k).mul_(scale)
            dk[rows_, heads, seen] += (ds.transpose(-1, -2) @ some_q).mul_(scale)
            if apart:
                total[rows_, heads, these] = ds.sum(-1)
            if one is not None or table is not None:
                skewed(x.zero_(), s.high - s.low).copy_(ds)
                by_distance = x[..., s.begin : s.end]
                if one is not None:
                    dp[rows_, heads, these] = by_distance @ between(one, s.start, s.end - s.begin)
                    part = by_distance.transpose(-1, -2) @ some_p
                    give(of_heads(da, heads), s.start, summed(part, da).mul_(scale))
                if table is not None:
                    part = by_distance.sum(dim=0)
                    _of_rows(dt[heads], s).add_(part.sum(dim=1, keepdim=True) if table.dim() == 2 else part)
            if met is not None:
                _give_keys(ds, s, k[rows_, heads], met, heads, dk[rows_, heads], of_heads(db, heads), scale)
    sides = _sides(shape, causal, count, apart)
    for side in sides:
        these = _rows_of(side, I)
        some_p, some_grad = p[:, :, these], grad[:, :, these]
        level = 0.0 if a is None else (some_p @ a[:, side.vector, :, None])[..., 0]
        extra: Tensor | None = None
        if grad_mass is not None:
            extra = grad_mass[:, :, these, side.vector] - (grad_mass * mass).sum(-1)[:, :, these]
        shifted = q[:, :, these] if ends is None else q[:, :, these] + ends[:, side.vector, None].to(work)
        results = out[:, :, these], lse[:, :, these] - level
        leveled = a is not None and len(sides) == 2
        parts = far_keys_backward(side, some_grad, shifted, k, v, *results, extra, scale, leveled)
        dq[:, :, these] += parts[0]
        dk += parts[1]
        dv += parts[2]
        if b is not None:
            db[:, side.vector] += summed(parts[0].sum(2), db)
        if a is not None:
            on_level = parts[3] if leveled else -total[:, :, these]  # all of dS adds up to nothing in a row
            dp[:, :, these] += on_level[..., None] * a[:, side.vector, None]
            da[:, side.vector] += summed((on_level[..., None] * some_p).sum(2), da) * scale
    return dq, dp, dk, dv, da, db, dt


def _give_keys(ds: Tensor, s: Strip, k: Tensor, met: _Met, heads: slice, dk: Tensor, db: Tensor, scale: float) -> None:
    """Add to dk and db what dS gives them through k_j · b[d]."""
    for keys, size, numbers, vectors in met.vectors(s, heads):
        some = _cut(k[:, :, keys], 2, size)
        z = torch.zeros(*some.shape[:4], numbers.shape[1], dtype=ds.dtype, device=ds.device)
        _by_key(z, ds.shape[2], size).copy_(_cut(ds[..., keys.start - s.low : keys.stop - s.low], 3, size))
        dk[:, :, keys] += (z @ vectors).flatten(2, 3)
        part = summed(z.transpose(-1, -2) @ some, db).flatten(1, 2)
        db.index_add_(1, numbers.flatten(), part.mul_(scale))


def far_keys_backward(
    side: Side, grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, extra: Tensor | None,
    scale: float, level: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients to q, k and v through the far keys of one side; ``extra`` is added to the gradient of each weight of a
    row, by one more channel (values 1 there, queries and keys 0; eight of them keep rows aligned). With ``level`` also
    the gradient to a number that is added to all these logits of a row: that of a channel of q in which keys are 1.
    """
    D = q.shape[-1]
    if extra is not None or level:
        q, k, v, out, grad = (F.pad(t, (0, 8)) for t in (q, k, v, out, grad))
        k[..., D] = 1.0
    if extra is not None:
        v[..., D], grad[..., D] = 1.0, extra
    grad, q, k, v, out, lse = side.given(grad, q, k, v, out, lse)
    dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for keys, causal in _calls(side, q.shape[2], k.shape[2]):
        parts = flash_backward(grad, q, k[:, :, keys], v[:, :, keys], out, lse, scale=scale, causal=causal)
        dq += parts[0]
        dk[:, :, keys] += parts[1]
        dv[:, :, keys] += parts[2]
    on_level = dq[..., D] / scale if level else dq[..., 0]
    dq, dk, dv, on_level = side.given(dq[..., :D], dk[..., :D], dv[..., :D], on_level)
    return dq, dk, dv, on_level


@bands_backward.register_fake
def _(
    grad: Tensor, grad_mass: Tensor | None, q: Tensor, p: Tensor, k: Tensor, v: Tensor,
    a: Tensor | None, b: Tensor | None, table: Tensor | None, out: Tensor, lse: Tensor, mass: Tensor,
    scale: float, ahead: int, causal: bool, window: int, far: int, count: int, apart: bool, weigh: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    like = [lse.new_empty(0 if t is None else t.shape) for t in (q, p, k, v, a, b, table)]
    return like[0], like[1], like[2], like[3], like[4], like[5], like[6]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.scale, ctx.ahead, ctx.causal, ctx.window, ctx.far, ctx.count, ctx.apart, ctx.weigh = inputs
    ctx.save_for_backward(*tensors, *output)
    ctx.set_materialize_grads(False)


def _backward(
    ctx: Any, grad: Tensor | None, grad_lse: Tensor | None, grad_mass: Tensor | None
) -> tuple[Tensor | None, ...]:
    if grad_lse is not None:
        raise ValueError("the log-sum-exp of bands() is for merging, and has no gradient")
    if grad is None and grad_mass is None:
        return (None,) * 15
    saved: Any = ctx.saved_tensors  # once: a checkpoint gives them once
    given, results = saved[:7], saved[7:]
    how = (ctx.scale, ctx.ahead, ctx.causal, ctx.window, ctx.far, ctx.count, ctx.apart, ctx.weigh)
    if grad is None:
        grad = torch.zeros_like(results[0])
    if torch.is_grad_enabled():  # a gradient of the gradient is asked for: by the definition
        given = tuple(None if t is None else t.view_as(t) for t in given)  # q and p may be one tensor
        arguments: Any = (*given, *how)
        out, mass = dense(*arguments)
        if grad_mass is not None:
            out = torch.cat([out, mass.to(out.dtype)], dim=-1)
            grad = torch.cat([grad, grad_mass.to(grad.dtype)], dim=-1)
        wanted = list(ctx.needs_input_grad[:7])
        wanted[1] &= given[4] is not None  # p meets nothing but a
        return *gradients_of(out, given, wanted, grad), *(None,) * 8
    grads = torch.ops.milepost.bands_backward(grad.contiguous(), grad_mass, *given, *results, *how)
    parts = tuple(None if t is None else g.to(t.dtype) for t, g in zip(given, grads, strict=True))
    return *parts, *(None,) * 8


def dense(
    q: Tensor, p: Tensor, k: Tensor, v: Tensor, a: Tensor | None, b: Tensor | None, table: Tensor | None,
    scale: float, ahead: int, causal: bool, window: int, far: int, count: int, apart: bool, weigh: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output and mass by the definition (O(I J) memory): for gradients of gradients, which no kernel has."""
    (I, J), dtype, work = (q.shape[2], k.shape[2]), q.dtype, torch.promote_types(q.dtype, torch.float32)
    q, p, k, v = (t.to(work) for t in (q, p, k, v))
    distance = ahead + torch.arange(I, device=q.device)[:, None] - torch.arange(J, device=q.device)
    number = (far - distance).clamp(0, count - 1).expand(*q.shape[:2], I, J)
    logits = q @ k.transpose(-1, -2)
    if a is not None:
        logits = logits + (p @ a.to(work).transpose(-1, -2)).gather(-1, number)
    if b is not None:
        logits = logits + (k @ b.to(work).transpose(-1, -2)).gather(-1, number.mT).mT
    logits = logits * scale
    if table is not None:
        own = table.to(work)[:, None] if table.dim() == 2 else table.to(work)
        logits = logits + own.expand(-1, I, -1).gather(-1, number[0, :1].expand(len(own), -1, -1))
    hidden = (distance < 0) & causal
    if window:
        hidden = hidden | (distance.abs() >= window)
    blind = hidden.all(dim=-1, keepdim=True)
    weights = torch.softmax(logits.masked_fill(hidden & ~blind, HIDDEN), dim=-1).masked_fill(blind, 0.0)
    mass = weights.new_zeros(*weights.shape[:3], count).scatter_add(-1, number, weights) if weigh else weights[..., :0]
    return (weights @ v).to(dtype), mass


bands.register_autograd(_backward, setup_context=_save)
