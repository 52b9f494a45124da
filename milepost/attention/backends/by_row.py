"""by_row: a bias that is not a function of i - j alone, made for a strip of rows at a time as a function of row and
distance. For CPUs.

An encoding that has a quick way to such a strip says so by `Encoding.bias_by_row`. With a column for each distance, the
strip is the mask of `bands`, seen with a row stride one shorter; it is made again in the backward pass.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from milepost.attention.backends.bands import bands
from milepost.attention.backends.toeplitz import fold
from milepost.attention.blocks import Block, assemble
from milepost.attention.call import Call
from milepost.attention.kernel import fused
from milepost.encoding import Encoding, has_quick, parts_of

ROWS = 256
"""Rows in a strip."""
HELD = 1 << 21
"""Numbers of a strip that are held at a time: of as many heads as fit."""


def obstacle(call: Call) -> str | None:
    """Why this backend can't do it, or None."""
    enc, width, value_width = call.enc, call.q.shape[-1], call.v.shape[-1]
    if call.q.device.type != "cpu":
        return f"it drives the CPU's flash kernel, and q is on {call.q.device.type}"
    if torch.compiler.is_compiling():
        return "where its pieces begin depends on numbers, which a compiled graph does not look at"
    if "bias" not in enc.points or enc.content_dependent:
        return "it is for an encoding that has a bias, and no part that depends on content"
    slow = [p for p in parts_of(enc) if not p.toeplitz and not has_quick(p, "bias_by_row", "bias")]
    if slow:
        return f"{slow[0]!r} has no quick way to the bias of a strip of rows"
    if width != value_width:
        return f"the flash kernel wants values as wide as keys, got {value_width} and {width}"
    if call.at.remapped or call.to.remapped:
        return "the encoding is told other positions than the index"
    blocks = call.blocks
    return blocks if isinstance(blocks, str) else None


def run(call: Call) -> Tensor:
    """The output, B H I D."""
    blocks = call.blocks
    assert not isinstance(blocks, str)
    pieces: list[tuple[Block, Tensor]] = []
    for block in blocks:
        for a in range(0, block.shape[0], ROWS):
            strip = block.cut(a, min(a + ROWS, block.shape[0]), call.causal, call.at.window)
            if call.learning:
                done = checkpoint(_strip, call, strip, use_reentrant=False, preserve_rng_state=False)
            else:
                done = _strip(call, strip)
            pieces.append((strip, done))
    return assemble(call.q, call.v.shape[-1], pieces)


def _strip(call: Call, strip: Block) -> Tensor:
    (I, J), ahead, group, window = strip.shape, strip.ahead, call.group, call.at.window or 0
    q, k, v = strip.queries(call.q), strip.keys(call.k), strip.keys(call.v)
    at = strip.layouts(call.at, call.to)[0]
    if J == 0:
        return torch.zeros_like(q)
    h = call.head_numbers()
    far, near = ahead + I - 1, 0 if call.causal else ahead - J + 1
    if window:
        far, near = min(far, window - 1), max(near, 1 - window)
    i, distance = at.index[0], torch.arange(far, near - 1, -1, device=q.device)
    if I == 1 and not call.learning:
        row = call.enc.bias(h[:, None], i, i - ahead + torch.arange(J, device=q.device))
        mask = row.to(call.work_dtype).expand(q.shape[1], J).reshape(1, k.shape[1], group, J)
        return fused(fold(q, k), k, v, mask=mask, scale=call.scale).reshape(q.shape)
    step = max(1, HELD // max(1, I * len(distance)))
    outs = []
    for r in range(group):
        own, shared = h[r::group], []
        for a in range(0, len(own), step):
            heads = slice(a, a + step)
            table = _bias(call.enc, own[heads], i, distance).to(call.work_dtype)
            given = q[:, r::group][:, heads]
            how = (call.scale, ahead, call.causal, window, far, len(distance), False, False)
            shared.append(bands(given, given, k[:, heads], v[:, heads], None, None, table, *how)[0])
        outs.append(torch.cat(shared, dim=1))
    return outs[0] if group == 1 else torch.stack(outs, dim=2).flatten(1, 2)


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
