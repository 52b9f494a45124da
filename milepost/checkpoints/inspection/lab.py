"""A model of the lab: model.json holds its shape, and the spec of each layer's encoding.

Read without torch, so specs are taken apart here.

{"shape": {"layers": 3, "width": 96, "heads": 4, "length": 64, ...}, "encodings": ["rope(base=500.0)", ...]}
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from milepost.checkpoints.files import StoredTensor, ending
from milepost.checkpoints.inspection.families import NO_SCALING, published_slopes
from milepost.checkpoints.inspection.parts import (
    CONTENT,
    EMBEDDING,
    LOGITS,
    ROTATED,
    InspectedLayer,
    LearnedTable,
    Length,
    Positions,
)
from milepost.checkpoints.inspection.rope import FULL
from milepost.checkpoints.inspection.rope import layer as rope_layer
from milepost.encodings import NAMES, SPACE
from milepost.encodings.catalogue import page
from milepost.rope import LayerRope, RopeSpec
from milepost.rope.config.keys import ConfigError, ConfigKeys, short
from milepost.rope.config.read_rope import LARGEST_HEAD
from milepost.scaling import SCALINGS

PLACES = {"embed": EMBEDDING, "query": ROTATED, "key": ROTATED, "bias": LOGITS}
"""Where each point acts; all others act by content."""
LARGEST = {"layers": 1 << 12, "width": 1 << 20, "heads": 1 << 10, "length": 1 << 40}
"""Sizes that a lab model may have: far above any, and small enough to be listed."""
INIT = 0.02
"""The standard deviation of every table of milepost's own."""


@dataclass(frozen=True)
class SpecCall:
    """``rope(base=500.0)``: a name and its arguments, which may be calls."""

    name: str
    given: dict[str, Any] = field(default_factory=dict)
    text: str = ""


def positions(
    about: Mapping[str, Any], tensors: Mapping[str, StoredTensor], length: int | None
) -> tuple[Positions, RopeSpec | None]:
    """What model.json says; and a RopeSpec, where layers turn."""
    keys = ConfigKeys(about)
    shape, listed = keys.inner("shape"), keys.items("encodings")
    sizes = {} if shape is None else {name: shape.whole(name, most=most) for name, most in LARGEST.items()}
    if (
        shape is None
        or listed is None
        or any(size is None for size in sizes.values())
        or not all(isinstance(text, str) for text in listed.value)
    ):
        raise ConfigError(
            "model.json is not that of a lab model: it needs a shape (layers, width, heads, length), and a list of "
            "encodings"
        )
    count, width, heads, trained = (size.value for size in sizes.values() if size is not None)
    if len(listed.value) != count or width % heads:
        raise ConfigError(
            f"model.json has {count} layers, {len(listed.value)} encodings, and a width of {width} for {heads} heads: "
            "that can't be"
        )
    terms = [_terms(text) for text in listed.value]
    ropes = [next((_rope(call, width // heads) for call in calls if call.name == "rope"), None) for calls in terms]
    layers = tuple(
        _layer(n, calls, rope, heads, length or trained)
        for n, (calls, rope) in enumerate(zip(terms, ropes, strict=True))
    )
    where = [
        PLACES.get(point, CONTENT)
        for calls in terms
        for call in calls
        if call.name in NAMES | SPACE
        for point in page(call.name).points
    ]
    notes = [
        f"{call.name} is not milepost's own: what it does is not known here"
        for calls in terms
        for call in calls
        if ":" in call.name
    ]
    table = next((_table(call, trained, width, tensors) for call in terms[0] if call.name == "learned"), None)
    length_trained = Length(trained, "shape.length")
    served = (
        Length(None, "no table ends") if table is None else Length(table.usable, "shape.length (the table ends there)")
    )
    made = Positions(
        tuple(dict.fromkeys(where)),
        layers,
        () if table is None else (table,),
        length_trained,
        replace(length_trained, source=NO_SCALING),
        served,
        tuple(dict.fromkeys(notes)),
        INIT,
    )
    spec = _spec(ropes, trained)
    if spec is not None and spec.main.scaling is not None:
        made = replace(made, scaled=Length(spec.scaled, "the encoding's scaling"))
    return made, spec


def _table(call: SpecCall, length: int, width: int, tensors: Mapping[str, StoredTensor]) -> LearnedTable:
    usable, offset = int(call.given.get("length", length)), int(call.given.get("offset", 0))
    held = [
        one
        for one in ending(tensors, "table")
        if one.name.startswith("blocks.0.enc.") and one.shape == (usable + offset, width)
    ]
    return LearnedTable(
        usable + offset, usable, offset, width, held[0].name if len(held) == 1 else None, source="encodings"
    )


def _layer(number: int, calls: list[SpecCall], rope: LayerRope | None, heads: int, length: int) -> InspectedLayer:
    """The terms of one layer in one row; what only embeds is no part of it."""
    inside = [
        call
        for call in calls
        if ":" in call.name or call.name not in NAMES | SPACE or set(page(call.name).points) - {"embed"}
    ]
    made = rope_layer(number, FULL, rope, None, length) if rope is not None else InspectedLayer(number, "none")
    made = replace(made, scheme=" + ".join(call.name for call in inside) or "none")
    for call in inside:
        if call.name == "alibi":
            made = replace(made, slopes=tuple(call.given.get("slopes") or published_slopes(heads)))
        elif call.name == "t5":
            made = replace(
                made,
                buckets=call.given.get("buckets", 32),
                max_distance=call.given.get("max_distance", 128),
                both_sides=call.given.get("mode") == "bidirectional",
            )
    return made


def _spec(ropes: list[LayerRope | None], trained: int) -> RopeSpec | None:
    """One kind where all layers turn alike, else a kind for each rotation."""
    different = list(dict.fromkeys(ropes))
    if not any(different):
        return None
    names = {
        rope: "all" if len(different) == 1 else "no rotation" if rope is None else f"rotation {n}"
        for n, rope in enumerate(different)
    }
    return RopeSpec(
        tuple((names[rope], rope) for rope in different),
        tuple(names[rope] for rope in ropes),
        trained,
        None,
        "lab",
        {"trained": "shape.length"},
    )


def _rope(call: SpecCall, head_dim: int) -> LayerRope:
    given = dict(call.given)
    if given.get("partial", "prefix") != "prefix":
        raise ConfigError(
            f"{short(call.text)}: a RopeSpec holds the first channels of a head; partial={given['partial']!r} is not "
            "read here"
        )
    stretch = given.get("scaling")
    rotary = given.get("rotary")
    try:
        size = int(given.get("head_dim", head_dim))
        if size > LARGEST_HEAD:
            raise ValueError(f"a head has at most {LARGEST_HEAD} channels, got {size}")
        if not isinstance(stretch, SpecCall | None):
            raise ValueError(f"a scaling is a call such as yarn(factor=4.0, trained=64), got {stretch!r}")
        made = None if stretch is None else _scaling(stretch)
        return LayerRope(
            size,
            float(given.get("base", 10000.0)),
            size if rotary is None else int(rotary),
            given.get("pairing", "half"),
            made,
        )
    except (TypeError, ValueError) as error:
        raise ConfigError(f"model.json: {short(call.text)}: {error}") from None


def _scaling(call: Any) -> Any:
    if isinstance(call, tuple):
        return tuple(map(_scaling, call))
    if not isinstance(call, SpecCall):
        return call
    if call.name not in SCALINGS:
        raise ValueError(f"{call.name} is no scaling of milepost's own, and is not read here")
    return SCALINGS[call.name](**{word: _scaling(value) for word, value in call.given.items()})


# -- specs taken apart -----------------------------------------------------------------------------------------------


def _terms(text: str) -> list[SpecCall]:
    """``learned + rope(base=500.0)`` as two calls."""
    try:
        node: ast.expr = ast.parse(text.strip().replace(":", ".__class__."), mode="eval").body
        later = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            later.append(_value(node.right))
            node = node.left
        calls = [_value(node), *reversed(later)]
    except (SyntaxError, ValueError, RecursionError):
        calls = [None]
    if not all(isinstance(call, SpecCall) for call in calls):
        raise ConfigError(f"model.json has an encoding that is no spec: {short(text)}")
    return calls


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Tuple):
        return tuple(map(_value, node.elts))
    if isinstance(node, ast.Call | ast.Name | ast.Attribute):
        name = ast.unparse(node.func if isinstance(node, ast.Call) else node).replace(".__class__.", ":")
        given = {word.arg or "": _value(word.value) for word in node.keywords} if isinstance(node, ast.Call) else {}
        return SpecCall(name, given, ast.unparse(node).replace(".__class__.", ":"))
    return ast.literal_eval(node)
