"""SGLang: what it makes of a config.json, and a command line that serves a spec. Its ropes are a fork of vLLM's.

What is read differently than in transformers (s is the factor; m multiplies cos and sin, so logits by m^2):

    yarn            m = attn_factor * (0.1 ln s + 1), after 0.5.9 attn_factor * g(mscale) / g(mscale_all_dim) if both
                    are there, g(k) = 0.1 k ln s + 1; attention_factor is not read. With s = 4, attention_factor = 1 is
                    m = 1.1386 here and 1 there: logits x 1.2965. Without factor it stops
    yarn, DeepSeek  as in vLLM
    dynamic         one base for all texts, that of s times max_position_embeddings: base * (s^2 - s + 1)^(d/(d-2))
    dynamic, alpha  base * alpha^(d/(d-2))
    ntk             not there
    longrope        by the positions of each batch: the long factors for all of it if one is above the trained length,
                    so one token later. Keys that were cached before are not turned again. m as in vLLM
    proportional    factor is not read

The same as there: default, linear, llama3. What arrives differs by model class: baichuan, gemma, gemma2, gptj, mixtral,
olmo, phi, persimmon, stablelm and starcoder2 pass no scaling on, and some have a base of their own (measured:
`families` in measured/sglang-*.json). The keys go in with --json-model-override-args, which later versions merge with
the model's own dictionary; 0.5.9 reads those of transformers 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from milepost.rope.config.config import Config
from milepost.rope.config.config_json import text_model
from milepost.rope.config.keys import ConfigError, ConfigKeys
from milepost.rope.config.read_scaling import ORIGINAL
from milepost.rope.engines.config_engine import longrope_by_lengths, rope_type, spell_flat
from milepost.rope.engines.vllm import DEEPSEEK, VLLM, Meaning, deepseek_yarn, notes_on_longrope
from milepost.rope.engines.written import Refused
from milepost.rope.engines.yarn import deepseek_m, notes_on_m, own_scales, with_m
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.scaling import NTK, Dynamic, LongRoPE, Proportional, YaRN, mscale

HANDED = {"0": frozenset({"ernie4_5", "glm", "gpt_neox", "helium", "modernbert", "seed_oss", "smollm3"})}
"""The families that run transformers' own code, by the first version that hands over these."""
LATER = "0.5.23"
"""The first version that was measured with transformers 5. It reads rope_parameters, and overrides of it are merged."""
READS_MSCALE = {"0": False, LATER: True}
NEEDS_ORIGINAL = {"0": True, LATER: False}
"""Whether a yarn without original_max_position_embeddings stops it; later it takes max_position_embeddings."""
HAS_SU = {"0": frozenset({"phi3", "phi3_v"}), LATER: frozenset[str]()}
"""The families that read rope type su."""
TYPE_ALONE = {"gemma4_text", "gemma4_unified_text"}
"""Families whose dictionary is passed on without the numbers of its scaling."""
UNREACHED = {"qwen2_vl", "qwen2_5_vl", "qwen3_vl_text"}
"""Families whose class has a copy of the text model's keys, made before overrides come."""
FLAT = {"0": True, LATER: False}
"""Whether overrides are spelled as transformers 4 has them."""
QUERY_LENGTH = 16384
"""The length of Mistral's temperature where the config has none where SGLang looks."""


class SGLang(VLLM):
    """SGLang: vLLM's ropes with other rules for yarn, longrope, dynamic and ntk."""

    name, title, package = "sglang", "SGLang", "sglang"
    command: ClassVar[list[str]] = ["python", "-m", "sglang.launch_server", "--model-path", "MODEL"]
    length_flag, keys_flag = "--context-length", "--json-model-override-args"
    reads_older = ()
    own_names: ClassVar[Mapping[str, Mapping[str, bool]]] = {}
    handed = HANDED
    has_su = HAS_SU
    yarn_multiplies: ClassVar[Mapping[str, bool]] = {"0": False}
    keeps_temperatures = False
    one_base = True
    rounding = "SGLang keeps cos and sin in float32 on GPUs, from float32 angles (off by 0.007 at position 131072)"

    def with_own_queries(self, spec: RopeSpec, config: Config) -> RopeSpec:
        """Its Ministral 3 looks for the length of the temperature beside the rope dictionary, not in it."""
        beside = text_model(ConfigKeys(config.data))[0].whole(ORIGINAL)
        length = QUERY_LENGTH if beside is None else beside.value
        taus, notes = dict(spec.temperatures), list(spec.notes)
        for kind, tau in spec.temperatures:
            if tau.form == "mistral" and tau.n != length:
                taus[kind] = replace(tau, n=length)
                notes.append(
                    f"{self.named} multiplies queries by 1 + {tau.a:g} ln(1 + floor(p / {length})), not floor(p / "
                    f"{tau.n:g}): it looks for {ORIGINAL} beside rope_parameters, silently"
                )
        return replace(spec, temperatures=tuple(taus.items()), notes=tuple(notes))

    def meaning(self, rope: LayerRope, kind: str, config: Config, served: int | None) -> Meaning:
        model, given = config.parsed.spec.model, config.parsed.dictionaries[kind]
        if isinstance(rope.scaling, LongRoPE) and rope_type(given) == "su" and model not in self.since(HAS_SU):
            raise ConfigError(
                f"{self.named} stops at rope type su (ValueError: Unknown RoPE scaling type su): write longrope, with "
                f"{ORIGINAL} inside of the dictionary"
            )
        if rope.scaling is not None and not isinstance(rope.scaling, Proportional) and model in TYPE_ALONE:
            note = f"{self.named} passes rope_type on alone in its {model}: {rope.scaling!r} is dropped, silently"
            return replace(rope, scaling=None), [note]
        return super().meaning(rope, kind, config, served)

    def yarn(self, rope: LayerRope, yarn: YaRN, given: Mapping[str, Any], spec: RopeSpec) -> Meaning:
        self.refuse_without_factor(yarn, given)
        if given and given.get(ORIGINAL) is None and self.since(NEEDS_ORIGINAL):
            raise ConfigError(
                f"{self.named} stops at rope type yarn without {ORIGINAL} in the dictionary (KeyError): write "
                f"{yarn.trained}"
            )
        if spec.model in DEEPSEEK or rope_type(given) == "deepseek_yarn":
            return deepseek_yarn(rope, yarn)
        scales = [scale for scale in (yarn.mscale, yarn.mscale_all_dim) if scale is not None]
        if rope.sections is not None and scales:
            raise ConfigError("SGLang stops at mscale and mscale_all_dim in a yarn with M-RoPE; say m with attn_factor")
        both = len(scales) == 2 and self.since(READS_MSCALE)
        m = deepseek_m(yarn) if both else (yarn.attn_factor or 1.0) * mscale(yarn.factor)
        unread = ("attention_factor",) if both else ("attention_factor", "mscale", "mscale_all_dim")
        return with_m(rope, yarn, m), notes_on_m(yarn, m, unread)

    def longrope(self, rope: LayerRope, scaling: LongRoPE, spec: RopeSpec, served: int | None) -> Meaning:
        longest = spec.served or served or scaling.trained
        made = longrope_by_lengths(scaling, longest)
        notes = []
        if made.length_dependent:
            notes.append(
                "longrope goes by the positions of each batch: all of it takes the long factors if one position is "
                f"above {scaling.trained} (a text of {scaling.trained + 1} tokens still has the short ones), and "
                "cached keys stay as they are"
            )
        return replace(rope, scaling=made), notes + notes_on_longrope(scaling, made, longest)

    def dynamic(self, rope: LayerRope, scaling: Dynamic, given: Mapping[str, Any], served: int | None) -> Meaning:
        far = round(scaling.trained * scaling.factor)
        made = replace(rope, scaling=replace(scaling, length=far))
        base = made.spectrum().base
        return made, [
            f"dynamic is computed once, for factor x max_position_embeddings = {far} tokens: "
            f"base {base:.10g} for all texts"
        ]

    def ntk(self, rope: LayerRope, scaling: NTK, given: Mapping[str, Any]) -> Meaning:
        if rope_type(given) == "dynamic":  # with alpha
            return rope, []
        raise ConfigError(
            f"SGLang has no rope type ntk; a larger base says it: rope_theta = {rope.spectrum().base:.10g}"
        )

    def each_m(self, scaling: LongRoPE, served: int) -> tuple[float, float] | None:
        if scaling.length is not None:
            return None
        return scaling.at(scaling.trained).m, scaling.at(scaling.trained + 1).m

    def keys_of_m(self, rope: LayerRope, yarn: YaRN, spec: RopeSpec) -> dict[str, float]:
        """attn_factor, and an mscale that changes nothing: the model's own would stay otherwise."""
        if spec.model in DEEPSEEK:
            keys = {"mscale": 1.0, "mscale_all_dim": 0.0, **own_scales(yarn)}
            return {**keys, "attn_factor": yarn.m / deepseek_m(replace(yarn, attn_factor=None))}
        none = {} if rope.sections is not None else {"mscale": 1.0, "mscale_all_dim": 0.0}
        return {**none, "attn_factor": yarn.m / mscale(yarn.factor)}

    def spelled(self, spec: RopeSpec, kinds: dict[str, Any], first: dict[str, Any]) -> dict[str, Any]:
        """rope_parameters, or rope_theta beside rope_scaling."""
        if not self.since(FLAT):
            return super().spelled(spec, kinds, first)
        local = kinds.get("sliding_attention")
        main = kinds.get("full_attention", first)
        if kinds and (local is None or local["rope_type"] != "default" or len(kinds) != 2):
            raise Refused(
                f"{self.named} has one rope_scaling for all layers, and {spec.model}'s kinds of layers differ"
            )
        config: dict[str, Any] = {"model_type": spec.model}
        rest = spell_flat(config, main, None if local is None else local["rope_theta"])
        config.pop("model_type")
        if "rotary_emb_base" in config:  # GPT-NeoX's code has rope_theta, and overrides come after the config is read
            config["rope_theta"] = config["rotary_emb_base"]
        return {**config, "rope_scaling": None if rest["rope_type"] == "default" and len(rest) == 1 else rest}

    def place(self, spec: RopeSpec) -> list[str]:
        """Where the text model's keys stand; SGLang to 0.5.9 puts a dictionary in the place of a part of the config."""
        if spec.model in UNREACHED:
            raise Refused(
                f"overrides do not reach the text model of {spec.model} in {self.named}, silently: change its "
                "config.json"
            )
        parts, flat = super().place(spec), self.since(FLAT)
        if parts and flat:
            raise Refused(
                f"overrides of {parts[0]} stop {self.named}, which puts a dictionary in its place: change config.json"
            )
        return parts

    def check_ramp(self, rope: LayerRope, yarn: YaRN, spec: RopeSpec) -> None:
        """The ramp of yarn with M-RoPE is that of transformers."""
