"""What was measured, as a `RopeSpec` and as the layers of an inspection.

A measured table is given the name that the config has for it, where the two agree (a base, yarn with its keys); else
that of plain frequencies; else every frequency stands for itself, as a factor of each pair.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from milepost.checkpoints.families.measure import MeasuredFamily, MeasuredLayer, MeasuredTurn, close, main_layers
from milepost.checkpoints.inspection.parts import (
    EMBEDDING,
    LOGITS,
    ROTATED,
    InspectedLayer,
    LearnedTable,
    Length,
    Positions,
)
from milepost.rope import LayerRope, RopeSpec
from milepost.rope.config import config_json
from milepost.rope.config.keys import ConfigError, ConfigKeys
from milepost.rope.temperature import FORMS, QueryTemperature
from milepost.scaling import LongRoPE

KINDS = {
    "sliding_window": "sliding_attention",
    "attention_chunk_size": "chunked_attention",
    "local_attention": "sliding_attention",
}
HELD = 1e12
"""The largest factor of a pair that stands for a frequency of 0."""


def as_spec(measured: MeasuredFamily, config: Mapping[str, Any]) -> RopeSpec:
    """The spec of a measured model; `ConfigError` where a spec can't hold what it does."""
    keys, name = config_json.text_model(ConfigKeys(config))
    served = config_json.served_length(keys, {})
    known = _candidates(config)
    kinds: dict[str, LayerRope | None] = {}
    layers = []
    for layer in main_layers(measured):
        rope = None if layer.turn is None else _rope(layer, layer.turn, measured, known)
        if rope is not None:
            chosen = None if layer.indexer is None else _rope(layer, layer.indexer, measured, known)
            rope = replace(rope, values=layer.values, indexer=chosen)
        kind = _kind(layer, rope)
        while kinds.setdefault(kind, rope) != rope:  # another rope under the same name
            kind += "_2" if kind[-1] not in "23456789" else ""
            kind = kind[:-1] + str(int(kind[-1]) + 1) if kind in kinds and kinds[kind] != rope else kind
        layers.append(kind)
    if not any(kinds.values()):
        raise ConfigError(f"this model has no rotary positions: no layer of it turns, {measured.sentence}")
    if len(kinds) == 1:
        kinds, layers = {"all": next(iter(kinds.values()))}, ["all"] * len(layers)
    trained = next((rope.trained for rope in kinds.values() if rope is not None and rope.trained), None) or served
    temperatures = {
        kind: _temperature(layer, config) for kind, layer in zip(layers, main_layers(measured), strict=True)
    }
    fitted = tuple((kind, tau) for kind, tau in temperatures.items() if tau is not None)
    notes = (measured.sentence, *measured.notes, *_remarks(measured))
    sources = {"pairing": "measured", "base": "measured", "rotary": "measured"}
    return config_json.checked(
        RopeSpec(
            tuple(kinds.items()),
            tuple(layers),
            trained,
            served,
            name,
            temperatures=fitted,
            sources=sources,
            notes=notes,
        )
    )


def as_positions(measured: MeasuredFamily, config: Mapping[str, Any], spec: RopeSpec | None) -> Positions:
    """The layers of an inspection."""
    keys, _ = config_json.text_model(ConfigKeys(config))
    served = config_json.served_length(keys, {})
    layers = [_inspected(n, layer, keys, spec) for n, layer in enumerate(main_layers(measured))]
    tables = tuple(
        LearnedTable(rows, rows - offset, offset, tensor=f"{name}.weight", source=measured.sentence)
        for name, rows, offset in measured.tables
    )
    where = ((ROTATED,) if measured.turns else ()) + ((EMBEDDING,) if measured.tables or measured.added else ())
    where += (LOGITS,) if any(layer.bias for layer in main_layers(measured)) else ()
    length = Length(served, "the config") if served else Length()
    trained = Length(spec.trained, "the config") if spec is not None and spec.trained else length
    notes = [measured.sentence, *measured.notes, *_remarks(measured)]
    return Positions(where, tuple(layers), tables, trained, length, length, tuple(notes))


def _temperature(layer: MeasuredLayer, config: Mapping[str, Any]) -> QueryTemperature | None:
    """The published form that gives the measured temperatures, None where there are none or no form fits."""
    keys, _ = config_json.text_model(ConfigKeys(config))
    dictionary = keys.config.get("rope_parameters") or {}
    original = dictionary.get("original_max_position_embeddings") if isinstance(dictionary, Mapping) else None
    lengths = {n for n in (2048, 8192, original, keys.config.get("floor_scale")) if isinstance(n, int) and n > 0}
    for form, a, n in itertools.product(FORMS, (0.1, dictionary.get("llama_4_scaling_beta")), sorted(lengths)):
        if isinstance(a, float) and layer.temperature:
            tau = QueryTemperature(form, a, n)
            if all(math.isclose(tau.at(p) / tau.at(0), t, rel_tol=1e-4) for p, t in layer.temperature):
                return tau
    return None


def _kind(layer: MeasuredLayer, rope: LayerRope | None) -> str:
    if not layer.attends:
        return "linear_attention"
    return KINDS.get(layer.window, "full_attention") if rope is not None else "no_rope"


def _candidates(config: Mapping[str, Any]) -> list[LayerRope]:
    """The ropes that the config's words may mean."""
    try:
        return list(config_json.parse(config, allow_unknown=True).spec.ropes().values())
    except ConfigError:
        return []


def _rope(layer: MeasuredLayer, turn: MeasuredTurn, measured: MeasuredFamily, known: list[LayerRope]) -> LayerRope:
    if not turn.pairing or turn.backwards or turn.axes:
        why = "turns by minus the angle" if turn.backwards else "is no turn of pairs by one position"
        raise ConfigError(f"layer {layer.number} {why} ({measured.sentence}): a RopeSpec can't hold that")
    part: dict[str, Any] = {"suffix": True} if turn.first else {}
    for rope in known:
        table = rope.spectrum(measured.length)
        if rope.rotary == turn.size and close(turn.frequencies, table.frequencies, turn.error):
            return replace(rope, head_dim=turn.width, pairing=turn.pairing, **part)
    if turn.base is not None:
        return LayerRope(turn.width, turn.base, turn.size, turn.pairing, **part)
    base = known[0].base if known else 10000.0
    plain = LayerRope(turn.width, base, turn.size).plain().frequencies
    factors = tuple(w / f if f > 0 and w / f < HELD else HELD for w, f in zip(plain, turn.frequencies, strict=True))
    scaling = LongRoPE(factors, factors, max(2, measured.length), attention_factor=turn.m if turn.m > 0 else None)
    return LayerRope(turn.width, base, turn.size, turn.pairing, scaling, **part)


def _inspected(n: int, layer: MeasuredLayer, keys: ConfigKeys, spec: RopeSpec | None) -> InspectedLayer:
    whole = keys.whole(layer.window) if layer.window and " " not in layer.window else None
    window = None if whole is None else whole.value
    kind = _kind(layer, None) if layer.turn is None else KINDS.get(layer.window, "full_attention")
    if layer.turn is None:
        scheme = "bias" if layer.bias else "none" if layer.attends else "no attention"
        return InspectedLayer(n, scheme, kind=kind, window=window)
    rope = spec.layer(n) if spec is not None and spec.layers and n < len(spec.layers) else None
    scaling = "none" if rope is None or rope.scaling is None else repr(rope.scaling)
    return InspectedLayer(
        n, "rope", kind=kind, window=window, pairing=layer.turn.pairing or None, head_dim=layer.turn.width,
        rotary=layer.turn.size, base=layer.turn.base or (rope.base if rope else None), scaling=scaling,
        temperature=(layer.softmax or 1.0) * layer.turn.m**2,
    )  # fmt: skip


def _remarks(measured: MeasuredFamily) -> list[str]:
    """What a layer of an inspection has no column for."""
    layers = main_layers(measured)
    remarks = []
    if any(layer.temperature for layer in layers):
        warm = [layer for layer in layers if layer.temperature]
        p, tau = warm[0].temperature[-1]
        remarks.append(
            f"queries of {len(warm)} layers are multiplied by a temperature of their position: {tau:g} at {p}"
        )
    if any(layer.values for layer in layers):
        remarks.append("values turn by the key's position, and outputs turn back by the query's")
    if any(layer.indexer for layer in layers):
        turn = next(layer.indexer for layer in layers if layer.indexer)
        remarks.append(
            f"an indexer has a rope of its own: {turn.size} channels, pairs {turn.pairing}, base {turn.base:g}"
            if turn.base
            else "an indexer has a rope of its own"
        )
    if measured.added and not measured.tables:
        remarks.append("positions are added to the embedding, and no table of them was seen")
    if any(layer.bias for layer in layers):
        count = sum(layer.bias for layer in layers)
        remarks.append(f"logits of {count} layers get a bias besides, which is seen and not described")
    return remarks
