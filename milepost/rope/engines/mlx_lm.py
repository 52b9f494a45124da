"""mlx-lm: what it makes of a config.json, and the keys that mean a spec. Its models read the keys of version 4.

What is read differently than in transformers (s is the factor; m multiplies q and k, so logits by m^2):

    yarn            m = g(mscale) / g(mscale_all_dim), g(k) = 0.1 k ln s + 1, by default g(1) / g(0); attn_factor is not
                    read, nor is attention_factor (newer versions read that; what is written here means the same to
                    all). With s = 4, attention_factor = 1 is m = 1.1386 here and 1 there: logits x 1.2965. Bounds are
                    always truncated; without original_max_position_embeddings in the dictionary, the trained length is
                    4096
    longrope        the long factors for all texts, in pairs of halves whatever the model has; m from
                    max_position_embeddings
    dynamic         by the text's length, in models with code of their own; cached keys are not turned again
    M-RoPE          text only: sections are not read

The same as there: default, linear, llama3, proportional. Pairing is `rope_traditional`: true is interleaved.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from milepost.rope.config.config import Config
from milepost.rope.config.keys import ConfigError, ConfigKeys
from milepost.rope.config.read_scaling import ORIGINAL
from milepost.rope.engines.config_engine import (
    ConfigEngine,
    refuse_alpha,
    rope_type,
    shape,
    spell_flat,
    write_longrope,
    write_other,
    write_yarn,
)
from milepost.rope.engines.written import Refused, Written
from milepost.rope.engines.yarn import (
    compare_m,
    deepseek_m,
    mscale_keys,
    notes_on_m,
    refuse_bounds,
    truncation,
    with_m,
)
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.scaling.dynamic import Dynamic
from milepost.scaling.longrope import LongRoPE
from milepost.scaling.ntk import NTK
from milepost.scaling.yarn import YaRN

TRAINED = 4096
"""The trained length that mlx-lm's yarn takes where the dictionary has none."""
PAIRING = "rope_traditional"


class MLXLM(ConfigEngine):
    """mlx-lm."""

    name = title = "mlx-lm"

    def read(self, config: Config, *, served: int | None = None) -> RopeSpec:
        """What mlx-lm makes of a config; it is not told which length it will serve."""
        traditional = ConfigKeys(config.data).flag(PAIRING)
        if PAIRING in config.data:  # a key that only mlx-lm knows
            config = replace(config, data={name: value for name, value in config.data.items() if name != PAIRING})
        spec = super().read(config)
        notes, kinds = spec.notes, spec.kinds
        if "rope_parameters" in config.data and any(rope.scaling is not None for rope in spec.ropes().values()):
            notes = (
                *notes,
                "many models of mlx-lm take only rope_theta from rope_parameters, and pass over the scaling: "
                "write rope_theta and rope_scaling instead",
            )
        if traditional is not None:
            kinds = tuple(
                (kind, None if rope is None else replace(rope, pairing=_pairing(rope, traditional.value)))
                for kind, rope in kinds
            )
        return replace(spec, kinds=kinds, notes=notes)

    def meaning(self, rope: LayerRope, kind: str, config: Config, served: int | None) -> tuple[LayerRope, list[str]]:
        scaling, given, notes = rope.scaling, config.parsed.dictionaries[kind], []
        refuse_alpha(rope, kind, config)
        if rope.sections is not None:
            rope = replace(rope, sections=None, sections_interleaved=False)
            notes.append("mrope_section is not read: all axes turn as text does")
        if isinstance(scaling, YaRN):
            return _yarn(rope, scaling, given, notes), notes
        if isinstance(scaling, LongRoPE):
            return _longrope(rope, scaling, config.parsed.spec, notes), notes
        if isinstance(scaling, NTK) and rope_type(given) == "ntk":  # with alpha, it is Hunyuan's own code
            raise ConfigError(
                f"mlx-lm has no rope type ntk; a larger base says it: rope_theta = {rope.spectrum().base:.10g}"
            )
        if isinstance(scaling, Dynamic):
            notes.append(
                "dynamic: only models with code of their own have it, the rest stop; keys that were cached at a "
                "shorter length are not turned again"
            )
        return rope, notes

    def _write(self, spec: RopeSpec) -> Written:
        """The keys of config.json that mean ``spec``."""
        notes: list[str] = []
        kinds = {kind: self._words(rope, spec, notes) for kind, rope in spec.ropes().items()}
        config = shape(spec, PAIRING)
        local = kinds.get("sliding_attention")
        main = kinds.get("full_attention") or next(iter(kinds.values()))
        local_base = None
        if local is not None and local != main and len(kinds) == 2 and local["rope_type"] == "default":
            local_base = local["rope_theta"]
        elif any(dictionary != main for dictionary in kinds.values()):
            raise Refused(
                f"mlx-lm has one rope_scaling for all layers, and {spec.model or 'this model'} has {len(kinds)} kinds "
                f"that differ: {', '.join(kinds)}"
            )
        rest = spell_flat(config, main, local_base)
        config["rope_scaling"] = None if rest == {"rope_type": "default"} else rest
        written = Written(self.name, config, json.dumps(config, indent=2), tuple(dict.fromkeys(notes)))
        return self.proved(spec, written, lambda: self.read(Config(config, "config.json")))

    def _words(self, rope: LayerRope, spec: RopeSpec, notes: list[str]) -> dict[str, Any]:
        if rope.sections is not None:
            raise Refused(
                f"mlx-lm turns all axes of M-RoPE as text, and this model has sections {list(rope.sections)}; "
                "for text alone, leave the sections out"
            )
        rope = self.settled(rope, spec)
        scaling = rope.scaling
        if isinstance(scaling, YaRN) and scaling.preset != "paper":
            refuse_bounds(self.title, rope, scaling)
            return write_yarn(rope, scaling, spec, mscale_keys(self.title, rope, scaling))
        if (
            isinstance(scaling, LongRoPE)
            and scaling.length is not None
            and scaling.length > scaling.trained
            and math.isclose(_always_long(scaling, spec.served).m, scaling.m, rel_tol=1e-9)
        ):
            return write_longrope(rope, scaling, spec)
        dictionary, m = write_other(rope, spec, notes)
        if dictionary["rope_type"] == "longrope":
            if not math.isclose(m, 1.0, rel_tol=1e-9):
                raise Refused(
                    f"mlx-lm has no key for m of longrope, and this one needs m = {m:.4f}, logits x {m * m:.4f}; "
                    "use a yarn, or another engine"
                )
            dictionary[ORIGINAL] = max(dictionary[ORIGINAL], spec.served or 0)  # no longer than trained: m = 1
        return dictionary


def _pairing(rope: LayerRope, traditional: bool) -> Any:
    return "interleaved" if traditional and not isinstance(rope.scaling, LongRoPE) else "half"


def _yarn(rope: LayerRope, yarn: YaRN, given: Mapping[str, Any], notes: list[str]) -> LayerRope:
    if given and given.get("factor") is None:
        raise ConfigError(
            "mlx-lm stops at rope type yarn without factor, which transformers takes from the lengths: "
            f"write factor = {yarn.factor:g}"
        )
    if given and given.get(ORIGINAL) is None and yarn.trained != TRAINED:
        notes.append(f"there is no {ORIGINAL} in the dictionary: mlx-lm takes {TRAINED} (transformers: {yarn.trained})")
        yarn = replace(yarn, trained=TRAINED)
    m = deepseek_m(replace(yarn, attn_factor=None))
    notes += notes_on_m(yarn, m, ("attention_factor",))
    if yarn.attn_factor is not None:
        notes.append(f"attn_factor = {yarn.attn_factor:g} is not read: m = {m:.4f}")
    if yarn.truncate is False:
        notes.append(f"truncate = false is not read: the bounds {truncation(rope, yarn)}")
    return with_m(rope, replace(yarn, truncate=None), m)


def _longrope(rope: LayerRope, scaling: LongRoPE, spec: RopeSpec, notes: list[str]) -> LayerRope:
    made = _always_long(scaling, spec.served)
    if scaling.short != scaling.long:
        notes.append(f"the long factors are for texts of all lengths, also those of up to {scaling.trained} tokens")
    theirs = replace(scaling, short_m=None, long_m=None).at(scaling.trained + 1).m
    if not math.isclose(theirs, made.m, rel_tol=1e-9):
        notes.append(compare_m("longrope: ", made.m, theirs))
    if rope.pairing != "half":
        notes.append("longrope turns pairs of halves, and this model's pairs are interleaved")
    return replace(rope, scaling=made, pairing="half")


def _always_long(scaling: LongRoPE, served: int | None) -> LongRoPE:
    """mlx-lm's longrope: the long factors for every text, and m from the lengths."""
    factor = max(1.0, (served or scaling.trained) / scaling.trained)
    return LongRoPE(scaling.long, scaling.long, scaling.trained, factor)
