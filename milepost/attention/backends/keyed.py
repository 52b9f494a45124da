"""keyed: gates cost what no bias costs. A gate adds a number of the query less one of the key, and a softmax does not
see what is added to a whole row:

    logits[i, j] = scale q_i · k_j + gate_i - gate_j,     with the same weights as     scale q_i · k_j + c - gate_j

So the bias is one row, which torch's CPU flash kernel takes as a mask whose rows are all that row. Gates are running
sums, which grow with the text; float32 would round them. So rows of queries go in strips, and c is the gate in the
middle of the strip: what a strip gives weight to is near c, and what is far from it has no weight.

In backward the gradient of a gate is minus the sum of dS over its column. The kernel does not give it, but it gives
dk = scale dS^T q: a channel of ones beside q (zeros beside k and v, which change nothing) brings that sum along.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from milepost.attention.backends.strips import save_inputs
from milepost.attention.backends.toeplitz import fold
from milepost.attention.blocks import Block, assemble
from milepost.attention.call import Call
from milepost.attention.kernel import flash, flash_backward, fused, gradients_of, merged, rows

STRIP = 1024
"""Rows of queries that share one origin of the gates."""
EXTRA = 8
"""Channels beside q, k and v in backward: one is wanted, and the kernel likes eights."""


def obstacle(call: Call) -> str | None:
    """Why this backend can't do it, or None."""
    points, width, value_width = call.enc.points, call.q.shape[-1], call.v.shape[-1]
    if "gate" not in points:
        return "the encoding has no gate"
    others = [point for point in ("bias", "rescore", "output", "weigh", "relate", "spread") if point in points]
    if others:
        return f"besides the gate, {' and '.join(others)} change logits or output"
    if call.q.device.type != "cpu":
        return f"it drives the CPU's flash kernel, and q is on {call.q.device.type}"
    if width != value_width:
        return f"the flash kernel wants values as wide as keys, got {value_width} and {width}"
    if call.at.window is not None:
        return "a sliding window has no row of the key alone"
    blocks = call.blocks
    return blocks if isinstance(blocks, str) else None


def run(call: Call) -> Tensor:
    """The output, B H I D."""
    blocks = call.blocks
    assert not isinstance(blocks, str)
    gates = call.enc.gate(call.head_numbers(), call.features[1]).contiguous()  # B H J; a row must lie in one piece
    return assemble(call.q, call.v.shape[-1], [(block, _run_block(call, gates, block)) for block in blocks])


def _run_block(call: Call, gates: Tensor, block: Block) -> Tensor:
    q, k, v, group = block.queries(call.q), block.keys(call.k), block.keys(call.v), call.group
    gates = block.keys(gates)
    if q.shape[2] == 1:
        mask = (gates[..., -1:] - gates).to(call.work_dtype).reshape(q.shape[0], k.shape[1], group, -1)
        return fused(fold(q, k), k, v, mask=mask, scale=call.scale).reshape(q.shape)
    if group == 1:
        out: Tensor = gated(q, k, v, gates, call.scale, block.ahead, call.causal)[0]
        return out
    heads = [
        gated(q[:, r::group], k, v, gates[:, r::group], call.scale, block.ahead, call.causal)[0] for r in range(group)
    ]
    return torch.stack(heads, dim=2).flatten(1, 2)


def _calls(
    queries: int, gates: Tensor, ahead: int, causal: bool, work: torch.dtype
) -> Iterator[tuple[slice, slice, bool, Tensor]]:
    """The calls of the kernel: which queries, which keys, whether by its causal flag, and the bias as a view with one
    row in memory. Calls for the same queries follow each other.
    """
    keys = gates.shape[-1]
    for a in range(0, queries, STRIP):
        e = min(a + STRIP, queries)
        origin = gates[..., min(ahead + (a + e) // 2, keys - 1), None]
        for low, high, flag in (
            ((0, min(ahead + a, keys), False), (ahead + a, min(ahead + e, keys), True))
            if causal
            else ((0, keys, False),)
        ):
            if high > low:
                row = (origin - gates[..., low:high]).to(work).contiguous()  # else the kernel would be given I x J
                yield slice(a, e), slice(low, high), flag, row[:, :, None].expand(-1, -1, e - a, -1)


@torch.library.custom_op("milepost::gated", mutates_args=())
def gated(
    q: Tensor, k: Tensor, v: Tensor, gates: Tensor, scale: float, ahead: int, causal: bool
) -> tuple[Tensor, Tensor]:
    """Output (B H I D) and log-sum-exp (B H I) for q (B H I D), k and v (B H J D), and gates (B H J) of the keys."""
    k, v = rows(k), rows(v)
    work = torch.promote_types(q.dtype, torch.float32)
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.empty(q.shape[:3], dtype=work, device=q.device)
    for some, seen, flag, mask in _calls(q.shape[2], gates, ahead, causal, work):
        part, weight = flash(q[:, :, some], k[:, :, seen], v[:, :, seen], mask=mask, causal=flag, scale=scale)
        if flag and seen.start > 0:  # the same queries, with the keys before these
            part, weight = merged(out[:, :, some], lse[:, :, some], part, weight.to(work))
        out[:, :, some], lse[:, :, some] = part, weight
    return out, lse


@gated.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, gates: Tensor, scale: float, ahead: int, causal: bool) -> tuple[Tensor, Tensor]:
    work = torch.promote_types(q.dtype, torch.float32)
    return torch.empty(q.shape, dtype=q.dtype, device=q.device), torch.empty(q.shape[:3], dtype=work, device=q.device)


@torch.library.custom_op("milepost::gated_backward", mutates_args=())
def gated_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, gates: Tensor, out: Tensor, lse: Tensor,
    scale: float, ahead: int, causal: bool, learned: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients to q, k, v and, where they are ``learned``, to the gates (else an empty tensor)."""
    work, width = lse.dtype, q.shape[-1]
    if learned:
        q, k, v, out, grad = (F.pad(t, (0, EXTRA)) for t in (q, k, v, out, grad))
        q[..., width] = 1.0
    dq, dk, dv = (torch.zeros(t.shape, dtype=work, device=t.device) for t in (q, k, v))
    for some, seen, flag, mask in _calls(q.shape[2], gates, ahead, causal, work):
        parts = flash_backward(
            grad[:, :, some], q[:, :, some], k[:, :, seen], v[:, :, seen], out[:, :, some], lse[:, :, some],
            mask=mask, causal=flag, scale=scale,
        )  # fmt: skip
        dq[:, :, some] += parts[0]
        dk[:, :, seen] += parts[1]
        dv[:, :, seen] += parts[2]
    to_gates = dk[..., width].div(-scale).to(gates.dtype) if learned else gates.new_empty(0)
    dq, dk, dv = (t[..., :width].to(q.dtype).contiguous() for t in (dq, dk, dv))
    return dq, dk, dv, to_gates


@gated_backward.register_fake
def _(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, gates: Tensor, out: Tensor, lse: Tensor,
    scale: float, ahead: int, causal: bool, learned: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    like = [torch.empty(t.shape, dtype=q.dtype, device=t.device) for t in (q, k, v)]
    return like[0], like[1], like[2], gates.new_empty(gates.shape if learned else 0)


def _backward(ctx: Any, grad: Tensor | None, grad_lse: Tensor | None) -> tuple[Tensor | None, ...]:
    if grad_lse is not None:
        raise ValueError("the log-sum-exp of gated() is for merging, and has no gradient")
    if grad is None:
        return (None,) * 7
    q, k, v, gates, out, lse = ctx.saved_tensors
    if torch.is_grad_enabled():  # a gradient of the gradient is asked for
        out = _dense(q, k, v, gates, *ctx.how)
        return *gradients_of(out, (q, k, v, gates), ctx.needs_input_grad[:4], grad), None, None, None
    dq, dk, dv, to_gates = torch.ops.milepost.gated_backward(
        grad.contiguous(), q, k, v, gates, out, lse, *ctx.how, ctx.learned
    )
    return dq, dk, dv, to_gates if ctx.learned else None, None, None, None


def _dense(q: Tensor, k: Tensor, v: Tensor, gates: Tensor, scale: float, ahead: int, causal: bool) -> Tensor:
    """What `gated` computes, by its definition (O(I J) memory): for gradients of gradients, which no kernel has."""
    (I, J), work = (q.shape[2], k.shape[2]), torch.promote_types(q.dtype, torch.float32)
    logits = (q.to(work) @ k.to(work).transpose(-1, -2)) * scale + (gates[..., -1:] - gates).to(work)[:, :, None]
    if causal:
        future = torch.ones(I, J, dtype=torch.bool, device=q.device).triu(1 + ahead)
        logits = logits.masked_fill(future, float("-inf"))
    return (torch.softmax(logits, dim=-1) @ v.to(work)).to(q.dtype)


gated.register_autograd(_backward, setup_context=save_inputs)
