"""The reader against a measurement: is what a config's words say what its class does?

Where the two differ the reader is wrong: a measurement is of the code that runs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from milepost.checkpoints.families.measure import MeasuredFamily, MeasuredLayer, MeasuredTurn, close, main_layers
from milepost.checkpoints.inspection import rope as inspected
from milepost.rope import LayerRope, RopeSpec
from milepost.rope.config.config_json import text_model
from milepost.rope.config.keys import ConfigError, ConfigKeys


def wrong(config: Mapping[str, Any], measured: MeasuredFamily) -> list[str]:
    """What the reader of configs says otherwise than the measurement, in words; nothing where they agree."""
    try:
        spec: RopeSpec | None = RopeSpec.from_config(config, allow_unknown=True)
    except ConfigError as error:
        if not measured.turns and "no rotary positions" in str(error):
            return []
        if "can't hold that" in str(error):
            return []  # the reader says why, and inspect shows what was measured
        return [f"refused: {error}"]
    assert spec is not None
    layers = main_layers(measured)
    keys, _ = text_model(ConfigKeys(config))
    windows = [layer.window for layer in inspected.positions(spec, keys, measured.length).layers]
    if spec.layers and len(spec.layers) != len(layers):
        return [f"{len(spec.layers)} layers are read, and there are {len(layers)}"]
    listed = keys.items("indexer_types")
    shared = [] if listed is None else listed.value
    different: dict[str, list[int]] = {}
    for n, layer in enumerate(layers):
        rope = spec.layer(n) if spec.layers else spec.main
        kind = spec.layers[n] if spec.layers else "all"
        temperature = dict(spec.temperatures).get(kind)
        if rope is not None and n < len(shared) and shared[n] == "shared":
            rope = replace(rope, indexer=None)  # this layer takes the keys that an earlier one chose
        for words in _layer(rope, layer, measured.length):
            different.setdefault(words, []).append(n)
        for p, tau in layer.temperature:
            if temperature is None or not math.isclose(temperature.at(p) / temperature.at(0), tau, rel_tol=1e-4):
                different.setdefault(f"the query's temperature is not read ({tau:g} at {p})", []).append(n)
                break
        if layer.attends and n < len(windows) and bool(windows[n]) != bool(layer.window):
            words = (
                f"a window by {layer.window} is not read" if layer.window else f"a window of {windows[n]} is not there"
            )
            different.setdefault(words, []).append(n)
    return [f"{words}: layers {_some(numbers, len(layers))}" for words, numbers in different.items()]


def _some(numbers: list[int], of: int) -> str:
    return "all" if len(numbers) == of else ", ".join(map(str, numbers[:8])) + (", ..." if len(numbers) > 8 else "")


def _layer(rope: LayerRope | None, layer: MeasuredLayer, length: int) -> list[str]:
    if rope is None or layer.turn is None:
        if rope is None and layer.turn is None:
            return []
        return ["read as turning, and stands still" if layer.turn is None else "read as standing still, and turns"]
    words = _turn(rope, layer.turn, length)
    if layer.values != rope.values:
        words.append("values turn" if layer.values else "values do not turn")
    if (layer.indexer is None) != (rope.indexer is None):
        words.append("the indexer's rope is not read" if layer.indexer is not None else "there is no indexer's rope")
    elif layer.indexer is not None and rope.indexer is not None:
        words += [f"the indexer: {word}" for word in _turn(rope.indexer, layer.indexer, length)]
    return words


def _turn(rope: LayerRope, turn: MeasuredTurn, length: int) -> list[str]:
    if not turn.pairing or turn.axes or turn.backwards:
        return ["it turns backwards" if turn.backwards else "what it does is no turn by one position"]
    words = []
    if rope.rotary != turn.size:
        return [f"{turn.size} of {turn.width} channels turn, and {rope.rotary} of {rope.head_dim} are read"]
    if rope.pairing != turn.pairing:
        words.append(f"pairs are {turn.pairing}, and {rope.pairing} is read")
    if rope.suffix != (turn.first > 0):
        words.append(f"channels {turn.first} to {turn.first + turn.size - 1} of {turn.width} turn")
    spectrum = rope.spectrum(length)
    if not close(turn.frequencies, spectrum.frequencies, turn.error):
        base = "" if turn.base is None else f": base {turn.base:g}, and {rope.base:g} is read"
        words.append(f"frequencies are others{base}")
    if not math.isclose(turn.m**2, spectrum.temperature, rel_tol=1e-4):
        words.append(f"m^2 is {turn.m**2:g}, and {spectrum.temperature:g} is read")
    return words
