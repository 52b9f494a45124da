"""reference: dense attention, step by step. It is the definition that every other backend must equal.

    s      = q·k, -inf where the mask hides
    s      = rescore(s, q, k, i, j), then relate(s, q, k, f, g, i, j)
    logits = scale * s + bias(h, i, j) + gate(h, f) - gate(h, g) + weigh(h, f, g, i, j)
    p      = spread(logits), a softmax for nearly all;  a row that may see nothing is zeros
    out    = p v + output(p, i, j)

Half precision is widened to float32 for the work and rounded once at the end.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from milepost.attention.call import Call


class Attended(NamedTuple):
    """The output (B H I Dv) with the logits and weights (B H I J) that made it; hidden logits are -inf."""

    output: Tensor
    logits: Tensor
    weights: Tensor


def reference(call: Call) -> Attended:
    """The attention of a call whose q, k and v are turned, and whose features run along each text where the encoding
    says so; see `milepost.attend` for the checks.
    """
    enc, at, to, work = call.enc, call.at, call.to, call.work_dtype
    with torch.autocast(call.q.device.type, enabled=False):
        k, v = (t.repeat_interleave(call.group, dim=1) for t in (call.k, call.v))
        q, k, v = (t.to(work) for t in (call.q, k, v))
        seen = at.mask(to, causal=call.causal)
        i, j = at.pos[..., None, :, None], to.pos[..., None, None, :]
        logits = (q @ k.transpose(-1, -2)).masked_fill(~seen, float("-inf"))
        if "rescore" in enc.points:
            logits = enc.rescore(logits, q, k, i, j)
        if "relate" in enc.points:
            logits = enc.relate(logits, q, k, *call.features, i, j)
        logits = logits * call.scale
        if "bias" in enc.points:
            logits = logits + enc.bias(call.head_numbers()[:, None, None], i, j).to(work)
        if "gate" in enc.points:
            mine, theirs = (enc.gate(call.head_numbers(), numbers) for numbers in call.features)
            logits = logits + (mine[..., :, None] - theirs[..., None, :]).to(work)
        if "weigh" in enc.points:
            logits = logits + enc.weigh(call.head_numbers(), *call.features, i, j).to(work)
        logits = logits.masked_fill(~seen, float("-inf"))
        blind = logits.isneginf().all(dim=-1, keepdim=True)  # by the mask, or by the encoding itself
        if "spread" in enc.points:
            weights = enc.spread(logits, i, j).masked_fill(blind, 0.0)
        else:
            weights = torch.softmax(logits.masked_fill(blind, 0.0), dim=-1).masked_fill(blind, 0.0)
        out = weights @ v
        if "output" in enc.points:
            out = out + enc.output(weights, i, j)
    return Attended(out.to(call.q.dtype), logits, weights)
