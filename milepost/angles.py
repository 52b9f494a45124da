"""Angles: cosines and sines of positions times frequencies.

Angles are float64; the cast to the model's precision comes last. In float32 the angle itself is off by 4e-2 at position 1048575.
"""

from __future__ import annotations

import torch
from torch import Tensor

from milepost.positions import memo


def cos_sin(pos: Tensor, frequencies: Tensor, dtype: torch.dtype, key: object = None) -> tuple[Tensor, Tensor]:
    """cos and sin of ``pos * w``: shape ``(*pos.shape, pairs)``, float64 for float64 work, else float32.

    With a ``key`` that names the frequencies, the table is remembered on ``pos``: q, k and all layers share one.
    """
    double = dtype == torch.float64
    if torch.compiler.is_compiling() and not pos.requires_grad:
        cos, sin = torch.ops.milepost.cos_sin(pos, frequencies.to(pos.device), double)
        return cos, sin
    if key is None:
        return _table(pos, frequencies, double)
    return memo(pos, (key, double), lambda: _table(pos, frequencies, double))


def _table(pos: Tensor, frequencies: Tensor, double: bool) -> tuple[Tensor, Tensor]:
    angle = pos.double()[..., None] * frequencies.to(pos.device)
    cos, sin = angle.cos(), angle.sin()
    return (cos, sin) if double else (cos.float(), sin.float())


@torch.library.custom_op("milepost::cos_sin", mutates_args=())
def _opaque_table(pos: Tensor, frequencies: Tensor, double: bool) -> tuple[Tensor, Tensor]:
    """The table as one opaque step of a compiled graph: fused into the rotation it would be computed once a head."""
    return _table(pos, frequencies, double)


@_opaque_table.register_fake
def _(pos: Tensor, frequencies: Tensor, double: bool) -> tuple[Tensor, Tensor]:
    shape = (*pos.shape, frequencies.shape[-1])
    like = torch.empty(shape, dtype=torch.float64 if double else torch.float32, device=pos.device)
    return like, torch.empty_like(like)


def cos_sin_axes(pos: Tensor, frequencies: Tensor, dtype: torch.dtype, key: str) -> tuple[Tensor, Tensor]:
    """cos and sin of ``p · w``, summed over axes: ``pos`` (axes B L) and ``frequencies`` (axes pairs) give B L pairs.

    Positions of one axis (L or B L) are equal on every axis. A pair that turns by one axis alone has zeros for the others, which add nothing:
    its table is to the last bit the one of `cos_sin`.
    """
    double = dtype == torch.float64
    if torch.compiler.is_compiling() and not pos.requires_grad:
        cos, sin = torch.ops.milepost.cos_sin_axes(pos, frequencies.to(pos.device), double)
        return cos, sin
    return memo(pos, (key, double), lambda: _axes_table(pos, frequencies, double))


def _axes_table(pos: Tensor, frequencies: Tensor, double: bool) -> tuple[Tensor, Tensor]:
    each = pos if pos.dim() == 3 else pos.expand(len(frequencies), *pos.shape)
    angle = torch.stack([p.double()[..., None] * w for p, w in zip(each, frequencies.to(pos.device), strict=True)]).sum(0)
    cos, sin = angle.cos(), angle.sin()
    return (cos, sin) if double else (cos.float(), sin.float())


@torch.library.custom_op("milepost::cos_sin_axes", mutates_args=())
def _opaque_axes_table(pos: Tensor, frequencies: Tensor, double: bool) -> tuple[Tensor, Tensor]:
    return _axes_table(pos, frequencies, double)


@_opaque_axes_table.register_fake
def _(pos: Tensor, frequencies: Tensor, double: bool) -> tuple[Tensor, Tensor]:
    shape = (*(pos.shape[1:] if pos.dim() == 3 else pos.shape), frequencies.shape[-1])
    like = torch.empty(shape, dtype=torch.float64 if double else torch.float32, device=pos.device)
    return like, torch.empty_like(like)
