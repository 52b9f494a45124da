"""reference: dense attention, step by step. It is the definition that every other backend must equal.

    s      = q·k, -inf where the mask hides
    logits = scale * rescore(s, q, k, i, j) + bias(h, i, j)
    p      = softmax(logits);  a row that may see nothing is zeros
    out    = p v + output(p, i, j)

Half precision is widened to float32 for the work and rounded once at the end.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from milepost.encoding import Encoding
from milepost.layout import Layout


class Attended(NamedTuple):
    """The output (B H I Dv) with the logits and weights (B H I J) that made it; hidden logits are -inf."""

    output: Tensor
    logits: Tensor
    weights: Tensor


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    enc: Encoding,
    at: Layout,
    to: Layout,
    *,
    causal: bool,
    scale: float,
    first_head: int = 0,
) -> Attended:
    """Attention of q (B H I D) to k (B G J D), v (B G J Dv), where G divides H; see `milepost.attend` for the
    checks.
    """
    kept = q.dtype
    work = torch.promote_types(kept, torch.float32)
    with torch.autocast(q.device.type, enabled=False):
        group = q.shape[1] // k.shape[1]
        q, k, v = (t.to(work) for t in (q, k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)))
        seen = at.mask(to, causal=causal)
        i, j = at.pos[..., None, :, None], to.pos[..., None, None, :]
        logits = (q @ k.transpose(-1, -2)).masked_fill(~seen, float("-inf"))
        if "rescore" in enc.points:
            logits = enc.rescore(logits, q, k, i, j)
        logits = logits * scale
        if "bias" in enc.points:
            h = torch.arange(first_head, first_head + q.shape[1], device=q.device)[:, None, None]
            logits = logits + enc.bias(h, i, j).to(work)
        logits = logits.masked_fill(~seen, float("-inf"))
        blind = logits.isneginf().all(dim=-1, keepdim=True)  # by the mask, or by the encoding itself
        weights = torch.softmax(logits.masked_fill(blind, 0.0), dim=-1).masked_fill(blind, 0.0)
        out = weights @ v
        if "output" in enc.points:
            out = out + enc.output(weights, i, j)
    return Attended(out.to(kept), logits, weights)
