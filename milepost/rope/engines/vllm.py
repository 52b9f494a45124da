"""vLLM: what it makes of a config.json, and a command line that serves a spec with it.

What is read differently than in transformers (s is the factor; m multiplies cos and sin, so logits by m^2):

    yarn            m = attn_factor * (0.1 ln s + 1): attention_factor, mscale and mscale_all_dim are not read. With s = 4,
                    attention_factor = 1 is m = 1.1386 here and 1 there: logits x 1.2965
    yarn, DeepSeek  m = attn_factor * g(mscale) / g(mscale_all_dim), g(k) = 0.1 k ln s + 1; bounds are always truncated
    yarn, M-RoPE    the ramp is computed for 4 times the trained length: pairs 30 to 47 instead of 23 to 40 (Qwen2.5-VL)
    dynamic         one base for all texts: that of the length served, from max_trained_positions; without that key, the plain base
    dynamic, alpha  base * alpha^(d/(d-2))
    ntk             Su's: base * s, and frequencies over s^(2/d)
    longrope        the long factors for all texts if more than the trained length is served; m from max_position_embeddings,
                    or short_mscale and long_mscale; factor and attention_factor are not read
    proportional    factor is not read

The same as there: default, linear, llama3. The keys go in with --hf-overrides; cos and sin are kept in the model's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from milepost.rope.config.keys import ConfigError
from milepost.rope.engines import engine
from milepost.rope.engines.written import Refused, Written
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
BESIDE_ALPHA = {
    "type",
    "alpha",
    "factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "max_trained_positions",
}
"""Keys that are not read, or are said otherwise, where there is alpha."""
ROUNDED = "{} keeps cos and sin in the model's dtype (bf16: off by up to 0.002), from float32 angles (off by 0.007 at position 131072)"


def read(config: Mapping[str, Any], *, served: int | None = None, allow_unknown: bool = False) -> RopeSpec:
    """What vLLM makes of a config with --max-model-len ``served``; by default, max_position_embeddings."""
    return engine.as_read(alpha_as_ntk(config), _meaning, served=served, allow_unknown=allow_unknown)


def alpha_as_ntk(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Dynamic with alpha is a fixed base, NTK-aware scaling by alpha; that is how it is put to the reader."""

    def change(given: Mapping[str, Any]) -> Mapping[str, Any]:
        if type_of(given) != "dynamic" or given.get("alpha") is None:
            return given
        return {
            **{k: v for k, v in given.items() if k not in BESIDE_ALPHA},
            "rope_type": "ntk",
            "factor": given["alpha"],
            "alpha": None,
        }

    return engine.each_dictionary(config, change) if isinstance(config, Mapping) else config


def type_of(given: Mapping[str, Any]) -> Any:
    """The rope type that a dictionary names."""
    return given.get("rope_type") or given.get("type") or "default"


def _meaning(
    rope: LayerRope, given: Mapping[str, Any], said: RopeSpec, served: int | None
) -> tuple[LayerRope, list[str]]:
    scaling = rope.scaling
    if rope.sections is not None and not (scaling is None or isinstance(scaling, YaRN)):
        raise ConfigError(f"vLLM has M-RoPE with rope types default and yarn only, not with {type_of(given)}")
    if isinstance(scaling, YaRN):
        return _yarn(rope, scaling, given, said)
    if isinstance(scaling, LongRoPE):
        return _longrope(rope, scaling, said, served)
    if isinstance(scaling, Dynamic):
        return _dynamic(rope, scaling, given, served)
    if isinstance(scaling, NTK) and "alpha" in given:
        return rope, [
            f"alpha = {scaling.factor:g} is one base for all texts: {rope.spectrum().base:.10g} instead of {rope.base:.10g}"
        ]
    if isinstance(scaling, NTK):
        s, over = scaling.factor, scaling.factor ** (2 / rope.rotary)
        note = (
            f"ntk is Su's: base x {s:g} and all frequencies over {over:.6f}; NTK-aware scaling keeps the fastest pair"
        )
        return replace(rope, base=rope.base * s, scaling=Linear(over)), [note]
    if isinstance(scaling, Proportional):
        return without_factor("vLLM", rope, scaling)
    return rope, []


def without_factor(name: str, rope: LayerRope, scaling: Proportional) -> tuple[LayerRope, list[str]]:
    """Proportional whose factor is not read."""
    if scaling.factor == 1:
        return rope, []
    return replace(rope, scaling=replace(scaling, factor=1.0)), [
        f"{name} does not read factor = {scaling.factor:g} of proportional: nothing is slowed"
    ]


def deepseek(
    rope: LayerRope, yarn: YaRN, unread: tuple[str, ...] = ("attention_factor",)
) -> tuple[LayerRope, list[str]]:
    """DeepSeek's yarn, the same in vLLM and SGLang."""
    m = engine.deepseek_m(yarn)
    notes = engine.about_m(yarn, m, unread)
    if yarn.truncate is False:
        notes.append("truncate = false is not read: DeepSeek's yarn truncates the bounds of its ramp")
    return engine.with_m(rope, replace(yarn, truncate=None), m), notes


def is_deepseek(given: Mapping[str, Any], said: RopeSpec) -> bool:
    """Whether the engine would use DeepSeek's yarn."""
    return said.model in DEEPSEEK or type_of(given) == "deepseek_yarn"


def _yarn(rope: LayerRope, yarn: YaRN, given: Mapping[str, Any], said: RopeSpec) -> tuple[LayerRope, list[str]]:
    if given and given.get("factor") is None:
        raise ConfigError(
            f"vLLM stops at rope type yarn without factor, which transformers takes from the lengths: write factor = {yarn.factor:g}"
        )
    if is_deepseek(given, said):
        return deepseek(rope, yarn)
    m = (yarn.attn_factor or 1.0) * mscale(yarn.factor)
    notes = engine.about_m(yarn, m, ("attention_factor", "mscale", "mscale_all_dim"))
    if rope.sections is not None:
        far = replace(yarn, trained=4 * yarn.trained)
        (a, b), (c, d) = _range(rope, yarn), _range(rope, far)
        notes.append(
            f"M-RoPE with yarn: the ramp is computed for 4 x {yarn.trained} tokens, pairs {c:g} to {d:g} instead of {a:g} to {b:g}"
        )
        yarn = far
    return engine.with_m(rope, yarn, m), notes


def _range(rope: LayerRope, yarn: YaRN) -> tuple[float, float]:
    return bounds(
        rope.plain(),
        yarn.trained,
        yarn.beta_fast,
        yarn.beta_slow,
        truncate=yarn.truncate is not False,
        most=rope.rotary - 1,
    )


def _longrope(rope: LayerRope, scaling: LongRoPE, said: RopeSpec, served: int | None) -> tuple[LayerRope, list[str]]:
    only_halves("vLLM", rope)
    if served is None:
        raise ConfigError(
            "vLLM chooses the factors of longrope by the length that it serves (--max-model-len), which is not known: say served="
        )
    made = replace(
        scaling, factor=max(1.0, (said.served or served) / scaling.trained), attention_factor=None, length=served
    )
    long = served > scaling.trained
    notes = [
        f"the {'long' if long else 'short'} factors are for texts of all lengths: {served} tokens are served, {scaling.trained} were trained"
    ]
    theirs = replace(scaling, short_m=None, long_m=None).at(served).m
    if not math.isclose(theirs, made.m, rel_tol=1e-9):
        notes.append(
            f"longrope: m = {made.m:.4f}, logits x {made.m**2:.4f} (transformers: m = {theirs:.4f}, logits x {theirs**2:.4f})"
        )
    return replace(rope, scaling=made), notes


def only_halves(name: str, rope: LayerRope) -> None:
    """longrope is for pairs of halves."""
    if rope.pairing != "half":
        raise ConfigError(f"{name} has longrope for pairs of halves only, and this model's pairs are interleaved")


def _dynamic(
    rope: LayerRope, scaling: Dynamic, given: Mapping[str, Any], served: int | None
) -> tuple[LayerRope, list[str]]:
    trained = given.get("max_trained_positions")
    if trained is None or served is None:
        there = replace(rope, scaling=scaling.at(2 * scaling.trained)).spectrum().base
        note = (
            f"dynamic does nothing without max_trained_positions: the base stays {rope.base:.10g} for texts of all lengths "
            f"(transformers: {there:.10g} at {2 * scaling.trained} tokens)"
        )
        return replace(rope, scaling=None), [note]
    made = replace(rope, scaling=Dynamic(int(trained), scaling.factor, length=served))
    return made, [
        f"dynamic is computed once, for the {served} tokens served: base {made.spectrum().base:.10g} for texts of all lengths"
    ]


def write(spec: RopeSpec) -> Written:
    """`vllm serve` with the keys that say ``spec``; refused where none do."""
    config, notes = engine.write_config(spec, _words)
    text = engine.command(["vllm", "serve", "MODEL"], "--max-model-len", "--hf-overrides", spec, config)
    written = Written("vllm", config, text, (*dict.fromkeys(notes), ROUNDED.format("vLLM")))
    return engine.checked(spec, written, lambda: read(config, served=spec.served))


def attn_factor(rope: LayerRope, yarn: YaRN, spec: RopeSpec) -> dict[str, float]:
    """The keys that say m: attn_factor, what the default is multiplied by. DeepSeek's mscale stays, for the softmax needs it."""
    keys, default = {}, mscale(yarn.factor)
    if spec.model in DEEPSEEK:
        keys = {name: getattr(yarn, name) for name in ("mscale", "mscale_all_dim") if getattr(yarn, name) is not None}
        default = engine.deepseek_m(replace(yarn, attn_factor=None))
    return keys if math.isclose(yarn.m, default, rel_tol=1e-12) else {**keys, "attn_factor": yarn.m / default}


def factor_refused(name: str, scaling: Proportional) -> None:
    """Proportional with a factor."""
    if scaling.factor != 1:
        raise Refused(
            f"{name} does not read factor = {scaling.factor:g} of proportional, and would turn all pairs {scaling.factor:g} times as fast; use factor 1"
        )


def _words(rope: LayerRope, spec: RopeSpec, notes: list[str]) -> dict[str, Any]:
    rope = engine.settled("vLLM", rope, spec)
    scaling = rope.scaling
    if isinstance(scaling, Proportional):
        factor_refused("vLLM", scaling)
    if isinstance(scaling, YaRN) and scaling.preset != "paper":
        if rope.sections is not None:
            (a, b), (c, d) = _range(rope, scaling), _range(rope, replace(scaling, trained=4 * scaling.trained))
            raise Refused(
                f"vLLM computes the ramp of yarn with M-RoPE for 4 x {scaling.trained} tokens: pairs {c:g} to {d:g} would be blended, not {a:g} to {b:g}; "
                "serve it with SGLang or transformers, or extend it with another method"
            )
        return engine.yarn_words(rope, scaling, spec, attn_factor(rope, scaling, spec))
    if isinstance(scaling, LongRoPE) and spec.served is not None and scaling.length == spec.served:
        default = replace(
            scaling, factor=max(1.0, spec.served / scaling.trained), attention_factor=None, short_m=None, long_m=None
        ).m
        said = engine.longrope_words(rope, scaling, spec)
        return (
            said
            if math.isclose(default, scaling.m, rel_tol=1e-12)
            else {**said, "short_mscale": scaling.m, "long_mscale": scaling.m}
        )
    said, m = engine.other_words(rope, spec, notes)
    return {**said, "short_mscale": m, "long_mscale": m} if said["rope_type"] == "longrope" else said
