"""SGLang: what it makes of a config.json, and a command line that serves a spec with it. Its ropes are a fork of vLLM's.

What is read differently than in transformers (s is the factor; m multiplies cos and sin, so logits by m^2):

    yarn            m = attn_factor * (0.1 ln s + 1), or attn_factor * g(mscale) / g(mscale_all_dim) if both are there,
                    g(k) = 0.1 k ln s + 1; attention_factor is not read. With s = 4, attention_factor = 1 is m = 1.1386
                    here and 1 there: logits x 1.2965. Without factor, s = 1: nothing is scaled
    yarn, DeepSeek  as in vLLM
    dynamic         one base for all texts, that of s times max_position_embeddings: base * (s^2 - s + 1)^(d/(d-2))
    dynamic, alpha  base * alpha^(d/(d-2))
    ntk             not there
    longrope        by the positions of each batch: the long factors for all of it if one is above the trained length. Keys
                    that were cached before are not turned again. m as in vLLM
    proportional    factor is not read

The same as there: default, linear, llama3. The keys go in with --json-model-override-args.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from milepost.rope.config.keys import ConfigError
from milepost.rope.engines import engine, vllm
from milepost.rope.engines.written import Written
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.scaling.dynamic import Dynamic
from milepost.scaling.longrope import LongRoPE
from milepost.scaling.ntk import NTK
from milepost.scaling.proportional import Proportional
from milepost.scaling.yarn import YaRN, mscale


def read(config: Mapping[str, Any], *, served: int | None = None, allow_unknown: bool = False) -> RopeSpec:
    """What SGLang makes of a config with --context-length ``served``; by default, max_position_embeddings."""
    return engine.as_read(vllm.alpha_as_ntk(config), _meaning, served=served, allow_unknown=allow_unknown)


def _meaning(
    rope: LayerRope, given: Mapping[str, Any], said: RopeSpec, served: int | None
) -> tuple[LayerRope, list[str]]:
    scaling = rope.scaling
    if rope.sections is not None and not (scaling is None or isinstance(scaling, YaRN)):
        raise ConfigError(f"SGLang has M-RoPE with rope types default and yarn only, not with {vllm.type_of(given)}")
    if isinstance(scaling, YaRN):
        return _yarn(rope, scaling, given, said)
    if isinstance(scaling, LongRoPE):
        return _longrope(rope, scaling, said, served)
    if isinstance(scaling, Dynamic):
        far = round(scaling.trained * scaling.factor)
        made = replace(rope, scaling=replace(scaling, length=far))
        return made, [
            f"dynamic is computed once, for factor x max_position_embeddings = {far} tokens: base {made.spectrum().base:.10g} for all texts"
        ]
    if isinstance(scaling, NTK) and "alpha" not in given:
        raise ConfigError(
            f"SGLang has no rope type ntk; a larger base says it: rope_theta = {rope.spectrum().base:.10g}"
        )
    if isinstance(scaling, Proportional):
        return vllm.without_factor("SGLang", rope, scaling)
    return rope, []


def _yarn(rope: LayerRope, yarn: YaRN, given: Mapping[str, Any], said: RopeSpec) -> tuple[LayerRope, list[str]]:
    notes = []
    if given and given.get("factor") is None:
        notes.append(
            f"SGLang takes factor = 1 where there is none, and scales nothing; transformers takes {yarn.factor:g} from the lengths"
        )
        yarn = replace(yarn, factor=1.0)
    if vllm.is_deepseek(given, said):
        made, more = vllm.deepseek(rope, yarn)
        return made, notes + more
    both = yarn.mscale is not None and yarn.mscale_all_dim is not None
    if rope.sections is not None and (yarn.mscale is not None or yarn.mscale_all_dim is not None):
        raise ConfigError("SGLang stops at mscale and mscale_all_dim in a yarn with M-RoPE; say m with attn_factor")
    m = engine.deepseek_m(yarn) if both else (yarn.attn_factor or 1.0) * mscale(yarn.factor)
    notes += engine.about_m(
        yarn, m, ("attention_factor",) if both else ("attention_factor", "mscale", "mscale_all_dim")
    )
    return engine.with_m(rope, yarn, m), notes


def _longrope(rope: LayerRope, scaling: LongRoPE, said: RopeSpec, served: int | None) -> tuple[LayerRope, list[str]]:
    vllm.only_halves("SGLang", rope)
    longest = said.served or served or scaling.trained
    made = replace(scaling, factor=max(1.0, longest / scaling.trained), attention_factor=None)
    notes = []
    if made.length_dependent:
        notes.append(
            f"longrope goes by the positions of each batch: all of it takes the long factors if one position is above {scaling.trained} "
            f"(a text of {scaling.trained + 1} tokens still has the short ones), and cached keys stay as they are"
        )
    theirs = replace(scaling, short_m=None, long_m=None).at(longest).m
    ours = made.at(longest).m
    if not math.isclose(theirs, ours, rel_tol=1e-9):
        notes.append(
            f"longrope: m = {ours:.4f}, logits x {ours**2:.4f} (transformers: m = {theirs:.4f}, logits x {theirs**2:.4f})"
        )
    return replace(rope, scaling=made), notes


def write(spec: RopeSpec) -> Written:
    """`sglang.launch_server` with the keys that say ``spec``; refused where none do."""
    config, notes = engine.write_config(spec, _words)
    text = engine.command(
        ["python", "-m", "sglang.launch_server", "--model-path", "MODEL"],
        "--context-length",
        "--json-model-override-args",
        spec,
        config,
    )
    written = Written("sglang", config, text, (*dict.fromkeys(notes), vllm.ROUNDED.format("SGLang")))
    return engine.checked(spec, written, lambda: read(config, served=spec.served))


def _words(rope: LayerRope, spec: RopeSpec, notes: list[str]) -> dict[str, Any]:
    scaling = rope.scaling
    if isinstance(scaling, LongRoPE) and scaling.length is None and spec.served is not None:
        default = (
            replace(
                scaling,
                factor=max(1.0, spec.served / scaling.trained),
                attention_factor=None,
                short_m=None,
                long_m=None,
            )
            .at(spec.served)
            .m
        )
        ms = {
            name: scaling.at(n).m
            for name, n in (("short_mscale", scaling.trained), ("long_mscale", scaling.trained + 1))
        }
        said = engine.longrope_words(rope, scaling, spec)
        return said if all(math.isclose(default, m, rel_tol=1e-12) for m in ms.values()) else {**said, **ms}
    rope = engine.settled("SGLang", rope, spec)
    scaling = rope.scaling
    if isinstance(scaling, Proportional):
        vllm.factor_refused("SGLang", scaling)
    if isinstance(scaling, YaRN) and scaling.preset != "paper":
        return engine.yarn_words(rope, scaling, spec, vllm.attn_factor(rope, scaling, spec))
    said, m = engine.other_words(rope, spec, notes)
    return {**said, "short_mscale": m, "long_mscale": m} if said["rope_type"] == "longrope" else said
