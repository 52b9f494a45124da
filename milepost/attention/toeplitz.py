"""toeplitz: a bias of the distance alone costs I + J numbers a head and no time. For CPUs; see `strips` for how.

Also the home of attention without a bias where torch's causal flag does not fit (a text that goes on, a window): the
same path with a table of zeros.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable

import torch
from torch import Tensor
from torch.nn import functional as F

from milepost.attention.blocks import Block, assemble, blocks
from milepost.attention.strips import strips
from milepost.encoding import Encoding
from milepost.layout import Layout

FEWEST = 8
"""Over fewer keys than this, torch's kernel without a mask turns a NaN in a query into zeros; with a mask it passes it on."""


def lacks(q: Tensor, k: Tensor, v: Tensor, enc: Encoding, at: Layout, to: Layout, causal: bool) -> str | None:
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


def toeplitz(q: Tensor, k: Tensor, v: Tensor, enc: Encoding, at: Layout, to: Layout, *, causal: bool, scale: float, first_head: int = 0) -> Tensor:
    """Attention of q (B H I D) to k, v (B G J D); see `milepost.attend`."""
    found = blocks(at, to, causal)
    assert not isinstance(found, str)
    window = at.window or 0
    done = [(b, _block(b.queries(q), b.keys(k), b.keys(v), enc, b, causal, window, scale, first_head)) for b in found]
    return assemble(q, v.shape[-1], done)


def _block(q: Tensor, k: Tensor, v: Tensor, enc: Encoding, block: Block, causal: bool, window: int, scale: float, first_head: int) -> Tensor:
    (I, J), ahead = block.shape, block.ahead
    group = q.shape[1] // k.shape[1]
    biased = "bias" in enc.points
    if not biased and not window and J >= FEWEST and (not causal or I == 1 or (ahead == 0 and I == J)):
        if I == 1 and group > 1:
            return F.scaled_dot_product_attention(fold(q, k), k, v, scale=scale).reshape(q.shape)
        return fused(q, k, v, causal, scale)
    if I == 1:
        mask = _falling(enc, q, ahead, J, first_head, causal, window).reshape(1, k.shape[1], group, J)
        return F.scaled_dot_product_attention(fold(q, k), k, v, attn_mask=mask, scale=scale).reshape(q.shape)
    table = _falling(enc, q, ahead + I - 1, I + J - 1, first_head, causal, window)
    if group == 1:
        out: Tensor = strips(q, k, v, table, scale, ahead, causal, window)[0]
        return out
    heads = [strips(q[:, r::group], k, v, table[r::group], scale, ahead, causal, window)[0] for r in range(group)]
    return torch.stack(heads, dim=2).flatten(1, 2)


def fused(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> Tensor:
    """Torch's own attention over one whole text. (Flags set in the open: a symbolic one would stop a compiler.)"""
    is_causal = grouped = False
    if causal and q.shape[2] > 1:
        is_causal = True
    if q.shape[1] != k.shape[1]:
        grouped = True
    return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=scale, enable_gqa=grouped)


def fold(q: Tensor, k: Tensor) -> Tensor:
    """One query of each head as a row of the key head that it shares: B G H/G D, without copying a key."""
    return q.reshape(q.shape[0], k.shape[1], -1, q.shape[-1])


def _falling(enc: Encoding, q: Tensor, far: int, count: int, first_head: int, causal: bool, window: int) -> Tensor:
    """The bias of every head by falling distance, from ``far`` down, ``count`` numbers (H, count); -inf where hidden."""
    work = torch.promote_types(q.dtype, torch.float32)
    heads = q.shape[1]
    low = far - count + 1
    if low >= 0 and not window and not torch.compiler.is_compiling() and not _learning(enc):
        whole = remembered(enc, far + 1, heads, first_head, work, q.device)
        return whole[:, whole.shape[1] - 1 - far : whole.shape[1] - low]
    distance = torch.arange(far, low - 1, -1, device=q.device)
    table = _bias(enc, distance, heads, first_head, work)
    if causal and low < 0:
        table = table.masked_fill(distance < 0, float("-inf"))
    if window:
        table = table.masked_fill(distance.abs() >= window, float("-inf"))
    return table


def _bias(enc: Encoding, distance: Tensor, heads: int, first_head: int, work: torch.dtype) -> Tensor:
    if "bias" not in enc.points:
        return torch.zeros(heads, distance.shape[0], dtype=work, device=distance.device)
    h = torch.arange(first_head, first_head + heads, device=distance.device)[:, None]
    return enc.bias(h, distance, torch.zeros_like(distance)).to(work).expand(heads, -1)


def _learning(enc: Encoding) -> bool:
    return torch.is_grad_enabled() and any(p.requires_grad for p in enc.parameters())


_kept: weakref.WeakKeyDictionary[Encoding, tuple[Hashable, Tensor, list[object]]] = weakref.WeakKeyDictionary()


def remembered(enc: Encoding, reach: int, heads: int, first_head: int, work: torch.dtype, device: torch.device) -> Tensor:
    """Distances up to ``reach`` - 1 and more, falling to 0, kept with the encoding until any of its numbers change.

    A decode takes one slice of it a step. It doubles when it is outgrown.
    """
    values = [value for module in enc.modules() for part in (module._parameters, vars(module)) for value in part.values()]
    numbers = [value for value in values if isinstance(value, Tensor)]
    if any(t.is_inference() for t in numbers):
        state: Hashable = object()
    else:  # any attribute that is set anew, and any tensor that is written to, makes another state
        state = (heads, first_head, work, device, *map(id, values), *[t._version for t in numbers])
    found = _kept.get(enc)
    if found is None or found[0] != state or found[1].shape[1] < reach:
        size = 1 << max(8, (reach - 1).bit_length())
        with torch.inference_mode(False), torch.no_grad():  # in this order: leaving inference mode turns gradients on
            table = _bias(enc, torch.arange(size - 1, -1, -1, device=device), heads, first_head, work).contiguous()
        found = (state, table, values)  # held, so that no other object can take one's id
        _kept[enc] = found
    return found[1]
