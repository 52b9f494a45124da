"""exllamav3: what it makes of a config, and the keys of config.json that say a spec.

    rope_theta, rope_scaling or rope_parameters, partial_rotary_factor     as transformers has them

What is different here:

    yarn       factor is not read where original_max_position_embeddings is there: it is max_position_embeddings over
               that. A config that keeps max_position_embeddings at the trained length, as Qwen's model cards say, is
               served unscaled. m is attention_factor, else 1 beside llama_4_scaling_beta, else 0.1 ln(factor) + 1:
               mscale and mscale_all_dim are read for DeepSeek only, whose softmax scale goes by factor all the same
    longrope   one list for all texts: the long one if max_position_embeddings is above the trained length, with the m
               of these lengths; attention_factor is not read
    dynamic    it stops (ValueError: Unknown rope_type)

Its Gemma 3 and OLMo 3 have a rope for each kind of layer, and are read so. What is written has one for all layers: no
export with several was run by the engine.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

from milepost.rope.config.config import Config
from milepost.rope.config.keys import ConfigError
from milepost.rope.config.read_scaling import ORIGINAL
from milepost.rope.engines.config_engine import ConfigEngine, longrope_by_lengths, rope_type, shape, spell_flat
from milepost.rope.engines.write_scaling import write_scaling
from milepost.rope.engines.written import Refused, Written
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.scaling import NTK, Dynamic, LongRoPE, Proportional, YaRN, mscale

DEEPSEEK = ("deepseek_v3", "kimi_k2", "mistral4")
"""Model types in which mscale and mscale_all_dim are read."""
KINDS = "no export with a rope for each kind of layer was run by it: use transformers, vLLM or SGLang"
"""Why kinds of layers are not written, and what to do."""


class ExLlamaV3(ConfigEngine):
    """exllamav3, which reads config.json beside quantised weights."""

    name = title = package = "exllamav3"
    one_base = True

    def meaning(self, rope: LayerRope, kind: str, config: Config, served: int | None) -> tuple[LayerRope, list[str]]:
        """What it makes of a rope."""
        given, notes, scaling = config.parsed.dictionaries[kind], [], rope.scaling
        if isinstance(scaling, Dynamic) or (isinstance(scaling, NTK) and rope_type(given) in ("ntk", "dynamic")):
            raise ConfigError(f"{self.title} has no rope type {rope_type(given)} (ValueError: Unknown rope_type)")
        if isinstance(scaling, YaRN):
            made = _yarn(scaling, given, served, config.parsed.spec.model in DEEPSEEK)
            if made is None:
                notes.append(
                    f"{self.title} takes the factor of yarn from the lengths, and max_position_embeddings = {served} "
                    f"is not above {ORIGINAL} = {scaling.trained}: {scaling!r} is dropped, silently"
                )
            elif made.factor != scaling.factor:
                notes.append(
                    f"{self.title} takes the factor of yarn from the lengths: {made.factor:g}, not {scaling.factor:g}"
                )
            if made is not None and abs(made.m - scaling.m) > 1e-6:
                notes.append(
                    f"{self.title}: m = {made.m:.4f}, logits x {made.m**2:.4f} (transformers: {scaling.m:.4f})"
                )
            return replace(rope, scaling=made), notes
        if isinstance(scaling, LongRoPE):
            longest = served or scaling.trained
            which = "long" if longest > scaling.trained else "short"
            notes.append(f"the {which} factors are for texts of all lengths: max_position_embeddings = {longest}")
            listed = replace(longrope_by_lengths(scaling, longest), short_m=None, long_m=None)
            return replace(rope, scaling=listed.at(longest)), notes
        return rope, notes

    def _write(self, spec: RopeSpec) -> Written:
        """The keys of config.json that mean ``spec``."""
        rope = self.settled(self.one_rope(spec, KINDS), spec)
        scaling = rope.scaling
        if isinstance(scaling, Proportional):
            raise Refused(f"{self.title} has {scaling!r} in its Gemma 4 only")
        notes: list[str] = []
        if isinstance(scaling, YaRN) and scaling.preset != "paper":
            plain = replace(scaling, attention_factor=None, attn_factor=None, mscale=None, mscale_all_dim=None)
            dictionary = write_scaling(replace(rope, scaling=plain), spec)[0]
            if scaling.m != plain.m:
                dictionary["attention_factor"] = scaling.m
        else:
            dictionary, notes = write_scaling(rope, spec)
        config = shape(spec)
        if isinstance(scaling, YaRN):
            config["max_position_embeddings"] = round(scaling.factor * scaling.trained)
            notes.append(
                f"it takes the factor from max_position_embeddings, {config['max_position_embeddings']}: keep it"
            )
        rest = spell_flat(config, dictionary, None)
        config["rope_scaling"] = None if rest == {"rope_type": "default"} else rest
        written = Written(self.name, config, json.dumps(config, indent=2), tuple(notes))
        return self.proved(spec, written, partial(self.read, Config(config, "config.json")))


def _yarn(yarn: YaRN, given: Any, served: int | None, deepseek: bool) -> YaRN | None:
    """Its yarn, None where the lengths leave nothing to scale."""
    factor = yarn.factor if ORIGINAL not in given or served is None else served / yarn.trained
    if factor == 1:
        return None
    if deepseek:
        return replace(yarn, factor=factor)
    m = given.get("attention_factor")
    if m is None:
        m = 1.0 if given.get("llama_4_scaling_beta") else mscale(factor)
    return replace(yarn, factor=factor, attn_factor=None, mscale=None, mscale_all_dim=None, attention_factor=float(m))
