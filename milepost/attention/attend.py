"""attend: the checks, the choice of a backend, and the call."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, overload

import torch
from torch import Tensor

from milepost.attention import hidden, lengths
from milepost.attention.backends import by_row, chunked, counted, flex, keyed, relative, sdpa, toeplitz
from milepost.attention.backends.reference import Attended, reference
from milepost.attention.call import Call
from milepost.attention.running import run_along
from milepost.attention.turning import Turned, turn, turns_by_length
from milepost.encoding import Encoding
from milepost.layout import Layout

_FAST = {
    "sdpa": sdpa, "toeplitz": toeplitz, "keyed": keyed, "relative": relative, "by_row": by_row, "counted": counted,
    "flex": flex, "chunked": chunked,
}  # fmt: skip
BACKENDS = ("auto", "reference", *_FAST)
ON_CPU, ON_GPU = ("sdpa", "toeplitz", "keyed", "relative", "by_row", "counted", "chunked"), ("sdpa", "flex", "chunked")
"""What "auto" tries, the fastest first."""
Features = Tensor | tuple[Tensor, Tensor]


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
    features: Features | None = ...,
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
    features: Features | None = ...,
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
    features: Features | None = None,
    details: bool = False,
) -> Tensor | Attended:
    """Attention of q (B H I D) to k (B G J D) and v (B G J Dv), G dividing H, with the position of ``enc``: B H I Dv.

    q and k come as they are, and are turned here: ``enc.query(q, at.pos)``, ``enc.key(k, to.pos)``. ``turned=True``
    says that both were turned before, ``turned="keys"`` that the keys were. ``at`` says where the queries are (by
    default dense: the last I of J tokens), ``to`` where the keys are (by default the same as ``at``, or dense).
    ``scale`` is 1/sqrt(D) unless given.
    ``first_head`` is the global number of head 0 where q holds a shard of the heads. ``features`` is what
    ``enc.features(x, at.pos)`` gives for the hidden states, where the encoding asks for it: (B L N), or a pair for the
    tokens of the queries and of the keys. With ``details`` the answer is ``Attended(output, logits, weights)``.
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
    f, g = (None, None) if features is None else _both(features, enc, q, k)
    call = Call(q, k, v, enc, at, to, causal, scale, first_head, f, g)
    answer: Tensor | Attended = _attend(call, turned, "reference" if details else backend, details)
    return answer


def _attend(call: Call, turned: Turned, backend: str, details: bool = False) -> Any:
    """Check a call, turn its q, k and v, choose a backend, and run it."""
    check(call)
    raw, call = call, turn(call, turned)
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
        or (call.q.device.type == "cpu" and not hidden.finite(call.q, call.k, call.v, *call.numbers))
    ):
        if call is not raw and _learns(call):  # numbers that turn learn from whole tokens alone
            _, spoilt = hidden.repaired_call(call)
            call = turn(hidden.whole_tokens(raw), turned)
            call, _ = hidden.repaired_call(call)
        else:
            call, spoilt = hidden.repaired_call(call)
    if call.enc.running:
        call = run_along(call)
    if details:
        dense = reference(call)
        dense = dense if spoilt is None else Attended(*(part + spoilt for part in dense))
        return dense._replace(output=_restored(call, dense.output)) if "restore" in call.enc.points else dense
    if backend == "reference":
        out = reference(call).output
    elif transformed:  # an opaque operator has no derivative in forward mode, and can't be mapped
        out = chunked.run(call)
    else:
        out = _FAST[backend].run(call)
    out = out if spoilt is None else out + spoilt
    return _restored(call, out) if "restore" in call.enc.points else out


def _learns(call: Call) -> bool:
    return torch.is_grad_enabled() and any(p.requires_grad for p in call.enc.parameters())


def _restored(call: Call, out: Tensor) -> Tensor:
    """The output by the queries' positions, where the encoding turned values by the keys'."""
    return call.enc.restore(out, call.at.pos)


def _both(features: Features, enc: Encoding, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """The features of the queries' tokens and of the keys' (of width 0 where only the queries' enter)."""
    if enc.keyless and enc.feature_count:
        f = features if isinstance(features, Tensor) else features[0]
        return f, f.new_empty(k.shape[0], k.shape[2], 0)
    if isinstance(features, Tensor):
        if q.shape[2] != k.shape[2]:
            raise ValueError(
                f"features of {tuple(features.shape)} for {q.shape[2]} queries and {k.shape[2]} keys: give a pair, "
                "features=(of the queries' tokens, of the keys'); cache.features has those of a cache"
            )
        return features, features
    if not isinstance(features, tuple | list) or len(features) != 2:
        raise ValueError(f"features is a tensor (B, L, N), or a pair of them, got {type(features).__name__}")
    return features[0], features[1]


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
    if enc.feature_count:
        of_queries, of_keys = (t.new_zeros(t.shape[0], t.shape[2], enc.feature_count) for t in (q, k))
        f, g = _both((of_queries, of_keys), enc, q, k)
        call = replace(call, f=f, g=g)
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
    "keyed": "the hidden state enters as one number a key: a row of the flash kernel's mask, no I x J tensor",
    "relative": "content meets vectors of the distance i - j: one more product as the flash kernel's mask, of a band "
    "alone where far distances are scored alike",
    "by_row": "a bias that is quickly made for a strip of rows at a time, as the flash kernel's mask",
    "counted": "a count of gates that has reached its end is alike for all keys farther away: only the keys near each "
    "query are looked up, the others go through the flash kernel",
    "flex": "a bias from positions on a GPU: FlexAttention's score_mod",
    "chunked": "works for anything, a few rows of queries at a time",
}


def _choose(call: Call) -> tuple[str, list[tuple[str, str]]]:
    """The fastest exact backend, and what the faster ones lack."""
    passed: list[tuple[str, str]] = []
    for name in ON_CPU if call.q.device.type == "cpu" else ON_GPU:
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


def _check_features(call: Call) -> None:
    """Raise ValueError unless the features are those that the encoding asks for."""
    enc, q, count = call.enc, call.q, call.enc.feature_count
    if not count:
        raise ValueError(f"{enc!r} asks for no features of the hidden states; leave features= out")
    of_keys = 0 if enc.keyless else count
    for name, given, wanted in (
        ("queries", call.f, (q.shape[0], q.shape[2], count)),
        ("keys", call.g, (q.shape[0], call.k.shape[2], of_keys)),
    ):
        check_features(enc, given, wanted, f"the {name}' tokens")
        if given is not None and given.device != q.device:
            raise ValueError(f"features must be on {q.device} as q is, got {given.device}")


def check_features(enc: Encoding, f: Tensor | None, wanted: tuple[int, int, int], whose: str) -> None:
    """Raise ValueError unless ``f`` holds the features of so many tokens."""
    if f is None:
        raise ValueError(
            f"{enc!r} needs features of the hidden states of {whose}: give features=enc.features(x, at.pos), x being "
            "what q, k and v were projected from; milepost.Attention does so"
        )
    if tuple(f.shape) != wanted or not f.is_floating_point():
        raise ValueError(
            f"features of {whose} for {enc!r} have shape (B, L, N) = {wanted}, got {str(f.dtype)[6:]} of "
            f"{tuple(f.shape)}; enc.features(x, at.pos) gives them"
        )


def _not_fitting(name: str, layout: Layout, batch: int, length: int) -> str:
    return f"`{name}` is a layout of {layout.batch} x {layout.length} tokens for a tensor of {batch} x {length}"


def check(call: Call) -> None:
    """Raise ValueError unless all that a call is about fits together."""
    q, k, v, enc, at, to = call.q, call.k, call.v, call.enc, call.at, call.to
    if v.dim() != 4:
        raise ValueError(f"v must have shape (B, H, L, D), got {tuple(v.shape)}")
    if not q.dtype == k.dtype == v.dtype or not q.is_floating_point():
        raise ValueError(f"q, k and v must share one floating dtype, got {q.dtype}, {k.dtype}, {v.dtype}")
    device = q.device
    if not device == k.device == v.device == at.index.device or (to is not at and to.index.device != device):
        raise ValueError(
            f"q, k, v and the layouts must be on one device, got {q.device}, {k.device}, {v.device}, "
            f"{at.index.device}, {to.index.device}"
        )
    (batch, heads, queries, width), (key_batch, key_heads, keys, key_width) = q.shape, k.shape
    if batch != key_batch or width != key_width or v.shape[:3] != (batch, key_heads, keys):
        raise ValueError(
            f"shapes do not fit: q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}; wanted (B,H,I,D), "
            "(B,G,J,D), (B,G,J,Dv)"
        )
    if key_heads == 0 or heads % key_heads:
        raise ValueError(f"{heads} query heads can't share {key_heads} key heads evenly")
    if at.length != queries or at.batch not in (1, batch):
        raise ValueError(_not_fitting("at", at, batch, queries))
    if (to is not at or keys != queries) and (to.length != keys or to.batch not in (1, batch)):
        raise ValueError(_not_fitting("to", to, batch, keys))
    if enc.heads is not None:
        first = call.first_head or 0
        if first < 0 or first + q.shape[1] > enc.heads or (call.first_head is None and q.shape[1] != enc.heads):
            raise ValueError(
                f"{enc!r} is for {enc.heads} heads, q has {q.shape[1]} from head {first}; "
                "make the encoding for q's heads, or say with first_head= which of its heads these are"
            )
        if enc.scores_content and q.shape[1] != enc.heads:
            raise ValueError(
                f"{enc!r} scores content with parameters of {enc.heads} heads; for a shard of {q.shape[1]}, make an "
                "encoding with those heads' parameters"
            )
    if enc.feature_count or call.f is not None or call.g is not None:
        _check_features(call)
    if enc.head_dim is not None and enc.scores_content and enc.head_dim != q.shape[-1]:
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
