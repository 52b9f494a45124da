"""attend: the checks, the choice of a backend, and the call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, overload

import torch
from torch import Tensor

from milepost.attention import hidden, lengths
from milepost.attention.backends import by_row, chunked, flex, relative, sdpa, toeplitz
from milepost.attention.backends.reference import Attended, reference
from milepost.attention.call import Call
from milepost.attention.turning import Turned, turn, turns_by_length
from milepost.encoding import Encoding
from milepost.layout import Layout

BACKENDS = ("auto", "reference", "sdpa", "toeplitz", "relative", "by_row", "chunked", "flex")
_FAST = {"sdpa": sdpa, "toeplitz": toeplitz, "relative": relative, "by_row": by_row, "flex": flex, "chunked": chunked}


@dataclass(frozen=True)
class Choice:
    """The backend that ``auto`` takes, and why: what it is good for, and why the faster ones were passed over."""

    backend: str
    why: str


@overload
def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    enc: Encoding | None = ...,
    *,
    at: Layout | None = ...,
    to: Layout | None = ...,
    turned: Turned = ...,
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
    turned: Turned = ...,
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
    turned: Turned = False,
    causal: bool = True,
    scale: float | None = None,
    backend: str = "auto",
    first_head: int | None = None,
    details: bool = False,
) -> Tensor | Attended:
    """Attention of q (B H I D) to k (B G J D) and v (B G J Dv), G dividing H, with the position of ``enc``: B H I Dv.

    q and k come as they are, and are turned here: ``enc.query(q, at.pos)``, ``enc.key(k, to.pos)``. ``turned=True``
    says that both were turned before, ``turned="keys"`` that the keys were. ``at`` says where the queries are (by
    default dense: the last I of J tokens), ``to`` where the keys are (by default the same as ``at``, or dense).
    ``scale`` is 1/sqrt(D) unless given.
    ``first_head`` is the global number of head 0 where q holds a shard of the heads. With ``details`` the answer is
    ``Attended(output, logits, weights)``.
    """
    enc = Encoding() if enc is None else enc
    at, to = _layouts(q, k, at, to)
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}; there are {', '.join(BACKENDS)}")
    if details and backend not in ("auto", "reference"):
        raise ValueError(f"backend {backend!r} never holds all logits; details=True wants backend='reference'")
    if scale is None:
        if q.shape[-1] == 0:
            raise ValueError(f"q of shape {tuple(q.shape)} has no channels (D = 0), so that there is nothing to score")
        scale = q.shape[-1] ** -0.5
    call = Call(q, k, v, enc, at, to, causal, scale, first_head)
    answer: Tensor | Attended = _attend(call, turned, "reference" if details else backend, details)
    return answer


def _attend(call: Call, turned: Turned, backend: str, details: bool = False) -> Any:
    """Check a call, turn its q and k, choose a backend, and run it."""
    check(call)
    call = turn(call, turned)
    if turns_by_length(call.enc):
        if details:
            raise ValueError(f"{call.enc!r} is several encodings in one pass; ask for details with enc.at(length)")
        return lengths.attend_by_length(call, lambda part, turned: _attend(part, turned, backend))
    if backend == "auto":
        backend = _choose(call)[0]
    elif backend != "reference":
        reason = _FAST[backend].obstacle(call)
        if reason is not None:
            raise ValueError(
                f"backend {backend!r} can't do this for {call.enc!r}: {reason}; backend='auto' finds one that can"
            )
    spoilt: Tensor | None = None
    transformed = hidden.transformed()
    if not hidden.all_seen(call) and (
        torch.compiler.is_compiling()
        or transformed  # no number may be looked at
        or (call.q.device.type == "cpu" and not hidden.finite(call.q, call.k, call.v))
    ):
        call, spoilt = hidden.repaired_call(call)
    if details:
        dense = reference(call)
        return dense if spoilt is None else Attended(*(part + spoilt for part in dense))
    if backend == "reference":
        out = reference(call).output
    elif transformed:  # an opaque operator has no derivative in forward mode, and can't be mapped
        out = chunked.run(call)
    else:
        out = _FAST[backend].run(call)
    return out if spoilt is None else out + spoilt


def explain(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    enc: Encoding | None = None,
    *,
    at: Layout | None = None,
    to: Layout | None = None,
    causal: bool = True,
) -> Choice:
    """Which backend `attend` would take for this, and why."""
    enc = Encoding() if enc is None else enc
    at, to = _layouts(q, k, at, to)
    shard = enc.heads is not None and q.shape[1] != enc.heads
    call = Call(q, k, v, enc, at, to, causal, 1.0, 0 if shard else None)
    check(call)
    if turns_by_length(enc):
        return Choice(
            "by length",
            f"{enc!r} depends on the length: one attention for each text or stage, each with the backend that fits",
        )
    backend, passed = _choose(call)
    return Choice(backend, "; ".join([_GOOD[backend], *(f"not {name}: {reason}" for name, reason in passed)]))


_GOOD = {
    "sdpa": "position came in through embeddings, queries and keys; torch's fused kernel does the rest",
    "toeplitz": "the bias is a function of i - j over neighbours: a view of I + J numbers a head, no I x J tensor",
    "relative": "content meets vectors of the distance i - j: one more product as the flash kernel's mask, of a band "
    "alone where far distances are scored alike",
    "by_row": "a bias that is quickly made for a strip of rows at a time, as the flash kernel's mask",
    "flex": "a bias from positions on a GPU: FlexAttention's score_mod",
    "chunked": "works for anything, a few rows of queries at a time",
}


def _choose(call: Call) -> tuple[str, list[tuple[str, str]]]:
    """The fastest exact backend, and what the faster ones lack."""
    passed: list[tuple[str, str]] = []
    on_cpu = call.q.device.type == "cpu"
    for name in ("sdpa", "toeplitz", "relative", "by_row", "chunked") if on_cpu else ("sdpa", "flex", "chunked"):
        reason = _FAST[name].obstacle(call)
        if reason is None:
            return name, passed
        passed.append((name, reason))
    raise AssertionError("chunked does everything")


def _layouts(q: Tensor, k: Tensor, at: Layout | None, to: Layout | None) -> tuple[Layout, Layout]:
    """The layouts that were meant where they were left out."""
    for name, t in (("q", q), ("k", k)):
        if t.dim() != 4:
            raise ValueError(f"{name} must have shape (B, H, L, D), got {tuple(t.shape)}")
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


def check(call: Call) -> None:
    """Raise ValueError unless all that a call is about fits together."""
    q, k, v, enc, at, to = call.q, call.k, call.v, call.enc, call.at, call.to
    if v.dim() != 4:
        raise ValueError(f"v must have shape (B, H, L, D), got {tuple(v.shape)}")
    if not q.dtype == k.dtype == v.dtype or not q.is_floating_point():
        raise ValueError(f"q, k and v must share one floating dtype, got {q.dtype}, {k.dtype}, {v.dtype}")
    if not q.device == k.device == v.device == at.index.device == to.index.device:
        raise ValueError(
            f"q, k, v and the layouts must be on one device, got {q.device}, {k.device}, {v.device}, "
            f"{at.index.device}, {to.index.device}"
        )
    if q.shape[0] != k.shape[0] or k.shape[:3] != v.shape[:3] or q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"shapes do not fit: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}; wanted (B,H,I,D), "
            "(B,G,J,D), (B,G,J,Dv)"
        )
    if k.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(f"{q.shape[1]} query heads can't share {k.shape[1]} key heads evenly")
    for name, layout, x in (("at", at, q), ("to", to, k)):
        if layout.length != x.shape[-2] or layout.batch not in (1, x.shape[0]):
            raise ValueError(
                f"`{name}` is a layout of {layout.batch} x {layout.length} tokens for a tensor of {x.shape[0]} x "
                f"{x.shape[-2]}"
            )
    if enc.heads is not None:
        first = call.first_head or 0
        if first < 0 or first + q.shape[1] > enc.heads or (call.first_head is None and q.shape[1] != enc.heads):
            raise ValueError(
                f"{enc!r} is for {enc.heads} heads, q has {q.shape[1]} from head {first}; "
                "make the encoding for q's heads, or say with first_head= which of its heads these are"
            )
        if enc.content_dependent and q.shape[1] != enc.heads:
            raise ValueError(
                f"{enc!r} scores content with parameters of {enc.heads} heads; for a shard of {q.shape[1]}, make an "
                "encoding with those heads' parameters"
            )
    if enc.head_dim is not None and enc.content_dependent and enc.head_dim != q.shape[-1]:
        raise ValueError(f"{enc!r} is for head_dim={enc.head_dim}, q has {q.shape[-1]}")
    if enc.causal_only and not call.causal:
        raise ValueError(
            f"{enc!r} has no meaning for keys after the query; attend with causal=True, or choose a two-sided mode"
        )
    lengths.check_keys(enc, to)
    if not torch.compiler.is_compiling():
        enc.check(at)
        if to is not at:
            enc.check(to)
