"""vLLM: what it makes of a config.json, and a command line that serves a spec with it.

What is read differently than in transformers (s is the factor; m multiplies cos and sin, so logits by m^2):

    yarn            m = attn_factor * (0.1 ln s + 1): attention_factor, mscale and mscale_all_dim are not read. With
                    s = 4, attention_factor = 1 is m = 1.1386 here and 1 there: logits x 1.2965
    yarn, DeepSeek  m = attn_factor * g(mscale) / g(mscale_all_dim), g(k) = 0.1 k ln s + 1; bounds are always truncated
    yarn, M-RoPE    the ramp is computed for 4 times the trained length: pairs 30 to 47 instead of 23 to 40 (Qwen2.5-VL)
    dynamic         one base for all texts: that of the length served, from max_trained_positions; without that key, the
                    plain base
    dynamic, alpha  base * alpha^(d/(d-2))
    ntk             Su's: base * s, and frequencies over s^(2/d)
    longrope        the long factors for all texts if more than the trained length is served; m from
                    max_position_embeddings, or short_mscale and long_mscale; factor and attention_factor are not read
    proportional    factor is not read

The same as there: default, linear, llama3. The keys go in with --hf-overrides; cos and sin are in the model's dtype.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from milepost.rope.config.config import Config
from milepost.rope.config.config_json import TEXT
from milepost.rope.config.keys import ConfigError
from milepost.rope.engines.config_engine import (
    ConfigEngine,
    longrope_by_lengths,
    rope_type,
    shape,
    write_longrope,
    write_other,
    write_yarn,
)
from milepost.rope.engines.written import Refused, Written
from milepost.rope.engines.yarn import compare_m, deepseek_m, notes_on_m, own_scales, with_m
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.scaling.dynamic import Dynamic
from milepost.scaling.linear import Linear
from milepost.scaling.longrope import LongRoPE
from milepost.scaling.ntk import NTK
from milepost.scaling.proportional import Proportional
from milepost.scaling.ramp import bounds
from milepost.scaling.yarn import YaRN, mscale

DEEPSEEK = {"deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_vl"}
"""Model types whose yarn is DeepSeek's, in vLLM and SGLang; besides rope type deepseek_yarn."""
Meaning = tuple[LayerRope, list[str]]


class VLLM(ConfigEngine):
    """vLLM; SGLang, a fork of its ropes, overrides what differs."""

    name, title = "vllm", "vLLM"
    command: ClassVar[list[str]] = ["vllm", "serve", "MODEL"]
    length_flag, keys_flag = "--max-model-len", "--hf-overrides"

    def meaning(self, rope: LayerRope, kind: str, config: Config, served: int | None) -> Meaning:
        scaling, given, spec = rope.scaling, config.parsed.dictionaries[kind], config.parsed.spec
        if rope.sections is not None and not (scaling is None or isinstance(scaling, YaRN)):
            raise ConfigError(
                f"{self.title} has M-RoPE with rope types default and yarn only, not with {rope_type(given)}"
            )
        if isinstance(scaling, YaRN):
            return self.yarn(rope, scaling, given, spec)
        if isinstance(scaling, LongRoPE):
            if rope.pairing != "half":
                raise ConfigError(
                    f"{self.title} has longrope for pairs of halves only, and this model's pairs are interleaved"
                )
            return self.longrope(rope, scaling, spec, served)
        if isinstance(scaling, Dynamic):
            return self.dynamic(rope, scaling, given, served)
        if isinstance(scaling, NTK):
            return self.ntk(rope, scaling, given)
        if isinstance(scaling, Proportional) and scaling.factor != 1:
            note = f"{self.title} does not read factor = {scaling.factor:g} of proportional: nothing is slowed"
            return replace(rope, scaling=replace(scaling, factor=1.0)), [note]
        return rope, []

    def yarn(self, rope: LayerRope, yarn: YaRN, given: Mapping[str, Any], spec: RopeSpec) -> Meaning:
        """What a yarn means."""
        if given and given.get("factor") is None:
            raise ConfigError(
                f"{self.title} stops at rope type yarn without factor, which transformers takes from the lengths: "
                f"write factor = {yarn.factor:g}"
            )
        if spec.model in DEEPSEEK or rope_type(given) == "deepseek_yarn":
            return deepseek_yarn(rope, yarn)
        m = (yarn.attn_factor or 1.0) * mscale(yarn.factor)
        notes = notes_on_m(yarn, m, ("attention_factor", "mscale", "mscale_all_dim"))
        if rope.sections is not None:
            far = replace(yarn, trained=4 * yarn.trained)
            notes.append(
                f"M-RoPE with yarn: the ramp is computed for 4 x {yarn.trained} tokens, "
                f"pairs {_ramp(rope, far)} instead of {_ramp(rope, yarn)}"
            )
            yarn = far
        return with_m(rope, yarn, m), notes

    def longrope(self, rope: LayerRope, scaling: LongRoPE, spec: RopeSpec, served: int | None) -> Meaning:
        """What a longrope means."""
        if served is None:
            raise ConfigError(
                f"{self.title} chooses the factors of longrope by the length that it serves ({self.length_flag}), "
                "which is not known: say served="
            )
        made = replace(longrope_by_lengths(scaling, spec.served or served), length=served)
        which = "long" if served > scaling.trained else "short"
        lengths = f"{served} tokens are served, {scaling.trained} were trained"
        note = f"the {which} factors are for texts of all lengths: {lengths}"
        return replace(rope, scaling=made), [note, *notes_on_longrope(scaling, made, served)]

    def dynamic(self, rope: LayerRope, scaling: Dynamic, given: Mapping[str, Any], served: int | None) -> Meaning:
        """What dynamic NTK means."""
        trained = given.get("max_trained_positions")
        if trained is None or served is None:
            far = 2 * scaling.trained
            theirs = replace(rope, scaling=scaling.at(far)).spectrum().base
            note = (
                f"dynamic does nothing without max_trained_positions: the base stays {rope.base:.10g} for texts of all "
                f"lengths (transformers: {theirs:.10g} at {far} tokens)"
            )
            return replace(rope, scaling=None), [note]
        made = replace(rope, scaling=Dynamic(int(trained), scaling.factor, length=served))
        base = made.spectrum().base
        return made, [
            f"dynamic is computed once, for the {served} tokens served: base {base:.10g} for texts of all lengths"
        ]

    def ntk(self, rope: LayerRope, scaling: NTK, given: Mapping[str, Any]) -> Meaning:
        """What rope type ntk means, and dynamic with alpha."""
        if rope_type(given) == "dynamic":  # with alpha
            base = rope.spectrum().base
            return rope, [
                f"alpha = {scaling.factor:g} is one base for all texts: {base:.10g} instead of {rope.base:.10g}"
            ]
        s, over = scaling.factor, scaling.factor ** (2 / rope.rotary)
        note = (
            f"ntk is Su's: base x {s:g} and all frequencies over {over:.6f}; NTK-aware scaling keeps the fastest pair"
        )
        return replace(rope, base=rope.base * s, scaling=Linear(over)), [note]

    def _write(self, spec: RopeSpec) -> Written:
        """A command line that serves ``spec``, quoted for a shell: the length, and keys in place of the model's own."""
        notes: list[str] = []
        kinds = {kind: None if rope is None else self.words(rope, spec, notes) for kind, rope in spec.kinds}
        first = next(iter(kinds.values()))
        alike = all(dictionary == first for dictionary in kinds.values())
        config = {**shape(spec), "rope_parameters": first if alike else kinds}
        keys = {name: config[name] for name in ("rope_parameters", "max_position_embeddings") if name in config}
        part = next((name for name in TEXT for key in spec.sources.values() if key.startswith(name + ".")), None)
        served = [] if spec.served is None else [self.length_flag, str(spec.served)]
        text = shlex.join([*self.command, *served, self.keys_flag, json.dumps(keys if part is None else {part: keys})])
        rounded = (
            f"{self.title} keeps cos and sin in the model's dtype (bf16: off by up to 0.002), from float32 angles "
            "(off by 0.007 at position 131072)"
        )
        written = Written(self.name, config, text, (*dict.fromkeys(notes), rounded))
        return self.proved(spec, written, lambda: self.read(Config(config, "config.json"), served=spec.served))

    def words(self, rope: LayerRope, spec: RopeSpec, notes: list[str]) -> dict[str, Any]:
        """A rope as a dictionary; notes are added to the list."""
        if isinstance(rope.scaling, LongRoPE) and spec.served is not None:
            each_m = self.each_m(rope.scaling, spec.served)
            if each_m is not None:
                return _longrope_words(rope, rope.scaling, spec, spec.served, each_m)
        rope = self.settled(rope, spec)
        scaling = rope.scaling
        if isinstance(scaling, Proportional) and scaling.factor != 1:
            raise Refused(
                f"{self.title} does not read factor = {scaling.factor:g} of proportional, and would turn all pairs "
                f"{scaling.factor:g} times as fast; use factor 1"
            )
        if isinstance(scaling, YaRN) and scaling.preset != "paper":
            self.check_ramp(rope, scaling)
            return write_yarn(rope, scaling, spec, _keys_of_m(scaling, spec))
        dictionary, m = write_other(rope, spec, notes)
        return (
            {**dictionary, "short_mscale": m, "long_mscale": m} if dictionary["rope_type"] == "longrope" else dictionary
        )

    def each_m(self, scaling: LongRoPE, served: int) -> tuple[float, float] | None:
        """m of the short and of the long factors, where the engine has this longrope as two lists."""
        return (scaling.m, scaling.m) if scaling.length == served else None

    def check_ramp(self, rope: LayerRope, yarn: YaRN) -> None:
        """Refuse a yarn whose ramp would be computed for another length."""
        if rope.sections is not None:
            raise Refused(
                f"{self.title} computes the ramp of yarn with M-RoPE for 4 x {yarn.trained} tokens: pairs "
                f"{_ramp(rope, replace(yarn, trained=4 * yarn.trained))} would be blended, not {_ramp(rope, yarn)}; "
                "serve it with SGLang or transformers, or extend it with another method"
            )


def deepseek_yarn(rope: LayerRope, yarn: YaRN) -> Meaning:
    """DeepSeek's yarn, the same in vLLM and SGLang."""
    m = deepseek_m(yarn)
    notes = notes_on_m(yarn, m, ("attention_factor",))
    if yarn.truncate is False:
        notes.append("truncate = false is not read: DeepSeek's yarn truncates the bounds of its ramp")
    return with_m(rope, replace(yarn, truncate=None), m), notes


def notes_on_longrope(scaling: LongRoPE, made: LongRoPE, length: int) -> list[str]:
    """A note where m is not that of transformers."""
    theirs, m = replace(scaling, short_m=None, long_m=None).at(length).m, made.at(length).m
    return [] if math.isclose(theirs, m, rel_tol=1e-9) else [compare_m("longrope: ", m, theirs)]


def _longrope_words(
    rope: LayerRope, scaling: LongRoPE, spec: RopeSpec, served: int, each_m: tuple[float, float]
) -> dict[str, Any]:
    """The dictionary of both lists, with what sets m where the lengths would give another."""
    default = replace(longrope_by_lengths(scaling, served), short_m=None, long_m=None).at(served).m
    dictionary = write_longrope(rope, scaling, spec)
    if not all(math.isclose(default, m, rel_tol=1e-12) for m in each_m):
        dictionary["short_mscale"], dictionary["long_mscale"] = each_m
    return dictionary


def _keys_of_m(yarn: YaRN, spec: RopeSpec) -> dict[str, float]:
    """The keys that set m: attn_factor multiplies the default. DeepSeek's mscale stays, for the softmax needs it."""
    keys: dict[str, float] = {}
    default = mscale(yarn.factor)
    if spec.model in DEEPSEEK:
        keys, default = own_scales(yarn), deepseek_m(replace(yarn, attn_factor=None))
    return keys if math.isclose(yarn.m, default, rel_tol=1e-12) else {**keys, "attn_factor": yarn.m / default}


def _ramp(rope: LayerRope, yarn: YaRN) -> str:
    """The pairs that a yarn blends."""
    truncate = yarn.truncate is not False
    low, high = bounds(
        rope.plain(), yarn.trained, yarn.beta_fast, yarn.beta_slow, truncate=truncate, most=rope.rotary - 1
    )
    return f"{low:g} to {high:g}"
