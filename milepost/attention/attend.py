"""attend: the checks, the choice of a backend, and the call."""

from __future__ import annotations

from typing import Literal, overload

import torch
from torch import Tensor

from milepost.attention.reference import Attended, reference
from milepost.encoding import Encoding
from milepost.layout import Layout

BACKENDS = ("auto", "reference")


@overload
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    enc: Encoding | None = ...,
    *,
    at: Layout | None = ...,
    to: Layout | None = ...,
    causal: bool = ...,
    scale: float | None = ...,
    backend: str = ...,
    first_head: int | None = ...,
    details: Literal[False] = ...,
) -> Tensor: ...
@overload
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    enc: Encoding | None = ...,
    *,
    at: Layout | None = ...,
    to: Layout | None = ...,
    causal: bool = ...,
    scale: float | None = ...,
    backend: str = ...,
    first_head: int | None = ...,
    details: Literal[True],
) -> Attended: ...


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    enc: Encoding | None = None,
    *,
    at: Layout | None = None,
    to: Layout | None = None,
    causal: bool = True,
    scale: float | None = None,
    backend: str = "auto",
    first_head: int | None = None,
    details: bool = False,
) -> Tensor | Attended:
    """Attention of q (B H I D) to k (B G J D) and v (B G J Dv), G dividing H, with the position of ``enc``: B H I Dv.

    q and k come transformed: ``enc.query(q, at.pos)``, ``enc.key(k, to.pos)``. ``at`` says where the queries are (by default
    dense: the last I of J tokens), ``to`` where the keys are (by default the same as ``at``, or dense). ``scale`` is
    1/sqrt(D) unless told. ``first_head`` is the global number of head 0 where q holds a shard of the heads. With
    ``details`` the answer is ``Attended(output, logits, weights)``.
    """
    enc = Encoding() if enc is None else enc
    at, to = _layouts(q, k, at, to)
    _check(q, k, v, enc, at, to, causal, first_head)
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}; there are {', '.join(BACKENDS)}")
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    done = reference(q, k, v, enc, at, to, causal=causal, scale=scale, first_head=first_head or 0)
    return done if details else done.output


def _layouts(q: Tensor, k: Tensor, at: Layout | None, to: Layout | None) -> tuple[Layout, Layout]:
    """The layouts that were meant where they were left out."""
    queries, keys = q.shape[-2], k.shape[-2]
    if at is None:
        if to is not None:
            raise ValueError("`to` says where the keys are; say with `at` where the queries are, too")
        if queries > keys:
            raise ValueError(f"{queries} queries can't be the last of {keys} keys; say where they are with at= and to=")
        at = Layout.dense(queries, start=keys - queries, device=q.device)
    if to is None:
        to = at if queries == keys else Layout.dense(keys, device=k.device)
    return at, to


def _check(q: Tensor, k: Tensor, v: Tensor, enc: Encoding, at: Layout, to: Layout, causal: bool, first_head: int | None) -> None:
    for name, t in (("q", q), ("k", k), ("v", v)):
        if t.dim() != 4:
            raise ValueError(f"{name} must have shape (B, H, L, D), got {tuple(t.shape)}")
    if not q.dtype == k.dtype == v.dtype or not q.is_floating_point():
        raise ValueError(f"q, k and v must share one floating dtype, got {q.dtype}, {k.dtype}, {v.dtype}")
    if not q.device == k.device == v.device == at.index.device == to.index.device:
        raise ValueError(f"q, k, v and the layouts must be on one device, got {q.device}, {k.device}, {v.device}, {at.index.device}, {to.index.device}")
    if q.shape[0] != k.shape[0] or k.shape[:3] != v.shape[:3] or q.shape[-1] != k.shape[-1]:
        raise ValueError(f"shapes do not fit: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}; wanted (B,H,I,D), (B,G,J,D), (B,G,J,Dv)")
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"{q.shape[1]} query heads can't share {k.shape[1]} key heads evenly")
    for name, layout, x in (("at", at, q), ("to", to, k)):
        if layout.length != x.shape[-2] or layout.batch not in (1, x.shape[0]):
            raise ValueError(f"`{name}` is a layout of {layout.batch} x {layout.length} tokens for a tensor of {x.shape[0]} x {x.shape[-2]}")
    if enc.heads is not None:
        first = first_head or 0
        if first < 0 or first + q.shape[1] > enc.heads or (first_head is None and q.shape[1] != enc.heads):
            raise ValueError(
                f"{enc!r} is for {enc.heads} heads, q has {q.shape[1]} from head {first}; "
                "make the encoding for q's heads, or say with first_head= which of its heads these are"
            )
    if enc.head_dim is not None and enc.content_dependent and enc.head_dim != q.shape[-1]:
        raise ValueError(f"{enc!r} is for head_dim={enc.head_dim}, q has {q.shape[-1]}")
    if enc.causal_only and not causal:
        raise ValueError(f"{enc!r} has no meaning for keys after the query; attend with causal=True, or choose a two-sided mode")
    if enc.length_dependent:
        raise ValueError(f"{enc!r} depends on the length of the text: attend with enc.at(length)")
    if not torch.compiler.is_compiling():
        enc.check(at)
        enc.check(to)
