"""Laws of state: nothing hidden, nothing shared, nothing lost; and the graph is one."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor

from milepost.encoding import Encoding
from milepost.layout import Layout
from milepost.spec import build
from milepost.testing.layer import (
    TEXT,
    Broken,
    Layer,
    bit_equal,
    codes,
    dense,
    outputs,
    plain_at,
    same,
    same_bits,
    starts,
    tokens_of,
)


def rebuilt(enc: Encoding) -> None:
    """build(repr(enc)), given the state_dict, is the same encoding to the last bit."""
    again = build(repr(enc)).double()
    if repr(again) != repr(enc):
        raise Broken(f"{enc!r} came back as {again!r}")
    again.load_state_dict(enc.state_dict())
    bit_equal(enc, again, "after build(repr(enc))")


def state(enc: Encoding) -> None:
    """The state_dict holds what learns and nothing else, and copies share nothing."""
    extra = set(enc.state_dict()) - {name for name, _ in enc.named_parameters()}
    if extra:
        raise Broken(f"not parameters, yet in the state_dict: {sorted(extra)}")
    before, other = outputs(enc), copy.deepcopy(enc)
    with torch.no_grad():
        for p in other.parameters():
            p.add_(1.0)
    outputs(other)
    same_bits(before, outputs(enc), "after a copy's parameters were changed")


def casts(enc: Encoding) -> None:
    """Casting to half precision and back, or building on the meta device, moves nothing but parameters."""
    saved = enc.state_dict()
    for name, cast in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
        other = copy.deepcopy(enc).to(cast).double()
        other.load_state_dict(saved)
        bit_equal(enc, other, f"after .to({name})")
    with torch.device("meta"):
        lazy = build(repr(enc))
    lazy = lazy.to_empty(device="cpu").double()
    lazy.load_state_dict(saved)
    bit_equal(enc, lazy, "after meta and to_empty")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        same_bits(codes(enc), codes(lazy), "under autocast")
    same_bits(codes(enc), codes(lazy), "after autocast")


def history(enc: Encoding) -> None:
    """What was asked before changes nothing: long, short, and long again give the same numbers."""
    before = outputs(enc)
    layer = Layer(plain_at(enc, 4))
    for n, start in ((4, 0), (tokens_of(enc), starts(enc)[-1]), (2, 1)):
        if enc.sides is None and (enc.end is None or start + n <= enc.end):
            layer(layer.text(n), dense(enc, n, start))
    same_bits(before, outputs(enc), "after other texts")


def far(enc: Encoding) -> None:
    """At every position up to 1048575 the encoding works, or says in a sentence why not; it never stands still."""
    plain = plain_at(enc, TEXT)
    layer = Layer(plain)
    if plain.sides is not None:
        _past_every_side(plain, layer)
        return
    for p in (0, 1, 255, 256, 257, 4095, 4096, 4097, 16384, 131071, 1048575):
        at = dense(plain, 2, p)
        if plain.end is not None and p + 2 > plain.end:
            try:
                layer(layer.text(2), at)
            except ValueError as error:
                if str(p + 1) not in str(error):
                    raise Broken(f"the error at position {p + 1} does not name it: {error}") from None
                continue
            if not set(plain.points) & {"embed", "query", "key"}:
                continue
            raise Broken(f"position {p + 1} is past the end {plain.end}, yet raised nothing")
        if not layer(layer.text(2), at).isfinite().all():
            raise Broken(f"not finite at position {p}")
        if p >= 131071:
            ones = torch.ones(1, layer.heads, 1, layer.head_dim, dtype=torch.float64)
            for name in {"embed", "query", "key", "value", "restore"} & set(plain.points):
                hook, x = getattr(plain, name), layer.text(1) if name == "embed" else ones
                if torch.equal(hook(x, dense(plain, 1, p).pos), hook(x, dense(plain, 1, p + plain.step).pos)):
                    raise Broken(f"{name}() is the same at positions {p} and {p + plain.step}")


def _past_every_side(enc: Encoding, layer: Layer) -> None:
    """On a grid with an end, the last place of each axis works, and the one after it raises a sentence that names
    it.
    """
    for axis, side in enumerate(enc.sides or ()):
        pos = torch.zeros(enc.axes, 1, 1, dtype=torch.long)
        for place in (side - 1, side, side + 131071):
            pos[axis] = place
            at = Layout.dense(1).with_positions(pos.clone())
            try:
                layer(layer.text(1), at)
            except ValueError as error:
                if place < side or str(place) not in str(error):
                    raise Broken(f"place {place} on axis {axis} of {side}: {error}") from None
                continue
            if place >= side:
                raise Broken(f"place {place} on axis {axis} is past its {side} places, yet raised nothing")


def compiles(enc: Encoding) -> None:
    """The hooks compile whole, as one graph for all lengths, and so does reference attention."""
    enc = plain_at(enc, TEXT)
    layer = Layer(enc)
    graphs: list[int] = []

    def count(graph: Any, inputs: Any) -> Any:
        graphs.append(1)
        return graph.forward

    def hooks(x: Tensor, q: Tensor, pos: Tensor) -> tuple[Tensor, ...]:
        h = torch.arange(layer.heads)[:, None, None]
        bias = enc.bias(h, pos[..., 0, :, None], pos[..., 0, None, :]) if "bias" in enc.points else q
        seen = enc.embed(x, pos)
        numbers = enc.features(seen, pos) if enc.feature_count else seen
        turned = enc.query(q, pos), enc.key(q, pos), enc.value(q, pos), enc.restore(q, pos)
        return seen, numbers, *turned, bias

    def whole(x: Tensor) -> Tensor:
        return layer(x, dense(enc, x.shape[1]))

    for what, function, limit in (("hooks", hooks, 1), ("reference attention", whole, 2)):
        torch._dynamo.reset()
        graphs.clear()
        compiled = torch.compile(function, fullgraph=True, dynamic=True, backend=count)
        for n in (5, 7, 11):
            if enc.end is not None and n > enc.end:
                continue
            x, q = layer.text(n), torch.randn(2, layer.heads, n, layer.head_dim, dtype=torch.float64)
            given = (x, q, dense(enc, n).pos) if what == "hooks" else (x,)
            plain, ours = function(*given), compiled(*given)
            for a, b in zip(plain, ours, strict=True):
                same(a, b, n, f"{what}, compiled, at length {n}")
        if len(graphs) > limit:
            raise Broken(f"{what}: {len(graphs)} graphs over three lengths, {limit} permitted")
    torch._dynamo.reset()
