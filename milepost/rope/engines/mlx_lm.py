"""mlx-lm: what it makes of a config.json, and the keys that say a spec. Its models read rope_theta and rope_scaling (version 4).

What is read differently than in transformers (s is the factor; m multiplies q and k, so logits by m^2):

    yarn            m = g(mscale) / g(mscale_all_dim), g(k) = 0.1 k ln s + 1, by default g(1) / g(0); attn_factor is not read,
                    nor is attention_factor (newer versions read that; what is written here means the same to all). With
                    s = 4, attention_factor = 1 is m = 1.1386 here and 1 there: logits x 1.2965. Bounds are always truncated;
                    without original_max_position_embeddings in the dictionary, the trained length is 4096
    longrope        the long factors for all texts, in pairs of halves whatever the model has; m from max_position_embeddings
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

from milepost.rope.config.families import FAMILIES
from milepost.rope.config.keys import ConfigError, Keys
from milepost.rope.config.read_scaling import ORIGINAL
from milepost.rope.engines import engine
from milepost.rope.engines.transformers import shape
from milepost.rope.engines.written import Refused, Written
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.scaling.dynamic import Dynamic
from milepost.scaling.longrope import LongRoPE
from milepost.scaling.ntk import NTK
from milepost.scaling.ramp import pair_with
from milepost.scaling.yarn import YaRN, mscale

TRAINED = 4096
"""The trained length that mlx-lm's yarn takes where the dictionary has none."""


def read(config: Mapping[str, Any], *, allow_unknown: bool = False) -> RopeSpec:
    """What mlx-lm makes of a config."""
    keys = Keys(config)
    traditional = keys.flag("rope_traditional")
    given = {name: value for name, value in config.items() if name != "rope_traditional"}
    found = engine.as_read(given, _meaning, served=None, allow_unknown=allow_unknown)
    notes = list(found.notes)
    if "rope_parameters" in config and any(rope.scaling is not None for rope in found.ropes().values()):
        notes.append(
            "many models of mlx-lm take only rope_theta from rope_parameters, and pass over the scaling: write rope_theta and rope_scaling instead"
        )
    kinds = found.kinds
    if traditional is not None:
        kinds = tuple(
            (kind, None if rope is None else replace(rope, pairing=_pairing(rope, traditional.value)))
            for kind, rope in kinds
        )
    return replace(found, kinds=kinds, notes=tuple(notes))


def _pairing(rope: LayerRope, traditional: bool) -> Any:
    return "interleaved" if traditional and not isinstance(rope.scaling, LongRoPE) else "half"


def _meaning(
    rope: LayerRope, given: Mapping[str, Any], said: RopeSpec, served: int | None
) -> tuple[LayerRope, list[str]]:
    scaling, notes = rope.scaling, []
    if rope.sections is not None:
        rope = replace(rope, sections=None, sections_interleaved=False)
        notes.append("mrope_section is not read: all axes turn as text does")
    if isinstance(scaling, YaRN):
        made, more = _yarn(rope, scaling, given)
        return made, notes + more
    if isinstance(scaling, LongRoPE):
        made, more = _longrope(rope, scaling, said)
        return made, notes + more
    if (
        isinstance(scaling, NTK) and (given.get("type") or given.get("rope_type")) == "ntk"
    ):  # with alpha, it is Hunyuan's own code
        raise ConfigError(
            f"mlx-lm has no rope type ntk; a larger base says it: rope_theta = {rope.spectrum().base:.10g}"
        )
    if isinstance(scaling, Dynamic):
        notes.append(
            "dynamic: only models with code of their own have it, the rest stop; keys that were cached at a shorter length are not turned again"
        )
    return rope, notes


def _yarn(rope: LayerRope, yarn: YaRN, given: Mapping[str, Any]) -> tuple[LayerRope, list[str]]:
    notes = []
    if given and given.get("factor") is None:
        raise ConfigError(
            f"mlx-lm stops at rope type yarn without factor, which transformers takes from the lengths: write factor = {yarn.factor:g}"
        )
    if given and given.get(ORIGINAL) is None and yarn.trained != TRAINED:
        notes.append(f"there is no {ORIGINAL} in the dictionary: mlx-lm takes {TRAINED} (transformers: {yarn.trained})")
        yarn = replace(yarn, trained=TRAINED)
    m = engine.deepseek_m(replace(yarn, attn_factor=None))
    notes += engine.about_m(yarn, m, ("attention_factor",))
    if yarn.attn_factor is not None:
        notes.append(f"attn_factor = {yarn.attn_factor:g} is not read: m = {m:.4f}")
    if yarn.truncate is False:
        notes.append("truncate = false is not read: " + _truncated(rope, yarn))
    return engine.with_m(rope, replace(yarn, truncate=None), m), notes


def _truncated(rope: LayerRope, yarn: YaRN) -> str:
    low, high = (pair_with(turns, rope.plain(), yarn.trained) for turns in (yarn.beta_fast, yarn.beta_slow))
    return f"the bounds {low:.4f} and {high:.4f} become {math.floor(low)} and {math.ceil(high)}"


def _longrope(rope: LayerRope, scaling: LongRoPE, said: RopeSpec) -> tuple[LayerRope, list[str]]:
    factor = max(1.0, (said.served or scaling.trained) / scaling.trained)
    made = LongRoPE(scaling.long, scaling.long, scaling.trained, factor)
    notes = []
    if scaling.short != scaling.long:
        notes.append(f"the long factors are for texts of all lengths, also those of up to {scaling.trained} tokens")
    theirs = replace(scaling, short_m=None, long_m=None).at(scaling.trained + 1).m
    if not math.isclose(theirs, made.m, rel_tol=1e-9):
        notes.append(
            f"longrope: m = {made.m:.4f}, logits x {made.m**2:.4f} (transformers: m = {theirs:.4f}, logits x {theirs**2:.4f})"
        )
    if rope.pairing != "half":
        notes.append("longrope turns pairs of halves, and this model's pairs are interleaved")
    return replace(rope, scaling=made, pairing="half"), notes


def write(spec: RopeSpec) -> Written:
    """The keys of config.json that say ``spec``; refused where none do."""
    notes: list[str] = []
    kinds = {kind: _words(rope, spec, notes) for kind, rope in spec.ropes().items()}
    config = shape(spec)
    config.pop("rope_interleave", None)
    family = FAMILIES.get(spec.model)
    if spec.main.pairing != (family.pairing if family is not None else "half"):
        config["rope_traditional"] = spec.main.pairing == "interleaved"
    local = kinds.get("sliding_attention")
    main = dict(kinds.get("full_attention") or next(iter(kinds.values())))
    if local is not None and local != main and len(kinds) == 2 and local["rope_type"] == "default":
        config["local_rope_theta" if spec.model.startswith("modernbert") else "rope_local_base_freq"] = local[
            "rope_theta"
        ]
    elif any(said != main for said in kinds.values()):
        raise Refused(
            f"mlx-lm has one rope_scaling for all layers, and {spec.model or 'this model'} has {len(kinds)} kinds that differ: {', '.join(kinds)}"
        )
    config["rope_theta"] = main.pop("rope_theta")
    if "partial_rotary_factor" in main and main["rope_type"] != "proportional":
        config["partial_rotary_factor"] = main.pop("partial_rotary_factor")
    config["rope_scaling"] = None if main == {"rope_type": "default"} else main
    written = Written("mlx-lm", config, json.dumps(config, indent=2), tuple(dict.fromkeys(notes)))
    return engine.checked(spec, written, lambda: read(config))


def _words(rope: LayerRope, spec: RopeSpec, notes: list[str]) -> dict[str, Any]:
    if rope.sections is not None:
        raise Refused(
            f"mlx-lm turns all axes of M-RoPE as text, and this model has sections {list(rope.sections)}; for text alone, leave the sections out"
        )
    rope = engine.settled("mlx-lm", rope, spec)
    scaling = rope.scaling
    if isinstance(scaling, YaRN) and scaling.preset != "paper":
        if scaling.truncate is False or (scaling.preset == "gpt-oss" and scaling.truncate is None):
            raise Refused(
                f"mlx-lm always truncates the bounds of yarn: {_truncated(rope, scaling)}; use another engine, or truncate=True"
            )
        return engine.yarn_words(rope, scaling, spec, mscale_keys("mlx-lm", rope, scaling))
    if isinstance(scaling, LongRoPE) and scaling.length is not None and scaling.length > scaling.trained:
        said = engine.longrope_words(rope, scaling, spec)
        m = LongRoPE(
            scaling.long, scaling.long, scaling.trained, max(1.0, (spec.served or scaling.trained) / scaling.trained)
        ).m
        if math.isclose(m, scaling.m, rel_tol=1e-9):
            return said
    said, m = engine.other_words(rope, spec, notes)
    if said["rope_type"] == "longrope":
        if not math.isclose(m, 1.0, rel_tol=1e-9):
            raise Refused(
                f"mlx-lm has no key for m of longrope, and this one needs m = {m:.4f}, logits x {m * m:.4f}; use a yarn, or another engine"
            )
        said[ORIGINAL] = max(said[ORIGINAL], spec.served or 0)  # no longer than trained: m = 1
    return said


def mscale_keys(name: str, rope: LayerRope, yarn: YaRN) -> dict[str, float]:
    """mscale and mscale_all_dim that give m = g(mscale) / g(mscale_all_dim); none where g(1) / g(0) does."""
    own = {key: getattr(yarn, key) for key in ("mscale", "mscale_all_dim") if getattr(yarn, key) is not None}
    if rope.softmax != 1:  # DeepSeek, whose softmax needs them as they are
        made = engine.deepseek_m(replace(yarn, attn_factor=None))
        if not math.isclose(made, yarn.m, rel_tol=1e-9):
            raise Refused(
                f"{name} takes m from mscale and mscale_all_dim, which set the softmax too: m = {made:.4f}, and this yarn has {yarn.m:.4f}"
            )
        return own
    step, m = mscale(yarn.factor) - 1, yarn.m
    if math.isclose(m, 1 + step, rel_tol=1e-12):
        return {}
    if step == 0:
        raise Refused(f"{name} has m = 1 for a factor of 1, and this yarn has m = {m:.4f}; use a factor above 1")
    return {"mscale": (m - 1) / step} if m >= 1 else {"mscale": 0.0, "mscale_all_dim": (1 / m - 1) / step}
