"""onnxruntime-genai: what its model builder makes of a config, and the keys of config.json that say a spec.

    rope_theta, rope_scaling or rope_parameters, partial_rotary_factor     as transformers 5 has them

The builder works out tables of cos and sin and writes them into the ONNX file; nothing can be changed afterwards. What
is different here:

    Llama, Nemotron     llama3 is the only scaling that is read: yarn and the rest are dropped, silently
    SmolLM3, Gemma 3    the builder stops (KeyError: position_ids, rope_type)
    yarn       bounds are never truncated; beta_fast and beta_slow have to be there (without them it stops:
               ZeroDivisionError). m is g(mscale) / g(mscale_all_dim), g(k) = 0.1 k ln(factor) + 1, where both are
               there; mscale alone is m itself; else 0.1 ln(factor) + 1. attention_factor is not read
    longrope   for Phi-3 only, and only where the dictionary has the older key `type`: by the length of the text, with
               the m of the lengths or short_mscale and long_mscale; attention_factor is not read
    llama3     outside of the families above it stops, as dynamic does but in Hunyuan, which reads that alone, by alpha

What is written has one rope for all layers: no export with several was run by the engine.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import Any

from milepost.rope.config.config import Config
from milepost.rope.config.keys import ConfigError
from milepost.rope.config.read_scaling import ORIGINAL
from milepost.rope.engines.config_engine import ConfigEngine, longrope_by_lengths, rope_type, shape
from milepost.rope.engines.write_scaling import write_scaling
from milepost.rope.engines.written import Refused, Written
from milepost.rope.engines.yarn import with_m
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.scaling import NTK, LargerBase, Linear, Llama3, LongRoPE, YaRN, mscale

READS: dict[str, tuple[str, type]] = {
    "llama": ("llama3", Llama3),
    "nemotron": ("llama3", Llama3),
    "hunyuan_v1_dense": ("dynamic with alpha", NTK),
}
"""Model types whose builder reads one scaling and no other."""
PHI3_TRAINED = 4096
"""What transformers takes for Phi-3's original_max_position_embeddings where a config has none."""
KINDS = "no export with a rope for each kind of layer was run by it: use transformers, vLLM or SGLang"
"""Why kinds of layers are not written, and what to do."""


class OnnxRuntimeGenAI(ConfigEngine):
    """onnxruntime-genai, whose builder reads config.json."""

    name = title = package = "onnxruntime-genai"

    def arriving(self, rope: LayerRope, kind: str, config: Config) -> tuple[LayerRope, list[str]]:
        """What the builder of a family reads of a scaling."""
        scaling, model, given = rope.scaling, config.parsed.spec.model, config.parsed.dictionaries[kind]
        named = rope_type(given)
        if scaling is not None and (named in ("su", "ntk") or (named == "yarn" and given and "factor" not in given)):
            what = "yarn without factor" if named == "yarn" else named
            raise ConfigError(f"{self.title} stops at rope type {what}, as transformers 5 does, whose config it reads")
        if scaling is not None and model in READS and not isinstance(scaling, READS[model][1]):
            note = (
                f"{self.named} reads no scaling but {READS[model][0]} in its {model}: {scaling!r} is dropped, silently"
            )
            return replace(rope, scaling=None), [note]
        by_family = scaling is None or isinstance(scaling, Linear) or model in ("smollm3", "phi3")
        if model in READS or not by_family:  # the rest stops, or not, by its keys
            return rope, []
        return super().arriving(rope, kind, config)

    def meaning(self, rope: LayerRope, kind: str, config: Config, served: int | None) -> tuple[LayerRope, list[str]]:
        """What it makes of a rope that its builder reads."""
        given, scaling, model = config.parsed.dictionaries[kind], rope.scaling, config.parsed.spec.model
        if isinstance(scaling, YaRN):
            return self._yarn(rope, scaling, given)
        original = config.data.get(ORIGINAL, PHI3_TRAINED)
        if model == "phi3" and not isinstance(scaling, LongRoPE) and served not in (None, original):
            raise ConfigError(
                f"{self.title} stops at a phi3 of {served} positions and {ORIGINAL} = {original} whose scaling is not "
                "longrope (KeyError: 'multi_cache')"
            )
        if isinstance(scaling, LongRoPE):
            if model != "phi3" or "type" not in given:
                raise ConfigError(f"{self.title} has longrope in its phi3 only, in a dictionary with the key type")
            return replace(rope, scaling=longrope_by_lengths(scaling, served or scaling.trained)), []
        if scaling is not None and model not in READS and rope_type(given) != "linear":
            raise ConfigError(
                f"{self.title} stops at rope type {rope_type(given)} in its {model or 'models'} (NotImplementedError)"
            )
        return rope, []

    def _yarn(self, rope: LayerRope, yarn: YaRN, given: Any) -> tuple[LayerRope, list[str]]:
        if not (given.get("beta_fast") and given.get("beta_slow")):
            raise ConfigError(
                f"{self.title} stops at rope type yarn without beta_fast and beta_slow (ZeroDivisionError): write "
                "beta_fast = 32, beta_slow = 1"
            )
        scales = [float(given.get(name) or 0) for name in ("mscale", "mscale_all_dim")]
        m = mscale(yarn.factor)
        if all(scale > 0 for scale in scales):
            m = mscale(yarn.factor, scales[0]) / mscale(yarn.factor, scales[1])
        elif scales[0] > 0:
            m = scales[0]
        notes = [] if yarn.truncate is False else [f"{self.title} never truncates the bounds of yarn"]
        if abs(m - yarn.m) > 1e-6:
            notes.append(f"{self.title}: m = {m:.4f}, logits x {m**2:.4f} (transformers: {yarn.m:.4f})")
        return with_m(rope, replace(yarn, truncate=False), m), notes

    def _write(self, spec: RopeSpec) -> Written:
        """The keys of config.json that mean ``spec``, for the builder."""
        rope = self.settled(self.one_rope(spec, KINDS), spec)
        scaling = rope.scaling
        if isinstance(scaling, LongRoPE):
            raise Refused(f"{self.title} has longrope in Phi-3's own spelling only: build from its own config.json")
        notes: list[str] = []
        if isinstance(scaling, YaRN) and scaling.preset != "paper":
            plain = replace(scaling, attention_factor=None, attn_factor=None, mscale=None, mscale_all_dim=None)
            dictionary = write_scaling(replace(rope, scaling=plain), spec)[0]
            dictionary |= {"beta_fast": scaling.beta_fast, "beta_slow": scaling.beta_slow}
            if scaling.m != plain.m:
                dictionary["mscale"] = scaling.m
        else:
            dictionary, notes = write_scaling(rope, spec)
        if scaling is None or isinstance(scaling, LargerBase | NTK):
            dictionary["rope_type"] = "default"
        config = {**shape(spec), "rope_parameters": dictionary}
        written = Written(self.name, config, json.dumps(config, indent=2), tuple(notes))
        return self.proved(spec, written, partial(self.read, Config(config, "config.json")))
