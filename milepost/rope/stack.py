"""The text of a model's stack: what `milepost.build` reads as `layers(...)`, from a `RopeSpec`. No torch.

    stack_text(RopeSpec.from_config("Llama-4-Scout"))
    layers(3 * rope(head_dim=128, base=500000.0, pairing='interleaved'), temperature(length=8192))

The pattern is the shortest that repeats to the last layer. A kind of layer without a rotation is `nope()`, or its
temperature alone. A spec holds no windows: they are given by the kind of layer, or one for each layer. `left_out` says
what a spec has that no such text can say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any

from milepost.rope.spec import LayerRope, RopeSpec
from milepost.rope.temperature import QueryTemperature

NOTHING: Mapping[str, Any] = MappingProxyType({})


def stack_text(
    spec: RopeSpec,
    *,
    windows: Mapping[str, int | None] | Sequence[int | None] = NOTHING,
    temperatures: Mapping[str, str] = NOTHING,
) -> str:
    """The spec text of all layers: one encoding where all are alike, else ``layers(...)``.

    ``windows`` has the tokens that layers of a kind see, or that each layer sees; ``temperatures`` the text of what
    sharpens the queries of a kind, in place of the spec's own.
    """
    kinds = dict(spec.kinds)
    by_kind = windows if isinstance(windows, Mapping) else NOTHING
    for name, given in (("windows", by_kind), ("temperatures", temperatures)):
        unknown = sorted(set(given) - set(kinds))
        if unknown:
            raise ValueError(f"{name} are given for {', '.join(unknown)}; the kinds of layers are {', '.join(kinds)}")
    order = spec.layers or (spec.kinds[0][0],)
    seen = [by_kind.get(kind) for kind in order]
    if not isinstance(windows, Mapping):
        order, seen = spec.layers or (order[0],) * len(windows), list(windows)
        if len(seen) != len(order):
            raise ValueError(f"{len(seen)} windows are given for {len(order)} layers: there is one for each")
    sharpened = {kind: _temperature(tau) for kind, tau in spec.temperatures} | dict(temperatures)
    texts = {kind: _text(rope, sharpened.get(kind)) for kind, rope in kinds.items()}
    return pattern_text([(texts[kind], window) for kind, window in zip(order, seen, strict=True)])


def pattern_text(layers: Sequence[tuple[str, int | None]]) -> str:
    """The text of layers, each the text of its encoding and its window (None: it sees all)."""
    period = next(p for p in range(1, len(layers) + 1) if all(layers[n] == layers[n % p] for n in range(len(layers))))
    groups = [(len(list(same)), *layer) for layer, same in groupby(layers[:period])]
    if len(groups) == 1 and groups[0][2] is None:
        return groups[0][1]
    return f"layers({', '.join(_group(*group) for group in groups)})"


def left_out(spec: RopeSpec) -> list[str]:
    """What the text of a spec does not say, a sentence each."""
    ropes = list(spec.ropes().values())
    sentences = {
        "it is the last channels of a head that turn, and rope() turns the first": any(r.suffix for r in ropes),
        "head_dim is the part of a head that turns, and one key serves all heads": any(r.one_key for r in ropes),
        "values turn too, by frequencies that are scaled, and vo_rope() has none": any(
            r.values and r.scaling is not None for r in ropes
        ),
        "what chooses keys (the indexer) has a rope of its own": any(r.indexer is not None for r in ropes),
        "the softmax scale is multiplied by " + ", ".join(sorted({f"{r.softmax:.6g}" for r in ropes})): any(
            r.softmax != 1 for r in ropes
        ),
    }
    return [sentence for sentence, true in sentences.items() if true]


def _temperature(tau: QueryTemperature) -> str:
    """A temperature by position as an encoding prints itself."""
    length = int(tau.n) if tau.n == int(tau.n) else tau.n
    words = {"form": (tau.form, "llama4"), "rate": (tau.a, 0.1)}
    return (
        ", ".join(
            [
                f"temperature(length={length}",
                *(f"{name}={value!r}" for name, (value, usual) in words.items() if value != usual),
            ]
        )
        + ")"
    )


def _text(rope: LayerRope | None, temperature: str | None) -> str:
    if rope is None:
        return temperature or "nope()"
    words: dict[str, tuple[Any, Any]] = {  # as an encoding prints itself: what differs from its default
        "sections": (rope.sections, None),
        "order": ("interleaved" if rope.sections_interleaved else "chunked", "chunked"),
        "base": (rope.base, 10000.0),
        "pairing": (rope.pairing, "half"),
        "rotary": (rope.rotary, rope.head_dim),
        "scaling": (rope.scaling, None),
    }
    text = _call("rope" if rope.sections is None else "mrope", rope.head_dim, words)
    if rope.values and rope.scaling is None:
        of_values = {name: words[name] for name in ("base", "pairing", "rotary")}
        text += " + " + _call("vo_rope", rope.head_dim, of_values | {"pairing": (rope.pairing, "interleaved")})
    return f"{text} + {temperature}" if temperature else text


def _call(name: str, head_dim: int, words: Mapping[str, tuple[Any, Any]]) -> str:
    shown = [f"head_dim={head_dim}", *(f"{word}={v!r}" for word, (v, usual) in words.items() if v != usual)]
    return f"{name}({', '.join(shown)})"


def _group(count: int, text: str, window: int | None) -> str:
    text = f"({text})" if count > 1 and " + " in text else text
    return (f"{count} * {text}" if count > 1 else text) + (f" in window({window})" if window is not None else "")
