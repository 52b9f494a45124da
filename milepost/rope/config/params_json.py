"""params.json: how Mistral and Meta publish their own weights. Pairs are interleaved in both.

    Mistral    dim, n_layers, head_dim, n_heads, rope_theta,
               yarn: {factor, original_max_position_embeddings, alpha, beta, apply_scale}
    Meta       dim, n_layers, n_heads, rope_theta, use_scaled_rope: the scaling of Llama 3.1, whose numbers stand in
               Meta's code

alpha is YaRN's beta_slow, beta its beta_fast; apply_scale = false means m = 1. Both files were written for one program
each, which has its own default base; they are not the same, so a file without rope_theta is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.rope.config.config_json import check_names
from milepost.rope.config.keys import ConfigError, ConfigKeys, Entry, as_config_error, or_default, pass_over, short
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.scaling import Llama3, Scaling, YaRN

LLAMA3_KEYS = ("rope_scaling_factor", "high_freq_factor", "low_freq_factor")
KNOWN = {"rope_theta", "yarn", "qk_rope_head_dim", "use_scaled_rope", *LLAMA3_KEYS}
YARN_KEYS = ("factor", "original_max_position_embeddings", "alpha", "beta", "apply_scale")
ELSEWHERE = {"vision_encoder", "vision_adapter", "multimodal", "quantization", "moe", "lora", "llama_4_scaling"}
"""Parts of the file that have keys of their own; none is about the table of the text model."""
META_TRAINED = 8192
"""The length that the scaling of Llama 3.1 starts from, in Meta's code."""


def is_one(config: Mapping[str, Any]) -> bool:
    """Whether this is a params.json, and not a config.json."""
    there = set(config)
    return {"dim", "n_layers", "n_heads"} <= there and not {"model_type", "hidden_size", "architectures"} & there


def read(config: Mapping[str, Any], *, allow_unknown: bool = False) -> RopeSpec:
    """What Mistral's and Meta's own code make of a params.json."""
    keys = ConfigKeys(config)
    notes: list[str] = []
    sources = {"pairing": "interleaved, as the code of Mistral and Meta has it"}
    check_names(keys, KNOWN | ELSEWHERE, ("rope", "yarn"), allow_unknown, notes)
    base = keys.number("rope_theta", above=1)
    if base is None:
        raise ConfigError(
            "the base is not known: the file has no rope_theta, and programs fill in different ones; add it "
            "(10000 for Llama 2 and Mistral 7B v0.1, 500000 for Llama 3, 1000000 for Mistral since v0.2)"
        )
    sources["base"] = base.key
    head_dim = _head_dim(keys, sources)
    length = keys.whole("max_position_embeddings", "model_max_length") or keys.whole("max_seq_len")
    served = or_default(length, None)
    if length is not None:
        sources["served"] = length.key
    with as_config_error("params.json"):
        scaling = _scaling(keys, length, notes, sources, allow_unknown)
    _note_others(keys, notes)
    layers = or_default(keys.whole("n_layers", most=10000), 0)
    model = "llama" if keys.has("use_scaled_rope") or keys.has("ffn_dim_multiplier") else "mistral"
    with as_config_error("params.json"):
        rope = LayerRope(head_dim, base.value, head_dim, "interleaved", scaling)
        rope.spectrum()
        return RopeSpec(
            (("all", rope),),
            ("all",) * layers,
            rope.trained or served,
            served,
            model,
            sources,
            tuple(notes),
        )


def _head_dim(keys: ConfigKeys, sources: dict[str, str]) -> int:
    """The head size; for latent attention the part of it that turns, which is a head of its own."""
    most = 1 << 16
    size = keys.whole("qk_rope_head_dim", most=most) or keys.whole("head_dim", most=most)
    if size is not None:
        sources["head_dim"] = size.key
        return size.value
    width, heads = keys.whole("dim"), keys.whole("n_heads")
    if width is None or heads is None or width.value % heads.value or width.value // heads.value > most:
        raise ConfigError(
            f"the head size is not known: the file has no head_dim, and dim = {short(keys.config.get('dim'))} over "
            f"n_heads = {short(keys.config.get('n_heads'))} gives none"
        )
    sources["head_dim"] = "dim / n_heads"
    return width.value // heads.value


def _scaling(
    keys: ConfigKeys, served: Entry[int] | None, notes: list[str], sources: dict[str, str], allow_unknown: bool
) -> Scaling | None:
    yarn, switch = keys.inner("yarn"), keys.flag("use_scaled_rope")
    scaled = switch is not None and switch.value
    if yarn is not None and scaled:
        raise ConfigError("contradictory keys: yarn is Mistral's scaling, use_scaled_rope = true is Meta's; keep one")
    if yarn is not None:
        sources["scaling"] = yarn.where
        return _yarn(yarn, served, notes, sources, allow_unknown)
    if scaled:
        sources["scaling"] = "use_scaled_rope"
        return _llama3(keys, notes, sources)
    for name in LLAMA3_KEYS:
        unused = keys.number(name)
        if unused is not None:
            notes.append(f"{unused.key} = {unused.value:g} has no effect: use_scaled_rope is not true")
    return None


def _yarn(
    keys: ConfigKeys, served: Entry[int] | None, notes: list[str], sources: dict[str, str], allow_unknown: bool
) -> YaRN:
    for name, value in keys.config.items():
        if name not in YARN_KEYS and value is not None:
            problem = f"unknown key {keys.path(name)} = {short(value)}; yarn has {', '.join(YARN_KEYS)}"
            pass_over(problem, allow_unknown, notes)
    factor, trained = keys.number("factor", above=0), keys.whole("original_max_position_embeddings")
    if factor is None or trained is None:
        missing = keys.path("factor" if factor is None else "original_max_position_embeddings")
        raise ConfigError(f"yarn needs {missing}, which is not there")
    if served is not None and served.value > 1.001 * factor.value * trained.value:
        notes.append(
            f"{factor.key} = {factor.value:g} makes {factor.value * trained.value:g} tokens of {trained.value}; "
            f"{served.key} = {served.value} is more"
        )
    turns = {"alpha": 1.0, "beta": 32.0}
    for name, default in turns.items():
        given = keys.number(name, above=0)
        if given is None:
            notes.append(f"{keys.path(name)} is not there: {default:g}, as YaRN has it")
        else:
            turns[name] = given.value
    scale = keys.flag("apply_scale")
    if scale is None:
        notes.append(f"{keys.path('apply_scale')} is not there: taken as true, m = 1 + 0.1 ln(factor)")
    sources["trained"] = trained.key
    m = 1.0 if scale is not None and not scale.value else None
    return YaRN(factor.value, trained.value, turns["beta"], turns["alpha"], attention_factor=m)


def _llama3(keys: ConfigKeys, notes: list[str], sources: dict[str, str]) -> Llama3:
    factor, high, low = (keys.number(name, above=0) for name in LLAMA3_KEYS)
    sources["trained"] = f"not in the file: {META_TRAINED}, in Meta's code"
    if factor is None:
        sources["factor"] = "not in the file: 8, in Meta's code for Llama 3.1"
        notes.append(
            "use_scaled_rope is true and the file has no rope_scaling_factor: 8 is taken, as in Llama 3.1; "
            "the small models of Llama 3.2 have 32"
        )
    return Llama3(or_default(factor, 8.0), META_TRAINED, or_default(low, 1.0), or_default(high, 4.0))


def _note_others(keys: ConfigKeys, notes: list[str]) -> None:
    """What is no part of the table: notes say so."""
    if keys.config.get("llama_4_scaling"):
        notes.append(
            "queries are also multiplied by 1 + beta ln(1 + floor(p / trained)) (llama_4_scaling); "
            "that is no part of the table"
        )
    window = keys.config.get("sliding_window")
    if window:
        notes.append(f"sliding_window = {short(window)} limits what is attended to; positions do not change")
    if keys.has("qk_rope_head_dim") and keys.has("yarn"):
        notes.append(
            "engines that run latent attention with YaRN also multiply the softmax scale by (1 + 0.1 ln(factor))^2; "
            "params.json does not say it"
        )
