"""toeplitz: a bias of the distance alone costs I + J numbers a head and no time. For CPUs; see `strips` for how.

Also the home of attention without a bias where torch's causal flag does not fit (a text that goes on, a window): the
same path with a table of zeros.
"""

from __future__ import annotations

import torch
from torch import Tensor

from milepost.attention.backends.squares import are_short, attend_whole
from milepost.attention.backends.strips import strips
from milepost.attention.blocks import Block
from milepost.attention.call import Call
from milepost.attention.distances import falling
from milepost.attention.kernel import fused

FEWEST = 8
"""Over fewer keys than this, torch's kernel without a mask turns a NaN in a query into zeros; with a mask it passes it
on.
"""


def obstacle(call: Call) -> str | None:
    """Why this backend can't do it, or None."""
    enc = call.enc
    if call.q.device.type != "cpu":
        return f"it drives the CPU's flash kernel, and q is on {call.q.device.type}"
    if enc.content_dependent:
        return "the encoding depends on content"
    if not enc.toeplitz:
        return "its bias is not a function of i - j alone"
    return call.blocks_obstacle(places="bias" in enc.points)


def run(call: Call) -> Tensor:
    """The output, B H I D."""
    return call.by_block(_run_block)


def _run_block(call: Call, block: Block) -> Tensor:
    q, k, v, scale, causal = block.queries(call.q), block.keys(call.k), block.keys(call.v), call.scale, call.causal
    (I, J), ahead, window, group = block.shape, block.ahead, call.at.window or 0, call.group
    whole = not window and J >= FEWEST and (not causal or I == 1 or (ahead == 0 and I == J))
    if whole and "bias" not in call.enc.points:
        if I == 1 and group > 1:
            return fused(fold(q, k), k, v, scale=scale).reshape(q.shape)
        return fused(q, k, v, causal=causal, scale=scale)
    table = falling(
        call.enc, q.shape[1], call.first_head or 0, ahead + I - 1, I + J - 1,
        causal=causal, window=window, dtype=call.work_dtype, device=q.device,
    )  # fmt: skip
    if I == 1:
        mask = table.reshape(1, k.shape[1], group, J)
        return fused(fold(q, k), k, v, mask=mask, scale=scale).reshape(q.shape)
    learned = torch.is_grad_enabled() and table.requires_grad and not torch.compiler.is_compiling()
    one_text = causal and not window and I == J and ahead == 0
    short = learned and one_text and are_short(q.shape[0], q.shape[1], I)

    def some(q: Tensor, table: Tensor) -> Tensor:
        if short:
            return attend_whole(q, q, k, v, None, None, None, table, scale, I - 1)
        out: Tensor = strips(q, k, v, table, scale, ahead, causal, window)[0]
        return out

    if group == 1:
        return some(q, table)
    return torch.stack([some(q[:, r::group], table[r::group]) for r in range(group)], dim=2).flatten(1, 2)


def fold(q: Tensor, k: Tensor) -> Tensor:
    """One query of each head as a row of the key head that it shares: B G H/G D, without copying a key."""
    return q.reshape(q.shape[0], k.shape[1], -1, q.shape[-1])
