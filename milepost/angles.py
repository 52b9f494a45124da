"""Angles: cosines and sines of positions times frequencies.

Angles are float64; the cast to the model's precision comes last. In float32 the angle itself is off by 4e-2 at position
1048575.

A table is shared by q, k and all layers: it is kept beside the position tensor that it was made for, together with
copies of the positions and frequencies, and is taken again only while both are equal to those copies, number for
number. So it can't be stale, whoever wrote to them and however. Comparing costs a thousandth of making a table. (Only
on CPUs: elsewhere it would wait for the device.)
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

Table = tuple[Tensor, Tensor]
MOST = 8
"""Tables that are kept for one position tensor."""


def cos_sin(pos: Tensor, frequencies: Tensor, dtype: torch.dtype) -> Table:
    """cos and sin of ``pos * w``: shape ``(*pos.shape, pairs)``, float64 for float64 work, else float32.

    Frequencies of several axes (axes pairs) give those of ``p · w``, summed over axes: ``pos`` (axes B L) gives B L
    pairs, and positions of one axis (L or B L) are equal on every axis. A pair that turns by one axis alone has zeros
    for the others, which add nothing: its table is to the last bit the one of that axis.
    """
    double = dtype == torch.float64
    if torch.compiler.is_compiling() and not pos.requires_grad and not frequencies.requires_grad:
        cos, sin = torch.ops.milepost.cos_sin(pos, frequencies.to(pos.device), double)
        return cos, sin
    return _shared(pos, frequencies, double)


@dataclass
class _Kept:
    """The tables of one position tensor, as long as it holds these positions."""

    positions: Tensor
    tables: list[tuple[bool, Tensor, Table]] = field(default_factory=list)


_kept: MutableMapping[Tensor, _Kept] = WeakIdKeyDictionary()


def _shared(pos: Tensor, frequencies: Tensor, double: bool) -> Table:
    """The table that was made for these very numbers, or a new one."""
    if not _comparable(pos, frequencies):
        return _table(pos, frequencies, double)
    entry = _kept.get(pos)
    if entry is None or not _equal(entry.positions, pos):
        entry = _kept[pos] = _Kept(pos.clone())
    for was_double, was, table in entry.tables:
        if was_double == double and _equal(was, frequencies):
            return table
    made = _table(pos, frequencies, double)
    entry.tables = [*entry.tables[1 - MOST :], (double, frequencies.clone(), made)]
    return made


def _equal(was: Tensor, now: Tensor) -> bool:
    return was.dtype == now.dtype and was.shape == now.shape and torch.equal(was, now)


def _comparable(pos: Tensor, frequencies: Tensor) -> bool:
    """Whether their numbers can be looked at, and tables made of them used anywhere (those of inference mode can't be
    trained on).
    """
    if pos.requires_grad or frequencies.requires_grad or type(pos) is not Tensor or type(frequencies) is not Tensor:
        return False
    if torch.compiler.is_compiling() or torch.is_inference_mode_enabled() or _has_tangent():
        return False
    here = pos.device.type == "cpu" and frequencies.device.type == "cpu"
    return here and torch._C._functorch.peek_interpreter_stack() is None


def _has_tangent() -> bool:
    return torch.autograd.forward_ad._current_level >= 0


def _table(pos: Tensor, frequencies: Tensor, double: bool) -> tuple[Tensor, Tensor]:
    w = frequencies.to(pos.device)
    if w.dim() == 1:
        angle = pos.double()[..., None] * w
    else:
        each = pos if pos.dim() == 3 else pos.expand(len(w), *pos.shape)
        angle = torch.stack([p.double()[..., None] * own for p, own in zip(each, w, strict=True)]).sum(0)
    cos, sin = angle.cos(), angle.sin()
    return (cos, sin) if double else (cos.float(), sin.float())


@torch.library.custom_op("milepost::cos_sin", mutates_args=())
def _opaque_table(pos: Tensor, frequencies: Tensor, double: bool) -> tuple[Tensor, Tensor]:
    """The table as one opaque step of a compiled graph: fused into the rotation it would be computed once a head."""
    return _table(pos, frequencies, double)


@_opaque_table.register_fake
def _(pos: Tensor, frequencies: Tensor, double: bool) -> tuple[Tensor, Tensor]:
    tokens = pos.shape[1:] if frequencies.dim() == 2 and pos.dim() == 3 else pos.shape
    shape = (*tokens, frequencies.shape[-1])
    like = torch.empty(shape, dtype=torch.float64 if double else torch.float32, device=pos.device)
    return like, torch.empty_like(like)
