"""counted: a score that looks up a count of gates (CoPE) is made for the keys near each query alone. For CPUs.

An encoding whose score has that form says so by `Encoding.counted`; see `counts` for how it is done. A bias of the
distance that is added to it is a table; then every pair is looked up, since far keys are not alike any more.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from milepost.attention.backends.counts import SPARE, counts
from milepost.attention.backends.toeplitz import fold
from milepost.attention.blocks import Block
from milepost.attention.call import Call
from milepost.attention.distances import falling
from milepost.attention.kernel import flash, merged
from milepost.encoding import has_quick, parts_of


def obstacle(call: Call) -> str | None:
    """Why this backend can't do it, or None."""
    enc, width, value_width = call.enc, call.q.shape[-1], call.v.shape[-1]
    if call.q.device.type != "cpu":
        return f"it drives the CPU's flash kernel, and q is on {call.q.device.type}"
    content = [part for part in parts_of(enc) if part.content_dependent]
    if len(content) != 1 or not has_quick(content[0], "counted", "rescore"):
        return "its score is not looked up by a count of gates"
    if not enc.toeplitz:
        return "its bias is not a function of i - j alone"
    if width != value_width:
        return f"the flash kernel wants values as wide as keys, got {value_width} and {width}"
    if call.at.remapped or call.to.remapped:
        return "the encoding is told other positions than the index"
    blocks = call.blocks
    if isinstance(blocks, str):
        return blocks
    if any(block.ahead + block.shape[0] > block.shape[1] for block in blocks):
        return "a query stands past the last key"
    return None


def run(call: Call) -> Tensor:
    """The output, B H I D."""
    return call.by_block(run_block)


def run_block(call: Call, block: Block) -> Tensor:
    """The output of one block, B H I D."""
    part = next(part for part in parts_of(call.enc) if part.content_dependent)
    q, k, v, e = block.queries(call.q), block.keys(call.k), block.keys(call.v), part.counted()
    ahead, window, group = block.ahead, call.at.window or 0, call.group
    assert e is not None
    table: Tensor | None = None
    if "bias" in call.enc.points:
        far = ahead + q.shape[2] - 1
        table = falling(
            call.enc, q.shape[1], call.first_head or 0, far, far + 1,
            causal=True, window=0, dtype=call.work_dtype, device=q.device,
        )  # fmt: skip
    if q.shape[2] == 1 and not call.learning and not torch.compiler.is_compiling() and table is None and not window:
        return _one_query(q, k, v, e, call.scale)
    outs = []
    for r in range(group):
        own = slice(r, None, group)
        some_e, some_table = e if e.shape[0] == 1 else e[own], None if table is None else table[own]
        outs.append(counts(q[:, own], k, v, some_e, some_table, call.scale, ahead, window)[0])
    return outs[0] if group == 1 else torch.stack(outs, dim=2).flatten(1, 2)


def _one_query(q: Tensor, k: Tensor, v: Tensor, e: Tensor, scale: float) -> Tensor:
    """One query of each head over all its keys, B H 1 D: the counts of the last keys, as a mask, and all others."""
    (B, H, _, D), (G, J), work = q.shape, k.shape[1:3], torch.promote_types(q.dtype, torch.float32)
    root, last, folded = math.sqrt(D), e.shape[1] - 1, fold(q, k)
    near = min(J, 2 * (last + 1) + SPARE)
    while True:
        s = folded.to(work) @ k[:, :, J - near :].to(work).mT
        sums = torch.sigmoid(s / root).flip(-1).cumsum(-1).flip(-1)
        if near == J or bool((sums[..., 0] > last).all()):
            break
        near = min(J, 2 * near)
    by_position = (q.to(work) @ e.to(work).mT).reshape(B, G, -1, last + 1) * (root * scale)
    count = sums.clamp(max=last)
    below = count.to(torch.int64).clamp_(max=last - 1)
    slope = by_position.diff(dim=-1).gather(-1, below)
    mask = by_position.gather(-1, below).addcmul_(count.sub_(below), slope)
    out, lse = flash(folded, k[:, :, J - near :], v[:, :, J - near :], mask=mask, scale=scale)
    if near < J:
        more, weight = flash(folded, k[:, :, : J - near], v[:, :, : J - near], scale=scale)
        out, lse = merged(out, lse, more, weight + by_position[..., -1])
    return out.reshape(B, H, 1, D)
