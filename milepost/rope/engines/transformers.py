"""transformers: reads config.json of version 4 and 5 alike; writes either.

    v5    rope_parameters: {rope_type, rope_theta, ...}, one for all layers or one for each kind of layer
    v4    rope_theta beside rope_scaling: {rope_type or type, ...}; older names before that

Nothing is filled in silently: `RopeSpec.sources` names the key of every value, or says that it is the model type's own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from milepost.rope.config.config import Config
from milepost.rope.config.config_json import Parsed, checked, text_model
from milepost.rope.config.families import FAMILIES, Family
from milepost.rope.config.keys import ConfigError, ConfigKeys, as_config_error, pass_over
from milepost.rope.config.layer_kinds import DO_NOT
from milepost.rope.config.read_scaling import ORIGINAL, OWN_NAMES
from milepost.rope.engines.config_engine import ConfigEngine, refuse_alpha, refuse_ministral, shape, spell_flat
from milepost.rope.engines.write_scaling import write_scaling
from milepost.rope.engines.written import Refused, Written
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.rope.temperature import QueryTemperature
from milepost.scaling import Dynamic, LongRoPE, YaRN

WANTS_HEAD_DIM = {"0": ("mistral", "mixtral"), "5": ("mixtral",)}
"""Families whose head_dim is null unless the config says it, and whose yarn then stops, by the first version."""


class Transformers(ConfigEngine):
    """transformers 5, or 4."""

    package = "transformers"
    keeps_temperatures = True  # written beside the scaling
    own_names: ClassVar[Mapping[str, Mapping[str, bool]]] = {name: {"0": True} for name in OWN_NAMES}

    def __init__(self, major: int):
        self.major = major
        self.name = "transformers" if major == 5 else f"transformers-v{major}"
        self.title = f"transformers v{major}"
        self.one_base = major == 4

    @property
    def named(self) -> str:
        return self.title if self.version is None else f"transformers {self.version}"

    def read(self, config: Config, *, served: int | None = None) -> RopeSpec:
        """What transformers makes of a config; it is not told which length it will serve."""
        return checked(super().read(config))

    def notes(self, parsed: Parsed) -> list[str]:
        return list(parsed.spec.notes)

    def meaning(self, rope: LayerRope, kind: str, config: Config, served: int | None) -> tuple[LayerRope, list[str]]:
        spec, given = config.parsed.spec, config.parsed.dictionaries[kind]
        notes: list[str] = []
        refuse_alpha(rope, kind, config)
        if self.version is not None:
            self._refuse_what_stops(rope, given, config)
        rope = _whole_head(spec, kind, rope, config.allow_unknown, notes)
        rope = replace(rope, scaling=_scaling(spec, kind, rope, notes))
        return (self._as_4_has_it(rope, config, notes) if self.version and self.major == 4 else rope), notes

    def _as_4_has_it(self, rope: LayerRope, config: Config, notes: list[str]) -> LayerRope:
        """What transformers 4 makes of a rope otherwise than 5 does."""
        spec = config.parsed.spec
        if spec.model == "deepseek_v2" and rope.softmax != 1:
            notes.append(
                f"{self.named} leaves mscale_all_dim out of the softmax scale in deepseek_v2, silently: x 1, not "
                f"x {rope.softmax:.4f}"
            )
            rope = replace(rope, softmax=1.0)
        scaling, beside = rope.scaling, text_model(ConfigKeys(config.data))[0].whole(ORIGINAL)
        if isinstance(scaling, LongRoPE) and beside is None and spec.served not in (None, scaling.trained):
            notes.append(
                f"{self.named} looks for {ORIGINAL} beside rope_scaling, not in it: the long factors begin above "
                f"{spec.served} tokens, not {scaling.trained}"
            )
            rope = replace(rope, scaling=replace(scaling, trained=spec.served))
        return rope

    def _refuse_what_stops(self, rope: LayerRope, given: Mapping[str, Any], config: Config) -> None:
        """Refuse what earlier versions read, or the model's own code, and this one ends at."""
        model, keys = config.parsed.spec.model, text_model(ConfigKeys(config.data))[0]
        if isinstance(rope.scaling, YaRN) and model in self.since(WANTS_HEAD_DIM) and not keys.has("head_dim"):
            raise ConfigError(
                f"{self.named} stops at rope type yarn in its {model} without head_dim (TypeError: NoneType * float): "
                f"write head_dim = {rope.head_dim}"
            )
        name = given.get("rope_type") or given.get("type")
        if self.major == 4 and model == "llama4_text" and name not in (None, "default", "llama3"):
            raise ConfigError(
                f"{self.named} reads every scaling of its llama4_text as llama3, {name} too (KeyError: "
                "'low_freq_factor')"
            )
        if name in ("su", "ntk") and (name, model, self.major) != ("su", "phi3", 4):
            remedy = "longrope" if name == "su" else f"a larger base, rope_theta = {rope.spectrum().base:.10g}"
            raise ConfigError(f"{self.named} has no rope type {name} (KeyError: '{name}'); write {remedy}")
        if name in OWN_NAMES and (name, model) != ("xdrope", "hunyuan_vl_text"):
            raise ConfigError(f"{self.named} has no rope type {name}, which is of {OWN_NAMES[name][1]}'s own code")
        if isinstance(rope.scaling, YaRN) and given and given.get("factor") is None:
            raise ConfigError(
                f"{self.named} stops at rope type yarn without factor, which earlier versions took from the lengths: "
                f"write factor = {rope.scaling.factor:g}"
            )

    def _write(self, spec: RopeSpec) -> Written:
        """The keys of config.json that mean ``spec``."""
        refuse_ministral(self.title, spec)
        config, notes = shape(spec), []
        dictionaries: dict[str, Any] = {}
        for kind, rope in spec.kinds:
            dictionaries[kind], more = (None, []) if rope is None else write_scaling(rope, spec)
            notes += more
            _write_temperature(dict(spec.temperatures).get(kind), dictionaries[kind], config)
            if rope is not None and isinstance(rope.scaling, Dynamic):
                config["max_position_embeddings"] = rope.scaling.trained
                notes.append(
                    "dynamic starts from max_position_embeddings, so that must stay the trained length, "
                    f"{rope.scaling.trained}"
                )
        turning = [dictionary for dictionary in dictionaries.values() if dictionary is not None]
        family = FAMILIES.get(spec.model, Family())
        still = {kind for kind, dictionary in dictionaries.items() if dictionary is None}
        known_still = still <= {*DO_NOT, *family.still}
        flat = all(dictionary == turning[0] for dictionary in turning) and not family.by_kind and known_still
        if not flat and self.major == 5 and spec.model in FAMILIES and not family.by_kind and known_still:
            raise Refused(
                f"{self.title} has one rope for all layers of {spec.model}, and its kinds of layers differ: "
                f"{', '.join(dictionaries)}"
            )
        if self.major == 4:
            self._write_v4(spec, config, dictionaries, flat, family)
        elif flat:
            config["rope_parameters"] = turning[0]
        else:
            config["rope_parameters"] = {kind: d for kind, d in dictionaries.items() if kind not in DO_NOT}
        printed = dict(config)
        if spec.model == "falcon":  # head_dim can't be set in its class, which stops at it
            printed.pop("head_dim", None)
            notes.append(
                f"the head size, {spec.main.head_dim}, is hidden_size over num_attention_heads of the model's own "
                "config.json: keep them"
            )
        written = Written(self.title, printed, json.dumps(printed, indent=2), tuple(dict.fromkeys(notes)))
        return self.proved(spec, written, lambda: self.read(Config(config, "config.json")))

    def _write_v4(
        self, spec: RopeSpec, config: dict[str, Any], dictionaries: dict[str, Any], flat: bool, family: Family
    ) -> None:
        """rope_theta beside rope_scaling, in place of rope_parameters."""
        two = set(dictionaries) == {"sliding_attention", "full_attention"}
        local = dictionaries.get("sliding_attention") if two else None
        if local is not None and family.unscaled and local["rope_type"] != "default":
            local = None
        turning = [dictionary for dictionary in dictionaries.values() if dictionary is not None]
        if not flat and local is None and len(turning) > 1:
            raise Refused(
                f"{self.title} has one rope_scaling for all layers, and {spec.model or 'this model'} has "
                f"{len(dictionaries)} kinds of layers"
            )
        main = dictionaries.get("full_attention") or turning[0]
        local_base = None if local is None or local["rope_theta"] == main["rope_theta"] else local["rope_theta"]
        base = "global_rope_theta" if spec.model.startswith("modernbert") else "rope_theta"
        rest = spell_flat(config, main, local_base, base)
        if rest["rope_type"] == "longrope":
            config[ORIGINAL] = rest.pop(ORIGINAL)
            if spec.model == "phi3":
                rest = _three_fields(self.named, rest, (spec.served or 0) / config[ORIGINAL])
        config["rope_scaling"] = None if rest == {"rope_type": "default"} and family.rope is None else rest


def _three_fields(named: str, longrope: dict[str, Any], factor: float) -> dict[str, Any]:
    """Phi-3's longrope, whose dictionary has three keys and no more; m follows from the lengths."""
    m = longrope.get("attention_factor")
    if m is not None or not math.isclose(longrope.get("factor", factor), factor, rel_tol=1e-9):
        raise Refused(
            f"{named} stops at a longrope of its phi3 that has more keys than type, short_factor and long_factor "
            f"(ValueError), and this one has m of its own: {m or longrope['factor']:.4f}"
        )
    return {"type": "longrope", "short_factor": longrope["short_factor"], "long_factor": longrope["long_factor"]}


def _write_temperature(
    temperature: QueryTemperature | None, dictionary: dict[str, Any] | None, config: dict[str, Any]
) -> None:
    """What queries are multiplied by: beside the scaling, or, in layers that do not turn, in the config itself."""
    if temperature is None or temperature.form not in ("llama4", "mistral"):
        return
    if temperature.form == "llama4":
        config |= {"attn_temperature_tuning": True, "attn_scale": temperature.a, "floor_scale": int(temperature.n)}
    elif dictionary is not None:
        dictionary |= {"llama_4_scaling_beta": temperature.a, "original_max_position_embeddings": int(temperature.n)}


def _whole_head(spec: RopeSpec, kind: str, rope: LayerRope, allow_unknown: bool, notes: list[str]) -> LayerRope:
    """The rope of a model type whose code turns whole heads, whatever share the config asks for."""
    family = FAMILIES.get(spec.model)
    if family is None or family.turns_part or rope.rotary == rope.head_dim:
        return rope
    key = next((spec.sources[k] for k in (f"{kind}.rotary", "rotary") if k in spec.sources), "partial_rotary_factor")
    problem = (
        f"{key} asks for {rope.rotary} of {rope.head_dim} channels, and transformers' {spec.model} turns whole heads: "
        "it has no code for a part"
    )
    pass_over(problem, allow_unknown, notes)
    with as_config_error(problem, "; "):
        whole = replace(rope, rotary=rope.head_dim)
        whole.spectrum(spec.served or 1)
    return whole


def _scaling(spec: RopeSpec, kind: str, rope: LayerRope, notes: list[str]) -> Any:
    """The scaling without the keys that transformers does not read."""
    scaling = rope.scaling
    if isinstance(scaling, LongRoPE):
        return replace(scaling, short_m=None, long_m=None)
    if not isinstance(scaling, YaRN):
        return scaling
    nested = spec.sources.get(f"{kind}.scaling", "").endswith(f".{kind}")
    if nested and scaling.truncate is False:  # 5.22 looks for the key beside the kinds of layers, where it is not
        notes.append(
            f"transformers does not see truncate = false of {kind}: it reads that key outside of the kinds of layers, "
            "and truncates"
        )
        scaling = replace(scaling, truncate=None)
    return replace(scaling, attn_factor=None)


def read_spec(config: Config) -> RopeSpec:
    """A config as its own program means it: transformers, for params.json its authors' code, for GGUF llama.cpp."""
    return TRANSFORMERS.read(config) if config.format == "config.json" else config.parsed.spec


TRANSFORMERS, TRANSFORMERS_V4 = Transformers(5), Transformers(4)
