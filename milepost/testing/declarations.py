"""Laws of the declarations: an encoding is what it says of itself."""

from __future__ import annotations

import math

import torch

from milepost.encoding import Encoding
from milepost.layout import Layout
from milepost.positions import grid
from milepost.testing.layer import (
    TEXT,
    Broken,
    Excused,
    Layer,
    budget,
    dense,
    fitted,
    places,
    plain_at,
    same,
    starts,
    tokens_of,
)


def shift(enc: Encoding) -> None:
    """Moving all positions by a constant changes no output, exactly where shift_invariant is declared."""
    first = tokens_of(enc) // 2
    enc = plain_at(enc, first)
    if enc.axes > 1:
        _shift_by_axis(enc)
        return
    layer, worst = Layer(enc), 0.0
    for n in (first, 256, 2048):  # what is not invariant may show only where a text leaves a window
        moved = [m for m in (1, 1000, 100000, 1048575 - n) if enc.end is None or m + n <= enc.end]
        for by in moved or ([1] if n == first else []):
            x = layer.text(n)
            a, b = layer(x, Layout.dense(n)), layer(x, Layout.dense(n, start=by))
            if enc.shift_invariant:
                same(a, b, by + n, f"moved by {by}")
            worst = max(worst, (a - b).abs().max().item())
        if enc.shift_invariant or worst > 1e-6:
            return
    raise Broken(f"declared not shift-invariant, yet moving by up to 1048575 changed outputs by {worst:.1e} only")


def _shift_by_axis(enc: Encoding) -> None:
    """The same for each axis by itself, and for all of them by different numbers."""
    layer, worst = Layer(enc), 0.0
    sides = tuple(max(1, side // 2) for side in enc.sides or (6,) * enc.axes)
    pos = grid(*sides)[..., :TEXT]
    n, x = pos.shape[-1], layer.text(pos.shape[-1])
    still = layer(x, Layout.dense(n).with_positions(pos), causal=enc.causal_only)
    for axis in range(enc.axes + 1):
        for by in (
            (1, 1000, 1048575 - n)
            if enc.sides is None
            else (1, min(side - half for side, half in zip(enc.sides, sides, strict=True)))
        ):
            step = [by * (a + 1 if enc.sides is None else 1) if axis in (a, enc.axes) else 0 for a in range(enc.axes)]
            if enc.sides is not None and any(
                half - 1 + s >= side for half, s, side in zip(sides, step, enc.sides, strict=True)
            ):
                continue
            moved = layer(
                x, Layout.dense(n).with_positions(pos + torch.tensor(step)[:, None, None]), causal=enc.causal_only
            )
            if enc.shift_invariant:
                same(still, moved, enc.axes * by * enc.axes + n, f"moved by {step}")
            elif not (still - moved).abs().max() > 1e-6:
                raise Broken(f"declared not shift-invariant, yet moving by {step} changed nothing")
            worst = max(worst, float(by))
    if not worst:
        raise Excused("the grid has no room to move anything")


def toeplitz(enc: Encoding) -> None:
    """The bias is a function of i - j alone, exactly where toeplitz is declared."""
    enc = plain_at(enc, TEXT)
    if "bias" not in enc.points:
        raise Excused("there is no bias")
    h = torch.arange(enc.heads or 2)[:, None, None]
    index = places(enc, torch.arange(min(40, math.prod(enc.sides or (40,))))[None])
    i, j = index[..., 0, :, None], index[..., 0, None, :]
    near, worst = enc.bias(h, i, j), 0.0
    for by in (1, 1000, 100000, 1048575 - 40):
        far = enc.bias(h, i + by, j + by)
        seen = (i >= j) if enc.causal_only else torch.ones((), dtype=torch.bool)
        worst = max(worst, ((near - far) * seen).abs().max().item())
    if enc.toeplitz and not worst <= budget(1048575):
        raise Broken(f"declared Toeplitz, yet the bias moves by {worst:.2e} when i and j move together")
    if not enc.toeplitz and not worst > 1e-6:
        raise Broken(
            f"declared not Toeplitz, yet the bias moves by {worst:.1e} only when i and j move together by up to 1048535"
        )


def order_is_seen(enc: Encoding) -> None:
    """Telling the tokens other positions changes the output: the positions given are the ones used."""
    enc, layer, n = fitted(enc)
    if not enc.points:
        raise Excused("no position enters: this is NoPE")
    start = starts(enc, n)[min(1, len(starts(enc, n)) - 1)]
    at, x = dense(enc, n, start), layer.text(n)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(6))
    if enc.running:  # the tokens before the last one in another order: without an order it would not see that
        order = torch.cat([order[order < n - 1], order.new_tensor([n - 1])])
        change = (layer(x, at) - layer(x[:, order], at))[:, :, -1].abs().max().item()
    else:
        change = (layer(x, at) - layer(x, at.with_positions(at.pos[..., order]))).abs().max().item()
    if not change > 1e-6:
        raise Broken(f"shuffled positions change the output by {change:.1e} only")


def every_axis_is_seen(enc: Encoding) -> None:
    """Telling the tokens other positions on one axis alone changes the output, whichever axis it is."""
    if enc.axes == 1:
        raise Excused("there is one axis")
    enc, layer, n = fitted(enc)
    generator = torch.Generator().manual_seed(6)
    sides = [min(4, side) for side in enc.sides or (4,) * enc.axes]
    pos, other = (torch.stack([torch.randint(side, (1, n), generator=generator) for side in sides]) for _ in range(2))
    x, at = layer.text(n), Layout.dense(n)
    before = layer(x, at.with_positions(pos), causal=enc.causal_only)
    for axis in range(enc.axes):
        others = pos.clone()
        others[axis] = other[axis]
        change = (before - layer(x, at.with_positions(others), causal=enc.causal_only)).abs().max().item()
        if not change > 1e-6:
            raise Broken(f"other positions on axis {axis} change the output by {change:.1e} only")


def rotation(enc: Encoding) -> None:
    """A rotation keeps norms, R(a) R(b) = R(a + b), and R(0) is the identity."""
    enc = plain_at(enc, TEXT)
    if not enc.rotation:
        raise Excused("does not declare a rotation")
    x = torch.randn(
        1, enc.heads or 2, 6, enc.head_dim or 8, dtype=torch.float64, generator=torch.Generator().manual_seed(4)
    )
    a, b = torch.tensor([0, 1, 255, 257, 131071, 1048575]), torch.tensor([3, 256, 1, 131071, 4, 0])
    room = min(enc.end or 1 << 22, *(enc.sides or (1 << 22,)))
    a, b = (p % max(1, room // 2) for p in (a, b))  # where a part of a sum has an end
    if enc.axes > 1:  # other numbers on each axis, none of them larger
        a, b = (torch.stack([p.roll(axis) for axis in range(enc.axes)])[:, None] for p in (a, b))
    for name in ("query", "key", "value", "restore"):
        if name not in enc.points:
            continue
        hook = getattr(enc, name)
        same(hook(x, a).norm(dim=-1), x.norm(dim=-1), 2**20, f"norms after {name}()")
        same(hook(hook(x, a), b), hook(x, a + b), 2**21, f"{name}() twice against once at the sum")
        same(hook(x, torch.zeros_like(a)), x, 0, f"{name}() at position 0")
        if (hook(x, a)[:, :, 1] - x[:, :, 1]).abs().max() < 1e-3:
            raise Broken(f"{name}() at position 1 is the identity")
