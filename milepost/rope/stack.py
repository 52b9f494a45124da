"""The text of a model's stack: what `milepost.build` reads as `layers(...)`, from a `RopeSpec`. No torch.

    stack_text(RopeSpec.from_config("Llama-4-Scout"), temperatures={"no_rope": "temperature(length=8192)"})
    layers(3 * rope(head_dim=128, base=500000.0, pairing='interleaved'), temperature(length=8192))

The pattern is the shortest that repeats to the last layer. A kind of layer without a rotation is `nope()`. What a spec
does not hold, windows and temperatures by position, is given by the kind of layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from types import MappingProxyType
from typing import Any

from milepost.rope.spec import LayerRope, RopeSpec

NOTHING: Mapping[str, Any] = MappingProxyType({})


def stack_text(
    spec: RopeSpec, *, windows: Mapping[str, int | None] = NOTHING, temperatures: Mapping[str, str] = NOTHING
) -> str:
    """The spec text of all layers: one encoding where all are alike, else ``layers(...)``.

    ``windows`` has the tokens that layers of a kind see, ``temperatures`` the spec of what sharpens their queries.
    """
    kinds = dict(spec.kinds)
    for name, given in (("windows", windows), ("temperatures", temperatures)):
        unknown = sorted(set(given) - set(kinds))
        if unknown:
            raise ValueError(f"{name} are given for {', '.join(unknown)}; the kinds of layers are {', '.join(kinds)}")
    order = spec.layers or (spec.kinds[0][0],)
    texts = {kind: _text(rope, windows.get(kind), temperatures.get(kind)) for kind, rope in kinds.items()}
    by_layer = [texts[kind] for kind in order]
    period = next(p for p in range(1, len(order) + 1) if all(by_layer[n] == by_layer[n % p] for n in range(len(order))))
    groups = [(len(list(same)), *text) for text, same in groupby(by_layer[:period])]
    if len(groups) == 1 and groups[0][2] is None:
        return groups[0][1]
    return f"layers({', '.join(_group(*group) for group in groups)})"


def _text(rope: LayerRope | None, window: int | None, temperature: str | None) -> tuple[str, int | None]:
    if rope is None:
        return temperature or "nope()", window
    words: dict[str, tuple[Any, Any]] = {  # as an encoding prints itself: what differs from its default
        "sections": (rope.sections, None),
        "order": ("interleaved" if rope.sections_interleaved else "chunked", "chunked"),
        "base": (rope.base, 10000.0),
        "pairing": (rope.pairing, "half"),
        "rotary": (rope.rotary, rope.head_dim),
        "scaling": (rope.scaling, None),
    }
    shown = [f"head_dim={rope.head_dim}", *(f"{word}={v!r}" for word, (v, usual) in words.items() if v != usual)]
    text = f"{'rope' if rope.sections is None else 'mrope'}({', '.join(shown)})"
    return f"{text} + {temperature}" if temperature else text, window


def _group(count: int, text: str, window: int | None) -> str:
    text = f"({text})" if count > 1 and " + " in text else text
    return (f"{count} * {text}" if count > 1 else text) + (f" in window({window})" if window is not None else "")
