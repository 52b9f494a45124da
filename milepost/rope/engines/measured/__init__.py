"""What engines were measured to do: one JSON file for each engine and version, written by `make engines`.

    measured.versions("vllm")                     ("0.32.0", "0.30.0", "0.29.0"), newest first
    measured.load("vllm", "0.32.0").cases         what it made of each config of configs.json, in numbers
    measured.apart(case, spec)                    where a spec differs from that; nothing where it is the same

Nothing here is computed by milepost: the numbers came out of the engine's own code (tools/engines says how).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from milepost.rope.spec import LayerRope, RopeSpec
from milepost.scaling import LongRoPE

CLOSE = 2e-6
"""Relative difference of two frequencies that float32 explains: engines compute powers of the base in it."""

STEP = {"llama.cpp": 2.0**-23}
"""Of engines that multiply their way from pair to pair in float32, what each pair adds to that: two roundings."""

FAR = 100000
"""The position at which what multiplies queries was taken."""


@dataclass(frozen=True)
class Measured:
    """One engine in one version: ``cases`` by config, ``families`` by model type, and what ``stood_in`` for what.

    ``when`` is the day of its newest numbers.
    """

    engine: str
    version: str
    cases: Mapping[str, Mapping[str, Any]]
    tables: tuple[tuple[float, ...], ...]
    families: Mapping[str, Mapping[str, str]]
    exports: Mapping[str, Mapping[str, Any]]
    stood_in: tuple[str, ...]
    when: str = ""


def numbers(version: str) -> tuple[int, ...]:
    """A version in numbers, for comparing: 0.29.0 is before 0.30.0."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


@cache
def versions(engine: str) -> tuple[str, ...]:
    """The versions of an engine that were measured, newest first."""
    names = (path.name for path in resources.files(__name__).iterdir())
    matches = (re.fullmatch(rf"{re.escape(engine)}-(\d[\w.]*)\.json", name) for name in names)
    return tuple(sorted((match[1] for match in matches if match), key=numbers, reverse=True))


def _read(name: str, absent: Any = None) -> Any:
    """What is in one of the JSON files here; ``absent`` where there is no such file."""
    place = resources.files(__name__) / name
    if absent is not None and not place.is_file():
        return absent
    return json.loads(place.read_text(encoding="utf-8"))


@cache
def load(engine: str, version: str) -> Measured:
    """What was measured with one version of an engine."""
    data = _read(f"{engine}-{version}.json")
    return Measured(
        engine, version, data["cases"], tuple(map(tuple, data["tables"])), data["families"], data["exports"],
        tuple(data["stood_in"]), data.get("when", ""),
    )  # fmt: skip


@cache
def configs() -> dict[str, dict[str, Any]]:
    """The configs that every engine was run with, by name."""
    data: dict[str, dict[str, Any]] = _read("configs.json")
    return data


@cache
def model_types(engine: str, version: str) -> dict[str, str]:
    """By the model types of the configs: nothing where the engine was run with one of them, else why it was not."""
    found: dict[str, str] = {}
    for name, case in load(engine, version).cases.items():
        config = configs()[name]
        inner = (config.get(part) for part in ("text_config", "thinker_config"))
        why = case.get("not_measured", "")
        for keys in (config, *(part for part in inner if isinstance(part, dict))):
            kind = str(keys.get("model_type", ""))
            found[kind] = why and found.get(kind, why)
    return found


@cache
def rope_types(engine: str) -> frozenset[str]:
    """The rope types, as configs name them, that an engine was run with."""

    def named(keys: Mapping[str, Any]) -> Iterator[str]:
        for key, value in keys.items():
            if key in ("rope_type", "type") and isinstance(value, str):
                yield value
            elif isinstance(value, dict):
                yield from named(value)

    found = {name for config in configs().values() for name in named(config)}
    more = _read(f"{engine}-rope-types.json", absent={})
    return frozenset(found | {name for types in more.values() for name in types} | {"default"})


@cache
def defects() -> dict[str, dict[str, str]]:
    """By engine and config, what an engine does that no spec can hold, or that milepost refuses to read: the reason."""
    data: dict[str, dict[str, str]] = _read("defects.json")
    return data


@cache
def not_run() -> dict[str, str]:
    """The engines, as ENGINE@VERSION, that could not be run when it was last tried, and why."""
    data: dict[str, str] = _read("not_run.json", absent={})
    return data


def apart(measured: Measured, case: Mapping[str, Any], spec: RopeSpec) -> list[str]:
    """Where a spec differs from what an engine did with a config, in sentences; nothing where it is the same."""
    return list(dict.fromkeys(_apart(measured, case, spec)))


def apart_exported(measured: Measured, case: Mapping[str, Any], spec: RopeSpec) -> list[str]:
    """Where an engine that was run with an export of ``spec`` differs from it, beyond what the export says itself.

    torchtitan's rotations are pure: m goes into the softmax scale, by hand. SGLang's longrope takes the long factors
    one token later.
    """
    sentences = apart(measured, case, spec)
    if measured.engine == "torchtitan":
        return [sentence for sentence in sentences if not sentence.startswith("m = ")]
    if measured.engine == "sglang" and isinstance(spec.main.scaling, LongRoPE):
        return [sentence for sentence in sentences if not sentence.endswith(f"for {case['lengths'][1]} tokens")]
    return sentences


def _apart(measured: Measured, case: Mapping[str, Any], spec: RopeSpec) -> Iterator[str]:
    if spec.layers and len(spec.layers) != len(case["layers"]):
        yield f"{len(case['layers'])} layers measured, {len(spec.layers)} in the spec"
        return
    for number, place in enumerate(case["layers"]):
        rope = spec.layer(number) if spec.layers else spec.main
        if rope is None or place is None:
            if (rope is None) != (place is None):
                yield f"layer {number} {'turns' if rope is None else 'does not turn'}"
            continue
        theirs = case["ropes"][place]
        yield from _rope_apart(measured, case, theirs, rope)
        tau = dict(spec.temperatures).get(spec.layers[number] if spec.layers else spec.kinds[0][0])
        queries = 1.0 if tau is None else tau.at(FAR)
        if "queries" in theirs and abs(theirs["queries"] / queries - 1) > CLOSE:
            yield f"queries x {theirs['queries']:.4f} at {FAR} measured, x {queries:.4f} in the spec"


def _rope_apart(
    measured: Measured, case: Mapping[str, Any], theirs: Mapping[str, Any], rope: LayerRope
) -> Iterator[str]:
    if theirs["pairing"] != rope.pairing and theirs["rotary"] > 2:
        yield f"pairing {theirs['pairing']} measured, {rope.pairing} in the spec"
    for length in ("", *map(str, case["lengths"])):
        seen = measured.tables[theirs["tables"].get(length, theirs["tables"][""])]
        table = rope.spectrum(int(length or 2))
        mine = [w for w in table.frequencies if w]  # a pair that stands still can't be told from a channel left alone
        at = f" for {length} tokens" if length and len(theirs["tables"]) > 1 else ""
        if len(seen) != len(mine):
            yield f"{2 * len(seen)} channels measured, {2 * len(mine)} in the spec{at}"
            return
        step = STEP.get(measured.engine, 0.0)
        worst = max(range(len(mine)), key=lambda i: abs(mine[i] / seen[i] - 1) / (CLOSE + i * step))
        if abs(mine[worst] / seen[worst] - 1) > CLOSE + worst * step:
            yield f"frequency of pair {worst}: {seen[worst]:.6g} measured, {mine[worst]:.6g} in the spec{at}"
        if abs(table.temperature / theirs["m"] ** 2 - 1) > CLOSE:
            yield f"m = {theirs['m']:.4f} measured, {table.temperature**0.5:.4f} in the spec{at}"
    if rope.softmax != 1 and theirs["softmax"] is not None and abs(theirs["softmax"] / rope.softmax - 1) > CLOSE:
        yield f"softmax x {theirs['softmax']:.4f} measured, x {rope.softmax:.4f} in the spec"
