"""toeplitz: a bias of the distance alone costs I + J numbers a head and no time. For CPUs; see `strips` for how.

Also the home of attention without a bias where torch's causal flag does not fit (a text that goes on, a window): the
same path with a table of zeros.
"""

from __future__ import annotations

import torch
from torch import Tensor

from milepost.attention.blocks import Block, assemble, blocks
from milepost.attention.distances import falling
from milepost.attention.kernel import fused
from milepost.attention.strips import strips
from milepost.encoding import Encoding
from milepost.layout import Layout

FEWEST = 8
"""Over fewer keys than this, torch's kernel without a mask turns a NaN in a query into zeros; with a mask it passes it
on.
"""


def obstacle(q: Tensor, k: Tensor, v: Tensor, enc: Encoding, at: Layout, to: Layout, causal: bool) -> str | None:
    """Why this backend can't do it, or None."""
    if q.device.type != "cpu":
        return f"it drives the CPU's flash kernel, and q is on {q.device.type}"
    if enc.content_dependent:
        return "the encoding depends on content"
    if not enc.toeplitz:
        return "its bias is not a function of i - j alone"
    if q.shape[-1] != v.shape[-1]:
        return f"the flash kernel wants values as wide as keys, got {v.shape[-1]} and {q.shape[-1]}"
    if "bias" in enc.points and (at.remapped or to.remapped):
        return "the encoding is told other positions than the index"
    found = blocks(at, to, causal)
    return found if isinstance(found, str) else None


def toeplitz(
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
) -> Tensor:
    """Attention of q (B H I D) to k, v (B G J D); see `milepost.attend`."""
    found = blocks(at, to, causal)
    assert not isinstance(found, str)
    window = at.window or 0
    done = [(b, _block(b.queries(q), b.keys(k), b.keys(v), enc, b, causal, window, scale, first_head)) for b in found]
    return assemble(q, v.shape[-1], done)


def _block(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    enc: Encoding,
    block: Block,
    causal: bool,
    window: int,
    scale: float,
    first_head: int,
) -> Tensor:
    (I, J), ahead = block.shape, block.ahead
    group = q.shape[1] // k.shape[1]
    biased = "bias" in enc.points
    if not biased and not window and J >= FEWEST and (not causal or I == 1 or (ahead == 0 and I == J)):
        if I == 1 and group > 1:
            return fused(fold(q, k), k, v, scale=scale).reshape(q.shape)
        return fused(q, k, v, causal=causal, scale=scale)
    if I == 1:
        mask = _falling(enc, q, ahead, J, first_head, causal, window).reshape(1, k.shape[1], group, J)
        return fused(fold(q, k), k, v, mask=mask, scale=scale).reshape(q.shape)
    table = _falling(enc, q, ahead + I - 1, I + J - 1, first_head, causal, window)
    if group == 1:
        out: Tensor = strips(q, k, v, table, scale, ahead, causal, window)[0]
        return out
    heads = [strips(q[:, r::group], k, v, table[r::group], scale, ahead, causal, window)[0] for r in range(group)]
    return torch.stack(heads, dim=2).flatten(1, 2)


def fold(q: Tensor, k: Tensor) -> Tensor:
    """One query of each head as a row of the key head that it shares: B G H/G D, without copying a key."""
    return q.reshape(q.shape[0], k.shape[1], -1, q.shape[-1])


def _falling(enc: Encoding, q: Tensor, far: int, count: int, first_head: int, causal: bool, window: int) -> Tensor:
    dtype = torch.promote_types(q.dtype, torch.float32)
    return falling(enc, q.shape[1], first_head, far, count, causal=causal, window=window, dtype=dtype, device=q.device)
