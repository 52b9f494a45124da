"""The plan of an extension: what config.json is going to say, worked out and proved before a file is written.

    trained     the length before any scaling; factors are from here, also where the model was extended before
    target      what is to be served: max_position_embeddings (but for dynamic, which starts from that number)
    factor      target / trained, or more; dynamic follows the length of the text, and its factor is at least 1

How config.json says it is in `config`. A config has no key for the trained length where the scaling is linear, ntk or
base: that is in the sidecar (`original`), which is believed as long as config.json is the one that it was written
with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from milepost.checkpoints.extension.config import changes, check_transformers, extended_config, undo
from milepost.checkpoints.extension.source import Start
from milepost.checkpoints.recommendation.candidates import stretch
from milepost.rope import ConfigError
from milepost.rope.analysis import analyse
from milepost.rope.engines.written import Refused
from milepost.rope.spec import METHODS, LayerRope, RopeSpec
from milepost.scaling import NTK, LargerBase, Linear, LongRoPE

LONGROPE_ONLY = ("phi3", "phi4_multimodal")
"""Model types whose config class in transformers takes no rope type but longrope (and calls yarn that, without its
lists).
"""


@dataclass(frozen=True)
class ExtensionPlan:
    """``original`` undoes what was done to config.json, this time and before: the old values, and the keys that were
    absent.

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
        """The pairs that meet angles at the target that training never showed, by kind of layer, before and after."""
        return {
            when: {found.kind: list(found.unseen_pairs) for found in analyse(spec, self.target)}
            for when, spec in {"before": self.before, "after": self.after}.items()
        }


def plan_extension(start: Start, method: str, factor: float | None = None) -> ExtensionPlan:
    """What is to be written. Raises ConfigError for a wrong request, `Refused` where transformers can't say it."""
    if method not in METHODS:
        raise ConfigError(f"unknown method {method!r}; there are auto, {', '.join(METHODS)}")
    source, target, trained = start.source, start.target, start.trained
    factor = _factor(start, method, factor)
    after, notes = _stretched(start.plain, factor, method, target)
    if start.before.main.scaling is not None:
        notes.append(
            f"{start.before.main.scaling!r} was there, and is replaced: the factor {factor:g} is from the trained "
            f"length {trained}, not from {start.served}"
        )
    config, written_notes = extended_config(start.config, start.plain, after)
    check_transformers(config, after)
    notes = [*source.notes, *start.plain.notes, *notes, *written_notes]
    if isinstance(after.main.scaling, Linear):
        notes.append(
            f"vLLM serves max_position_embeddings times the factor of linear, {target * factor:g}: start it with "
            f"--max-model-len {target}"
        )
    return ExtensionPlan(
        method=method, factor=factor, trained=trained, served=start.served, target=target, before=start.before,
        after=after, config=config, changed=changes(source.config, config), original=undo(start.config, config),
        notes=tuple(dict.fromkeys(notes)),
    )  # fmt: skip


def _factor(start: Start, method: str, factor: float | None) -> float:
    """The factor of a method, by default the smallest: what the target needs, or 1 for dynamic."""
    least = 1.0 if method == "dynamic" else start.target / start.trained
    given = least if factor is None else factor
    if math.isfinite(given) and given >= least * (1 - 1e-9):
        return given
    if method == "dynamic":
        raise ConfigError(f"dynamic follows the length of the text, by a factor of at least 1, got {given:g}")
    raise ConfigError(
        f"factor {given:g} makes {given * start.trained:g} tokens of {start.trained}, fewer than the target length "
        f"{start.target}: give at least {least:g}"
    )


def _stretched(plain: RopeSpec, factor: float, method: str, target: int) -> tuple[RopeSpec, list[str]]:
    """The new spec, and what to know about it."""
    made = replace(stretch(plain, method, factor, target), notes=plain.notes)
    if plain.model not in LONGROPE_ONLY:
        return made, []
    if made.main.scaling is not None and made.main.scaling.length_dependent:
        raise Refused(
            f"transformers has no rope type but longrope for {plain.model}, and longrope can't say "
            f"{made.main.scaling!r}: use yarn"
        )
    assert plain.trained is not None
    lists = tuple(
        (kind, rope if rope is None else _as_longrope(rope, plain.trained, factor)) for kind, rope in made.kinds
    )
    note = (
        f"transformers has no rope type but longrope for {plain.model}: {method} is written as that, with the same "
        "factor of each pair in both lists"
    )
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
