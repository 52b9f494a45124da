"""relative: a score that meets content by vectors of the distance costs one more product, or a band of one. For CPUs.

An encoding whose score has that form says so by `Encoding.relative`, and by `Encoding.mixes` where features of the
query's token meet those vectors in place of q; see `bands` for how it is done. A bias of the
distance that is added to it is a table, which the same masks take.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from milepost.attention.backends.bands import NARROW, bands
from milepost.attention.backends.squares import are_short, attend_whole
from milepost.attention.backends.toeplitz import fold
from milepost.attention.blocks import Block
from milepost.attention.call import Call
from milepost.attention.distances import falling, vectors
from milepost.attention.kernel import flash, merged
from milepost.encoding import Relative, has_quick, parts_of

ROWS = 4096
"""Rows for which q + u and q + v are held, where all keys need a mask and nothing is learned."""


def obstacle(call: Call) -> str | None:
    """Why this backend can't do it, or None."""
    enc = call.enc
    if call.q.device.type != "cpu":
        return f"it drives the CPU's flash kernel, and q is on {call.q.device.type}"
    content = [part for part in parts_of(enc) if part.content_dependent]
    if len(content) != 1:
        return f"it is for one part that depends on content, and here are {len(content)}"
    if not has_quick(content[0], "relative", "rescore", "output", "weigh"):
        return "its score is not made of vectors of the distance"
    if not enc.toeplitz:
        return "its bias is not a function of i - j alone"
    return call.blocks_obstacle()


def run(call: Call) -> Tensor:
    """The output, B H I D."""
    return call.by_block(run_block)


def run_block(call: Call, block: Block) -> Tensor:
    """The output of one block, B H I D."""
    part = next(part for part in parts_of(call.enc) if part.content_dependent)
    (I, J), ahead, window, causal = block.shape, block.ahead, call.at.window or 0, call.causal
    q, k, v = block.queries(call.q), block.keys(call.k), block.keys(call.v)
    far, near = ahead + I - 1, 0 if causal else ahead - J + 1  # the distances that are met
    if window:
        far, near = min(far, window - 1), max(near, 1 - window)
    table: Tensor | None = None
    if "bias" in call.enc.points:
        table = falling(
            call.enc, q.shape[1], call.first_head or 0, far, far - near + 1,
            causal=causal, window=window, dtype=call.work_dtype, device=q.device,
        )  # fmt: skip
    apart, alike = False, part.alike_from
    one = I == 1 and not call.learning and not torch.compiler.is_compiling() and (alike is None or ahead - J >= -alike)
    if alike is not None and (one or table is None):
        apart = not window and alike + NARROW < J
        far, near = alike, -alike
    relative = vectors(part, far, near, q.device)
    if relative.b is not None or relative.u is not None or relative.v is not None:  # what is added to q is not rounded
        q, k, v = (t.to(call.work_dtype) for t in (q, k, v))
    mixed: Tensor | None = None
    if "weigh" in part.points:  # features of the query's token meet the vectors, and no q
        at, _ = block.layouts(call.at, call.to)
        mixed = part.mixes(call.head_numbers(), block.queries(call.features[0][:, None])[:, 0], at.pos)
        assert mixed is not None
        mixed = mixed.to(call.work_dtype) / call.scale
    if one:
        onto_keys, onto_distances = _added(q, relative.u), _added(q, relative.v) if mixed is None else mixed
        done = _one_query(onto_keys, onto_distances, k, v, relative, table, call.scale * relative.share, far, ahead)
        return done.to(call.q.dtype)
    alike_rows = (call.scale * relative.share, causal, window, far, far - near + 1, apart)
    compiled = torch.compiler.is_compiling()  # a loop over rows, or a choice by length, would tie a graph to one length
    whole_text = causal and not window and I == J and ahead == 0 and table is None
    short = whole_text and not compiled and are_short(q.shape[0], q.shape[1], I)
    if short or apart or compiled or call.learning:
        return _run_rows(q, mixed, k, v, relative, table, ahead, alike_rows, short).to(call.q.dtype)
    out = torch.empty(q.shape, dtype=call.q.dtype, device=q.device)
    for a in range(0, I, ROWS):  # far rows need q + u no sooner
        e = min(a + ROWS, I)
        keys = slice(0, J if not causal else max(1, min(J, ahead + e)))
        given = q[:, :, a:e], None if mixed is None else mixed[:, :, a:e], k[:, :, keys], v[:, :, keys]
        out[:, :, a:e] = _run_rows(*given, relative, table, ahead + a, alike_rows)
    return out


def _run_rows(
    q: Tensor, mixed: Tensor | None, k: Tensor, v: Tensor, relative: Relative, table: Tensor | None, ahead: int,
    how: tuple[Any, ...], short: bool = False,
) -> Tensor:  # fmt: skip
    """Some rows over the keys of a block, the first of which stands ``ahead`` of the first key: B H I D."""
    onto_keys, onto_distances = _added(q, relative.u), _added(q, relative.v) if mixed is None else mixed
    outs, group = [], q.shape[1] // k.shape[1]
    for r in range(group):
        own = slice(r, None, group)
        a, b, values = (_of_heads(t, own) for t in (relative.a, relative.b, relative.values))
        given = (onto_keys[:, own], onto_distances[:, own], k, v, a, b, None if table is None else table[own])
        if short:
            outs.append(attend_whole(*given[:6], values, None, how[0], how[3]))
            continue
        out, _, mass = bands(*given, how[0], ahead, *how[1:], values is not None)
        outs.append(out if values is None else out.to(mass.dtype) + mass @ values.to(mass.dtype))
    return outs[0] if group == 1 else torch.stack(outs, dim=2).flatten(1, 2)


def _added(q: Tensor, t: Tensor | None) -> Tensor:
    return q if t is None else q + t[:, None].to(q.dtype)


def _of_heads(t: Tensor | None, own: slice) -> Tensor | None:
    return t if t is None or t.shape[0] == 1 else t[own]


def _one_query(
    q: Tensor, p: Tensor, k: Tensor, v: Tensor, relative: Relative, table: Tensor | None,
    scale: float, far: int, ahead: int,
) -> Tensor:  # fmt: skip
    """One query of each head over all its keys, B H 1 D: a row is its own mask, and no key is copied for a group."""
    (B, H, _, D), (G, J), work = q.shape, k.shape[1:3], torch.promote_types(q.dtype, torch.float32)
    low = min(J - 1, ahead - far + 1) if ahead > far else 0  # keys before it are past the end, and scored alike
    start = max(0, far - ahead + low)
    near = slice(start, start + J - low)
    p = p.to(work) * scale
    mask = torch.zeros(B, H, 1, J - low, dtype=work, device=q.device)
    if relative.a is not None:
        of_heads = relative.a[:, near].to(work) @ p[:, :, 0].permute(1, 2, 0)  # H n B: no vector is copied for a text
        mask += of_heads.permute(2, 0, 1)[:, :, None]
    if relative.b is not None:
        b = relative.b[:, near].to(work).expand(H, -1, -1).reshape(G, H // G, J - low, D)
        mask += ((k[:, :, None, low:] * b).sum(-1) * scale).flatten(1, 2)[:, :, None]
    row = None if table is None else table[None, :, None, :J]
    if row is not None:
        mask += row[..., low:]
    folded, keys, values = fold(q, k), k[:, :, low:], v[:, :, low:]
    out, lse = flash(folded, keys, values, mask=mask.view(B, G, -1, J - low), scale=scale)
    if low:
        shifted = folded if relative.b is None else fold(q + relative.b[:, :1].to(q.dtype), k)
        past = None if row is None else row[..., :low].reshape(1, G, -1, low)
        more, weight = flash(shifted, k[:, :, :low], v[:, :, :low], mask=past, scale=scale)
        if relative.a is not None:
            weight = weight + fold(p @ relative.a[:, 0, :, None].to(work), k)[..., 0]
        out, lse = merged(out, lse, more, weight)
    if relative.values is not None:
        lse = lse.reshape(B, H, 1, 1)
        logits = (folded.to(work) @ keys.to(work).transpose(-1, -2)).reshape(mask.shape) * scale + mask
        added = (logits - lse).exp() @ relative.values[:, near].to(work)
        if low:
            added = added + (weight.reshape(B, H, 1, 1) - lse).exp() * relative.values[:, :1].to(work)
        return out.to(work).reshape(B, H, 1, D) + added
    return out.reshape(B, H, 1, D)
