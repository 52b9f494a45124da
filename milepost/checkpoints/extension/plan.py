"""The plan of an extension: what config.json is going to say, worked out and proved before a file is written.

    trained     the length before any scaling; factors are from here, also where the model was extended before
    target      what is to be served: max_position_embeddings (but for dynamic, which starts from that number)
    factor      target / trained, or more

How config.json says it is in `extend_config`. A config has no key for the trained length where the scaling is linear, ntk or base: that is in
the sidecar (`original`), which is believed as long as config.json is the one that it was written with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from milepost.checkpoints.extension.config import changes, check_transformers, undo, undone, write_config
from milepost.checkpoints.files.source import SourceFiles
from milepost.rope.analysis import analyse
from milepost.rope.config.keys import ConfigError
from milepost.rope.engines import transformers as dialect
from milepost.rope.engines.written import Refused
from milepost.rope.spec import METHODS, LayerRope, RopeSpec
from milepost.scaling.larger_base import LargerBase
from milepost.scaling.linear import Linear
from milepost.scaling.longrope import LongRoPE
from milepost.scaling.ntk import NTK

LONGROPE_ONLY = ("phi3", "phi4_multimodal")
"""Model types whose config class in transformers takes no rope type but longrope (and calls yarn that, without its lists)."""


@dataclass(frozen=True)
class Plan:
    """``original`` undoes what was done to config.json, this time and before: the old values, and the keys that were absent.

    ``changed`` are the keys that differ from the source's, old and new; ``before`` and ``after`` what both mean.
    """

    method: str
    factor: float
    trained: int
    served: int
    target: int
    before: RopeSpec
    after: RopeSpec
    config: Mapping[str, Any]
    changed: Mapping[str, tuple[Any, Any]]
    original: Mapping[str, Any]
    notes: tuple[str, ...]

    def unseen(self) -> dict[str, dict[str, list[int]]]:
        """The pairs of each kind of layer that meet angles at the target that training never showed, before and after."""
        found = {when: analyse(spec, self.target) for when, spec in (("before", self.before), ("after", self.after))}
        return {when: {one.kind: list(one.unseen_pairs) for one in each} for when, each in found.items()}


def plan(source: SourceFiles, target: int, method: str, factor: float | None = None) -> Plan:
    """What is to be written. Raises ConfigError for what was asked wrongly, `Refused` where transformers can't say it."""
    if method not in METHODS:
        raise ConfigError(f"unknown method {method!r}; there are auto, {', '.join(METHODS)}")
    trained, served = lengths(source, target)
    first = undone(source.config, source.sidecar)
    before, plain = replace(dialect.read(source.config), trained=trained), dialect.read(first)
    ratio = target / trained
    factor = _factor(ratio if factor is None else factor, ratio, method, trained, target)
    after, notes = _stretched(plain, factor, method, target)
    if before.main.scaling is not None:
        notes.append(
            f"{before.main.scaling!r} was there, and is replaced: the factor {factor:g} is from the trained length {trained}, not from {served}"
        )
    config, said_notes = write_config(first, plain, after)
    check_transformers(config, after)
    changed = changes(source.config, config)
    notes = [*source.notes, *plain.notes, *notes, *said_notes]
    if isinstance(after.main.scaling, Linear):
        notes.append(
            f"vLLM serves max_position_embeddings times the factor of linear, {target * factor:g}: start it with --max-model-len {target}"
        )
    return Plan(
        method,
        factor,
        trained,
        served,
        target,
        before,
        after,
        config,
        changed,
        undo(first, config),
        tuple(dict.fromkeys(notes)),
    )


def lengths(source: SourceFiles, target: int) -> tuple[int, int]:
    """The lengths that a model was trained for and serves; an error where the target is not above."""
    trained = dialect.read(undone(source.config, source.sidecar)).trained
    if trained is None:
        raise ConfigError(
            f"{source.name} does not say its trained length: add max_position_embeddings to a copy of its config.json"
        )
    served = int(source.sidecar["to"]) if source.sidecar else _served(dialect.read(source.config))
    if target <= served:
        said = f"trained for {trained}" + (f", scaled to {served}" if served > trained else "")
        raise ConfigError(
            f"{source.name} serves {served} tokens already ({said}): a target length of {target} is not above that; give a longer one"
        )
    return trained, served


def _served(spec: RopeSpec) -> int:
    """What a config promises: max_position_embeddings, or, where that is the trained length, what its scaling makes of it."""
    trained, served = spec.trained or 1, spec.served or spec.trained or 1
    return served if served > trained else max(served, spec.scaled or trained)


def _factor(factor: float, ratio: float, method: str, trained: int, target: int) -> float:
    if not math.isfinite(factor) or factor < ratio * (1 - 1e-9):
        raise ConfigError(
            f"factor {factor:g} makes {factor * trained:g} tokens of {trained}, fewer than the target length {target}: give at least {ratio:g}"
        )
    if method == "dynamic" and factor > ratio * (1 + 1e-9):
        raise ConfigError(
            f"dynamic follows the length of the text and has no factor, got {factor:g}: leave it out, or name another method"
        )
    return factor


def _stretched(plain: RopeSpec, factor: float, method: str, target: int) -> tuple[RopeSpec, list[str]]:
    """The new spec; the scaling is made for factor * trained tokens, of which ``target`` are served."""
    assert plain.trained is not None
    made = plain.extended(round(factor * plain.trained), method)  # type: ignore[arg-type]
    made = replace(made, served=target, notes=plain.notes)
    if plain.model not in LONGROPE_ONLY:
        return made, []
    if made.main.scaling is not None and made.main.scaling.length_dependent:
        raise Refused(
            f"transformers has no rope type but longrope for {plain.model}, and longrope can't say {made.main.scaling!r}: use yarn"
        )
    lists = tuple(
        (kind, rope if rope is None else _as_longrope(rope, plain.trained, factor)) for kind, rope in made.kinds
    )
    note = f"transformers has no rope type but longrope for {plain.model}: {method} is written as that, with the same factor of each pair in both lists"
    return replace(made, kinds=lists), [note] if lists != made.kinds else []


def _as_longrope(rope: LayerRope, trained: int, factor: float) -> LayerRope:
    """The same frequencies and temperature, as a factor for each pair. A larger base needs no rope type at all."""
    if rope.scaling is None or isinstance(rope.scaling, LargerBase | NTK):
        return rope
    plain, scaled = rope.plain(), rope.spectrum()
    factors = tuple(a / b for a, b in zip(plain.frequencies, scaled.frequencies, strict=True))
    return replace(
        rope, scaling=LongRoPE(factors, factors, trained, factor, attention_factor=math.sqrt(scaled.temperature))
    )
