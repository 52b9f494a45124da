"""mlx-lm: what it makes of a config.json, and the keys that mean a spec. Its models read the keys of version 4.

What is read differently than in transformers (s is the factor; m multiplies q and k, so logits by m^2):

    yarn            m = g(mscale) / g(mscale_all_dim), g(k) = 0.1 k ln s + 1, by default g(1) / g(0); attn_factor is not
                    read, nor is attention_factor, in any version. With s = 4, attention_factor = 1 is m = 1.1386 here
                    and 1 there: logits x 1.2965. Bounds are always truncated; without
                    original_max_position_embeddings in the dictionary, the trained length is 4096
    telechat3-yarn  as yarn, m = 0.1 ln s + 1, where its own code has 0.07 ln s + 1
    longrope        the long factors for all texts (to 0.29 by the text's length), in pairs of halves whatever the model
                    has; m from max_position_embeddings
    dynamic         by the text's length, to 0.29 in models with code of their own; cached keys are not turned again
    M-RoPE          text only: sections are not read

Which keys arrive differs by model class: for many, llama among them, `rope_parameters` is not read at all, rope_theta
included, and some have no scaling (measured: `families` in measured/mlx-lm-*.json).

The same as there: default, linear, llama3, proportional. Pairing is `rope_traditional`: true is interleaved.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from milepost.rope.config.config import Config
from milepost.rope.config.keys import ConfigError, ConfigKeys
from milepost.rope.config.read_scaling import ORIGINAL
from milepost.rope.engines.config_engine import (
    ConfigEngine,
    refuse_alpha,
    refuse_ministral,
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
from milepost.scaling import NTK, Dynamic, LongRoPE, YaRN

TRAINED = 4096
"""The trained length that mlx-lm's yarn takes where the dictionary has none."""
PAIRING = "rope_traditional"
ALWAYS_LONG = {"0": False, "0.32.2": True}
"""Whether longrope has the long factors for texts of all lengths, by the first version measured; before, by the text's
length, as in transformers."""
HAS_DYNAMIC = {"0": False, "0.32.0": True}
"""Whether all models have dynamic, by the first version; before, those of `OWN_DYNAMIC` alone."""
OWN_DYNAMIC = ("internlm2", "hunyuan_v1_dense", "hunyuan_v1_moe")


class MLXLM(ConfigEngine):
    """mlx-lm."""

    name = title = package = "mlx-lm"
    one_base = True
    own_names: ClassVar[Mapping[str, Mapping[str, bool]]] = {"telechat3-yarn": {"0": False, "0.32.2": True}}

    def read(self, config: Config, *, served: int | None = None) -> RopeSpec:
        """What mlx-lm makes of a config; it is not told which length it will serve."""
        traditional = ConfigKeys(config.data).flag(PAIRING)
        if PAIRING in config.data:  # a key that only mlx-lm knows
            config = replace(config, data={name: value for name, value in config.data.items() if name != PAIRING})
        spec = super().read(config)
        notes, kinds = spec.notes, spec.kinds
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
        if rope_type(given) == "su" and config.parsed.spec.model != "phi3":
            raise ConfigError(
                "mlx-lm has rope type su in phi3 only (ValueError: Unsupported RoPE type su): write longrope"
            )
        if isinstance(scaling, YaRN):
            return _yarn(rope, scaling, given, notes), notes
        if scaling is not None and config.parsed.spec.model == "deepseek_v2":
            raise ConfigError(f"{self.named} reads every scaling of its deepseek_v2 as yarn, {rope_type(given)} too")
        if isinstance(scaling, LongRoPE):
            long = self.since(ALWAYS_LONG)
            return _longrope(rope, scaling, config.parsed.spec, notes, always_long=long), notes
        if isinstance(scaling, NTK) and rope_type(given) == "ntk":  # with alpha, it is Hunyuan's own code
            raise ConfigError(
                f"mlx-lm has no rope type ntk; a larger base says it: rope_theta = {rope.spectrum().base:.10g}"
            )
        if isinstance(scaling, Dynamic):
            if not self.since(HAS_DYNAMIC) and config.parsed.spec.model not in OWN_DYNAMIC:
                raise ConfigError(f"{self.named} has no rope type dynamic (ValueError: Unsupported RoPE type dynamic)")
            notes.append("dynamic: keys that were cached at a shorter length are not turned again")
        return rope, notes

    def _write(self, spec: RopeSpec) -> Written:
        """The keys of config.json that mean ``spec``, in the spelling that the model's class reads."""
        refuse_ministral(self.title, spec)
        notes: list[str] = []
        kinds = {kind: self._words(rope, spec, notes) for kind, rope in spec.ropes().items()}
        refusals = []
        for spell in (self._flat, self._nested):
            try:
                config = spell(spec, kinds)
                written = Written(self.name, config, json.dumps(config, indent=2), tuple(dict.fromkeys(notes)))
                return self.proved(spec, written, partial(self.read, Config(config, "config.json")))
            except Refused as refusal:
                refusals.append(refusal)
        raise refusals[0]

    def _flat(self, spec: RopeSpec, kinds: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """rope_theta beside rope_scaling, under both names of its type: some classes want the older one."""
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
        config["rope_scaling"] = None if rest == {"rope_type": "default"} else {**rest, "type": rest["rope_type"]}
        return config

    def _nested(self, spec: RopeSpec, kinds: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """rope_parameters, for the classes that read it."""
        first = next(iter(kinds.values()))
        alike = all(dictionary == first for dictionary in kinds.values())
        return {**shape(spec, PAIRING), "rope_parameters": first if alike else kinds}

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
    if rope_type(given) == "telechat3-yarn":
        compared = compare_m("", m, yarn.m).replace("transformers", "its own code")
        notes.append(f"telechat3-yarn is read as yarn: {compared}")
    else:
        notes += notes_on_m(yarn, m, ("attention_factor",))
    if yarn.attn_factor is not None:
        notes.append(f"attn_factor = {yarn.attn_factor:g} is not read: m = {m:.4f}")
    if yarn.truncate is False:
        notes.append(f"truncate = false is not read: the bounds {truncation(rope, yarn)}")
    return with_m(rope, replace(yarn, truncate=None), m)


def _longrope(rope: LayerRope, scaling: LongRoPE, spec: RopeSpec, notes: list[str], *, always_long: bool) -> LayerRope:
    made = _always_long(scaling, spec.served)
    if not always_long:
        factor = max(1.0, (spec.served or scaling.trained) / scaling.trained)
        made = replace(scaling, factor=factor, attention_factor=None, short_m=None, long_m=None)
    elif scaling.short != scaling.long:
        notes.append(f"the long factors are for texts of all lengths, also those of up to {scaling.trained} tokens")
    theirs = replace(scaling, short_m=None, long_m=None).at(scaling.trained + 1).m
    m = made.at(scaling.trained + 1).m
    if not math.isclose(theirs, m, rel_tol=1e-9):
        notes.append(compare_m("longrope: ", m, theirs))
    if rope.pairing != "half":
        notes.append("longrope turns pairs of halves, and this model's pairs are interleaved")
    return replace(rope, scaling=made, pairing="half")


def _always_long(scaling: LongRoPE, served: int | None) -> LongRoPE:
    """mlx-lm's longrope: the long factors for every text, and m from the lengths."""
    factor = max(1.0, (served or scaling.trained) / scaling.trained)
    return LongRoPE(scaling.long, scaling.long, scaling.trained, factor)
