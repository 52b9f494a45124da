"""ConfigEngine: an engine that reads config.json, and means by most of it what transformers means.

Reading: the config is parsed; what an engine's model class was measured to pass over goes (`arriving`), and each engine
says what it makes of the rest, for each kind of layer.
Writing: each engine writes a rope as a dictionary; this file puts the dictionaries into a config.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from milepost.rope.config.config import Config
from milepost.rope.config.config_json import Parsed, text_model
from milepost.rope.config.families import FAMILIES, Family
from milepost.rope.config.keys import ConfigError, ConfigKeys, as_config_error, short
from milepost.rope.config.read_scaling import ORIGINAL, OWN_NAMES
from milepost.rope.engines import measured
from milepost.rope.engines.engine import Engine
from milepost.rope.engines.write_scaling import write_scaling
from milepost.rope.engines.written import Refused, Written
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.scaling import NTK, LongRoPE, YaRN

OLDER = ("rope_condense_ratio", "rotary_scaling_factor")
"""Keys that once set a scaling outside of any dictionary: LongChat's and Nomic's."""


class ConfigEngine(Engine):
    """An engine that reads config.json; ``reads_older`` are the keys of `OLDER` that it reads, ``own_names`` the rope
    types of `OWN_NAMES`, by the first version that was seen to read them. ``keeps_temperatures``: an export leaves
    Mistral's temperature by position where it is, or writes it again.

    ``one_base`` says whether its OLMo 3, spelled flat, gives the base of the config to sliding layers too: transformers
    5 gives them 500000.
    """

    reads_older: tuple[str, ...] = ()
    own_names: ClassVar[Mapping[str, Mapping[str, bool]]] = {}
    keeps_temperatures = False
    one_base = False

    def read(self, config: Config, *, served: int | None = None) -> RopeSpec:
        """What the engine makes of a config that it serves for ``served`` tokens; by default, what the config says."""
        parsed = self.parsed(config)
        limit = parsed.spec.served if served is None else served
        notes = self.notes(parsed)
        kinds: list[tuple[str, LayerRope | None]] = []
        for kind, rope in parsed.spec.kinds:
            if rope is not None:
                with as_config_error():
                    arrived, passed_over = self.arriving(rope, kind, config)
                    rope, more = self.meaning(arrived, kind, config, limit)  # noqa: PLW2901
                    rope.spectrum(limit or 1)
                notes += passed_over + more
            kinds.append((kind, rope))
        return replace(parsed.spec, kinds=tuple(kinds), served=limit, notes=tuple(dict.fromkeys(notes)))

    def write(self, spec: RopeSpec) -> Written:
        """Refuse what stands in the very dictionary that is written anew, unless this engine writes that, too."""
        if not self.keeps_temperatures and any(tau.form == "mistral" for _, tau in spec.temperatures):
            raise Refused(
                f"{self.title} is given its rope dictionary anew, and what queries are multiplied by according to "
                "their position (llama_4_scaling_beta) stands in it: that would be dropped silently; change the other "
                "keys of the dictionary by hand"
            )
        return super().write(spec)

    def parsed(self, config: Config) -> Parsed:
        """What the config says; an error where it is none that this engine reads."""
        if config.format != "config.json":
            theirs = "llama.cpp's" if config.format == "GGUF" else "that of Mistral's and Meta's own code"
            raise ConfigError(
                f"{self.name} reads config.json, and {config.file or 'this'} is a {config.format} file, "
                f"which is {theirs}"
            )
        return config.parsed

    def arriving(self, rope: LayerRope, kind: str, config: Config) -> tuple[LayerRope, list[str]]:
        """The part of a rope that reaches the engine's rotary code: its model classes differ in what they pass on."""
        model, given = config.parsed.spec.model, config.parsed.dictionaries[kind]
        name = rope_type(given)
        if name in OWN_NAMES and not self.since(self.own_names.get(name, {"0": False})):
            raise ConfigError(
                f"{self.named} is not known to read rope type {name}, of {OWN_NAMES[name][1]}'s own code; write what "
                "it means: milepost export"
            )
        spelling = "nested" if text_model(ConfigKeys(config.data))[0].has("rope_parameters") else "flat"
        if self.one_base and (model, kind, spelling) == ("olmo3", "sliding_attention", "flat"):
            rope = replace(rope, base=config.parsed.spec.ropes()["full_attention"].base)
        if self.version is None or self.version not in self.versions:
            return rope, []
        older = config.parsed.spec.sources.get("scaling", "").split(".")[-1]
        if older in OLDER and older not in self.reads_older:
            note = f"{self.named} does not read {older}: {rope.scaling!r} is dropped, silently"
            return replace(rope, scaling=None), [note]
        row = measured.load(self.name, self.version).families.get(model, {})
        named = "default" if rope.scaling is None else str(rope_type(given))
        named = "yarn" if named == "llama3" else named  # arrives where yarn does
        outcome = row.get(f"{named} {spelling}", "")
        if outcome.startswith("stops"):
            raise ConfigError(
                f"{self.named} stops at rope type {named} in its {model}: {outcome.removeprefix('stops: ')}"
            )
        if named not in ("default", "linear", "yarn"):  # measured for these; the rest arrives as yarn does
            outcome = row.get(f"yarn {spelling}", "")
        if outcome == "other" and named in ("default", "linear", "yarn"):
            raise ConfigError(
                f"{self.named} makes something else of rope type {named} in its {model} than any engine does: "
                "neither the config's numbers nor plain ones were measured"
            )
        if not outcome or outcome == "read" or outcome.startswith(("stops", "other")):
            return rope, []
        notes = []
        if "unscaled" in outcome and rope.scaling is not None:
            notes.append(f"{self.named} passes no scaling on in its {model}: {rope.scaling!r} is dropped, silently")
            rope = replace(rope, scaling=None)
        if "base" in outcome and rope.base != float(outcome.split()[-1]):
            base = float(outcome.split()[-1])
            where = "rope_parameters" if spelling == "nested" else "rope_theta"
            notes.append(f"{self.named} does not read the base of {where} in its {model}: {base:g}, not {rope.base:g}")
            rope = replace(rope, base=base)
        return rope, notes

    def notes(self, parsed: Parsed) -> list[str]:
        """What the parser has to say, as far as it is true of this engine."""
        return [note for note in parsed.spec.notes if note not in parsed.about_transformers]

    @abstractmethod
    def meaning(self, rope: LayerRope, kind: str, config: Config, served: int | None) -> tuple[LayerRope, list[str]]:
        """What the engine makes of the rope that ``config`` has for a kind of layers, with notes."""


def rope_type(given: Mapping[str, Any]) -> Any:
    """The rope type that a dictionary names."""
    return given.get("rope_type") or given.get("type") or "default"


def refuse_alpha(rope: LayerRope, kind: str, config: Config) -> None:
    """Refuse dynamic with alpha, unless the model's own code reads it (Hunyuan's)."""
    spec, given = config.parsed.spec, config.parsed.dictionaries[kind]
    fixed = isinstance(rope.scaling, NTK) and rope_type(given) == "dynamic"
    if fixed and not FAMILIES.get(spec.model, Family()).alpha:
        where = spec.sources.get(f"{kind}.scaling") or spec.sources["scaling"]
        raise ConfigError(
            f"{where}.alpha = {short(given['alpha'])} is a fixed base, theta * alpha^(d/(d-2)): "
            "write that as rope_theta, or as rope type ntk"
        )


def refuse_ministral(engine: str, spec: RopeSpec) -> None:
    """Refuse Ministral 3 for engines that take a dictionary as it is written: its own holds a key that no spec has."""
    if spec.model == "ministral3":
        raise Refused(
            f"{engine}'s ministral3 wants llama_4_scaling_beta beside the scaling, which is no part of a spec: change "
            "the other keys of its rope_parameters by hand"
        )


def shape(spec: RopeSpec, pairing: str = "rope_interleave") -> dict[str, Any]:
    """The keys of a config that are not about the scaling, and without which it can't be read.

    ``pairing`` is the flag that says that pairs are interleaved.
    """
    main = spec.main
    config: dict[str, Any] = {"model_type": spec.model} if spec.model else {}
    family = FAMILIES.get(spec.model)
    config["qk_rope_head_dim" if main.softmax != 1 else "head_dim"] = main.head_dim
    if family is not None and family.wide is not None and family.wide[0] in spec.ropes():  # Gemma 4
        kind, key, _ = family.wide
        config[key] = spec.ropes()[kind].head_dim
        config["head_dim"] = next((r.head_dim for name, r in spec.ropes().items() if name != kind), config[key])
    if spec.layers:
        config["num_hidden_layers"] = len(spec.layers)
        if "no_rope" in dict(spec.kinds):
            config["no_rope_layers"] = [int(kind != "no_rope") for kind in spec.layers]
        elif len(spec.kinds) > 1:
            config["layer_types"] = list(spec.layers)
    if spec.served is not None:
        config["max_position_embeddings"] = spec.served
    if main.pairing != (family.pairing if family is not None else "half"):
        config[pairing] = main.pairing == "interleaved"
    return config


def spell_flat(
    config: dict[str, Any], main: Mapping[str, Any], local_base: float | None, base: str = "rope_theta"
) -> dict[str, Any]:
    """Move the base and the share of a rope out of its dictionary, as version 4 has them; returns the rest of ``main``.

    ``local_base`` is the base of sliding layers, where they have one of their own.
    """
    rest = dict(main)
    neox = config.get("model_type") == "gpt_neox"  # the one that never took the names of the rest
    if local_base is not None:
        modern = config.get("model_type", "").startswith("modernbert")
        config["local_rope_theta" if modern else "rope_local_base_freq"] = local_base
    config["rotary_emb_base" if neox else base] = rest.pop("rope_theta")
    if rest["rope_type"] != "proportional" and "partial_rotary_factor" in rest:
        config["rotary_pct" if neox else "partial_rotary_factor"] = rest.pop("partial_rotary_factor")
    return rest


def write_yarn(rope: LayerRope, yarn: YaRN, spec: RopeSpec, keys: Mapping[str, float]) -> dict[str, Any]:
    """The dictionary of a yarn whose m is set by the engine's own ``keys``."""
    plain = replace(yarn, attention_factor=None, attn_factor=None, mscale=None, mscale_all_dim=None)
    return {**write_scaling(replace(rope, scaling=plain), spec)[0], **keys}


def write_longrope(rope: LayerRope, longrope: LongRoPE, spec: RopeSpec) -> dict[str, Any]:
    """The dictionary of both lists, without what sets m."""
    return {
        **write_scaling(replace(rope, scaling=None), spec)[0],
        "rope_type": "longrope",
        ORIGINAL: longrope.trained,
        "short_factor": list(longrope.short),
        "long_factor": list(longrope.long),
    }


def write_other(rope: LayerRope, spec: RopeSpec, notes: list[str]) -> tuple[dict[str, Any], float]:
    """The dictionary of any other scaling, and m.

    m is not 1 only for a longrope, a factor for each pair, which is written without what sets m.
    """
    dictionary, more = write_scaling(rope, spec)
    notes += more
    if dictionary["rope_type"] != "longrope":
        return dictionary, 1.0
    m = math.sqrt(rope.spectrum().temperature)
    return {name: value for name, value in dictionary.items() if name not in ("attention_factor", "factor")}, m


def longrope_by_lengths(scaling: LongRoPE, longest: int) -> LongRoPE:
    """A longrope whose m follows from the lengths alone: factor and attention_factor are not read."""
    return replace(scaling, factor=max(1.0, longest / scaling.trained), attention_factor=None)
