"""vLLM: what it makes of a config.json, and a command line that serves a spec with it.

What is read differently than in transformers (s is the factor; m multiplies cos and sin, so logits by m^2):

    yarn, to 0.29   m = attn_factor * (0.1 ln s + 1): attention_factor, mscale and mscale_all_dim are not read. With
                    s = 4, attention_factor = 1 is m = 1.1386 here and 1 there: logits x 1.2965
    yarn, 0.30 on   as in transformers: attention_factor, or g(mscale) / g(mscale_all_dim), g(k) = 0.1 k ln s + 1, where
                    both are there; attn_factor is not read
    yarn, DeepSeek  m = g(mscale) / g(mscale_all_dim), to 0.29 times attn_factor; bounds are always truncated
    telechat3-yarn  yarn with m = 0.07 ln s + 1; to 0.29 s is max_position_embeddings over the trained length
    Ministral       llama_4_scaling_beta of config.json is not read, so that far queries are not made sharper: it reads
                    llama_4_scaling, which params.json becomes, and which an override can write
    yarn, M-RoPE    the ramp is computed for 4 times the trained length: pairs 30 to 47 instead of 23 to 40
                    (Qwen2.5-VL); not for Qwen3-VL and Qwen3.5 from 0.32
    dynamic         one base for all texts: that of max_position_embeddings, from max_trained_positions; without that
                    key, the plain base
    dynamic, alpha  base * alpha^(d/(d-2))
    ntk             Su's: base * s, and frequencies over s^(2/d)
    longrope        the long factors for all texts if more than the trained length is served. Where
                    original_max_position_embeddings stands outside of the dictionary (Phi-3), that is what is served
                    unless --max-model-len says more. m from max_position_embeddings, or short_mscale and long_mscale;
                    factor and attention_factor are not read
    proportional    factor is not read

--max-model-len is at most max_position_embeddings, which linear and dynamic multiply by their factor. With yarn it was
the trained length times the factor up to 0.29; from 0.30 on a config that keeps max_position_embeddings at the trained
length serves no more than that, unless it is overridden. Without the flag, that is what is served.

Some families run transformers' own code (`HANDED`), and read as it does. The same as there: default, linear, llama3.
The keys go in with --hf-overrides; cos and sin are in the model's dtype.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from milepost.rope.config.config import Config
from milepost.rope.config.config_json import TEXT, text_model
from milepost.rope.config.families import FAMILIES, Family
from milepost.rope.config.keys import ConfigError, ConfigKeys
from milepost.rope.config.layer_kinds import DO_NOT
from milepost.rope.config.read_scaling import ORIGINAL, SU, TELECHAT3
from milepost.rope.engines.config_engine import (
    ConfigEngine,
    longrope_by_lengths,
    rope_type,
    shape,
    write_longrope,
    write_other,
    write_yarn,
)
from milepost.rope.engines.transformers import TRANSFORMERS
from milepost.rope.engines.write_scaling import write_scaling
from milepost.rope.engines.written import Refused, Written
from milepost.rope.engines.yarn import (
    compare_m,
    deepseek_m,
    mscale_keys,
    notes_on_m,
    own_scales,
    truncates,
    with_m,
)
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.scaling import NTK, Dynamic, Linear, LongRoPE, Proportional, YaRN, mscale
from milepost.scaling.ramp import bounds

KEYS_OF_M = {
    "0": ("attn_factor",),
    "0.30.0": ("attention_factor", "mscale", "mscale_all_dim"),
}
"""The keys of a yarn that set m, by the first version that reads these and no others."""
HANDED = {
    "0": frozenset(
        [
            "flex_olmo",
            "hunyuan_v1_dense",
            "hunyuan_v1_moe",
            "olmo",
            "olmo2",
            "olmo3",
            "smollm3",
            "starcoder2",
            "vaultgemma",
        ]
    ),
    "0.32.0": frozenset(
        [
            "arcee",
            "cwm",
            "flex_olmo",
            "glm",
            "gpt_neox",
            "hunyuan_v1_dense",
            "hunyuan_v1_moe",
            "jais2",
            "olmo",
            "olmo2",
            "olmo3",
            "phi",
            "seed_oss",
            "smollm3",
            "starcoder2",
            "vaultgemma",
        ]
    ),
}
"""The families that run transformers' own code, by the first version that hands over these."""
NEAR_RAMP = {
    "0": frozenset[str](),
    "0.32.0": frozenset({"qwen3_vl_text", "qwen3_vl_moe_text", "qwen3_5_text", "qwen3_5_moe_text"}),
}
"""The families with M-RoPE whose yarn has the ramp of the trained length, by the first version where these have."""
NESTED = {"qwen2_vl", "qwen2_5_vl"}
"""Models that publish the keys of their text model outside, and whose config has a text_config when it is loaded."""
HAS_SU: dict[str, frozenset[str]] = {"0": frozenset()}
"""The families that read rope type su, by the first version where these do; the others stop, overrides or not."""
DEEPSEEK = {"deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_vl"}
"""Model types whose yarn is DeepSeek's, in vLLM and SGLang; besides rope type deepseek_yarn."""
QUERIES = "llama_4_scaling"
"""The key, beside the rope dictionary, that vLLM reads Mistral's temperature from."""
BY_LENGTHS = {"0": True, "0.30.0": False}
"""Whether telechat3-yarn has its factor from the lengths, by the first version."""
Meaning = tuple[LayerRope, list[str]]


class VLLM(ConfigEngine):
    """vLLM; SGLang, a fork of its ropes, overrides what differs.

    ``yarn_multiplies`` says, by the first version, whether a yarn serves its trained length times its factor, whatever
    max_position_embeddings says.
    """

    name, title, package = "vllm", "vLLM", "vllm"
    command: ClassVar[list[str]] = ["vllm", "serve", "MODEL"]
    length_flag, keys_flag = "--max-model-len", "--hf-overrides"
    keeps_temperatures = True  # written beside the rope dictionary
    reads_older: tuple[str, ...] = ("rotary_scaling_factor",)
    own_names: ClassVar[Mapping[str, Mapping[str, bool]]] = {"telechat3-yarn": {"0": False, "0.29.0": True}}
    handed: ClassVar[Mapping[str, frozenset[str]]] = HANDED
    has_su: ClassVar[Mapping[str, frozenset[str]]] = HAS_SU
    yarn_multiplies: ClassVar[Mapping[str, bool]] = {"0": True, "0.30.0": False}
    rounding = (
        "vLLM keeps cos and sin in the model's dtype (bf16: off by up to 0.002), from float32 angles "
        "(off by 0.007 at position 131072)"
    )

    def read(self, config: Config, *, served: int | None = None) -> RopeSpec:
        """What vLLM makes of a config that it is told to serve for ``served`` tokens; by default, what it takes."""
        spec = self.parsed(config).spec
        outside = text_model(ConfigKeys(config.data))[0].whole(ORIGINAL)
        longest = self.longest(spec)
        if served is not None and longest is not None and served > longest:
            raise ConfigError(
                f"{self.title} refuses {self.length_flag} {served} with this config, which has "
                f"max_position_embeddings for {longest} tokens: override max_position_embeddings besides"
            )
        if served is None and outside is not None and isinstance(spec.main.scaling, LongRoPE):
            served = outside.value
        elif served is None and self.name == "vllm":
            served = longest
        return self.with_own_queries(super().read(config, served=served), config)

    def with_own_queries(self, spec: RopeSpec, config: Config) -> RopeSpec:
        """The spec without Mistral's temperature, which the engine does not find where config.json has it."""
        dropped = [tau for _, tau in spec.temperatures if tau.form == "mistral"]
        if self.name != "vllm" or not dropped or text_model(ConfigKeys(config.data))[0].has(QUERIES):
            return spec
        kept = tuple((kind, tau) for kind, tau in spec.temperatures if tau.form != "mistral")
        note = (
            f"{self.named} does not read llama_4_scaling_beta of config.json: queries are not multiplied by "
            f"1 + {dropped[0].a:g} ln(1 + floor(p / {dropped[0].n:g})), silently"
        )
        notes = [said for said in spec.notes if not said.startswith("queries are also multiplied")]
        return replace(spec, temperatures=kept, notes=(*notes, note))

    def longest(self, spec: RopeSpec) -> int | None:
        """The length up to which it serves a config, and which it takes without a flag (measured/vllm-served.json)."""
        scaling = spec.main.scaling
        if isinstance(scaling, YaRN) and self.since(self.yarn_multiplies):
            return int(scaling.trained * scaling.factor)
        factor = spec.main.factor if isinstance(scaling, Linear | Dynamic | NTK) else 1.0
        return None if spec.served is None else int(spec.served * factor)

    def meaning(self, rope: LayerRope, kind: str, config: Config, served: int | None) -> Meaning:
        scaling, given, spec = rope.scaling, config.parsed.dictionaries[kind], config.parsed.spec
        if spec.model in self.since(self.handed):
            return TRANSFORMERS.meaning(rope, kind, config, served)
        if rope.sections is not None and not (scaling is None or isinstance(scaling, YaRN)):
            raise ConfigError(
                f"{self.title} has M-RoPE with rope types default and yarn only, not with {rope_type(given)}"
            )
        if isinstance(scaling, YaRN):
            return self.yarn(rope, scaling, given, spec)
        if scaling is not None and spec.model in DEEPSEEK:
            raise ConfigError(f"{self.named} reads every scaling of its {spec.model} as yarn, {rope_type(given)} too")
        if isinstance(scaling, LongRoPE):
            if (
                self.name == "vllm"
                and spec.model == "phi3"
                and rope_type(given) == "su"
                and spec.model not in self.since(self.has_su)
            ):
                raise ConfigError(
                    f"{self.title} stops at rope type su in its phi3 (KeyError: original_max_position_embeddings): "
                    "write longrope, with that key inside of the dictionary"
                )
            if rope.pairing != "half":
                raise ConfigError(
                    f"{self.title} has longrope for pairs of halves only, and this model's pairs are interleaved"
                )
            return self.longrope(rope, scaling, spec, served)
        if isinstance(scaling, Dynamic):
            return self.dynamic(rope, scaling, given, spec.served)
        if isinstance(scaling, NTK):
            return self.ntk(rope, scaling, given)
        if isinstance(scaling, Linear) and type(given.get("factor")) is int:
            raise ConfigError(
                f"{self.title} stops at linear with a whole number (TypeError: 'int' object is not iterable): "
                f"write factor = {float(given['factor'])}"
            )
        if isinstance(scaling, Proportional) and scaling.factor != 1:
            note = f"{self.title} does not read factor = {scaling.factor:g} of proportional: nothing is slowed"
            return replace(rope, scaling=replace(scaling, factor=1.0)), [note]
        return rope, []

    def yarn(self, rope: LayerRope, yarn: YaRN, given: Mapping[str, Any], spec: RopeSpec) -> Meaning:
        """What a yarn means."""
        self.refuse_without_factor(yarn, given)
        own = spec.sources.get("scaling", "").startswith("the model type")  # its own yarn has all keys
        if self.name == "vllm" and spec.model == "gpt_oss" and not own and "beta_fast" not in given:
            raise ConfigError(
                f"{self.title} stops at rope type yarn without beta_fast and beta_slow in its gpt_oss (KeyError: "
                "'beta_fast'): write beta_fast = 32, beta_slow = 1"
            )
        if rope_type(given) == "telechat3-yarn":
            factor = (spec.served or yarn.trained) / yarn.trained if self.since(BY_LENGTHS) else yarn.factor
            return with_m(rope, replace(yarn, factor=factor), TELECHAT3 * math.log(factor) + 1), []
        read = self.since(KEYS_OF_M)
        if "attn_factor" not in read and yarn.attn_factor is not None:
            yarn = replace(yarn, attn_factor=None)
        if spec.model in DEEPSEEK or rope_type(given) == "deepseek_yarn":
            return deepseek_yarn(rope, yarn)
        if "attention_factor" in read:
            both = bool(yarn.mscale and yarn.mscale_all_dim)
            m = yarn.m if both or yarn.attention_factor is not None else mscale(yarn.factor)
            notes = notes_on_m(yarn, m, ("mscale", "mscale_all_dim"))
        else:
            m = (yarn.attn_factor or 1.0) * mscale(yarn.factor)
            notes = notes_on_m(yarn, m, ("attention_factor", "mscale", "mscale_all_dim"))
        if rope.sections is not None and spec.model not in self.since(NEAR_RAMP):
            far = replace(yarn, trained=4 * yarn.trained)
            notes.append(
                f"M-RoPE with yarn: the ramp is computed for 4 x {yarn.trained} tokens, "
                f"pairs {_ramp(rope, far)} instead of {_ramp(rope, yarn)}"
            )
            yarn = far
        return with_m(rope, yarn, m), notes

    def refuse_without_factor(self, yarn: YaRN, given: Mapping[str, Any]) -> None:
        """Refuse a yarn that has no factor."""
        if given and given.get("factor") is None:
            raise ConfigError(
                f"{self.title} stops at rope type yarn without factor, which transformers takes from the lengths: "
                f"write factor = {yarn.factor:g}"
            )

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
            f"dynamic is computed once, for max_position_embeddings = {served} tokens: base {base:.10g} for texts of "
            "all lengths"
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
        """A command line that serves ``spec``, quoted for a shell: the length, and keys in place of the model's own.

        Overrides are merged with the model's own dictionary, so every key that matters is written, also where its value
        is the default: a key that is left out would keep the model's.
        """
        if spec.sources.get("rope_type") == SU and spec.model not in self.since(self.has_su):
            raise Refused(
                f"{self.named} stops at rope type su in the config of this {spec.model} before any override arrives "
                f"(KeyError: {ORIGINAL}): write rope type longrope into config.json, with {ORIGINAL} inside of the "
                "dictionary, and export that"
            )
        notes: list[str] = []
        kinds = {kind: self.words(rope, spec, notes) for kind, rope in spec.ropes().items()}
        first = next(iter(kinds.values()))
        flat = all(dictionary == first for dictionary in kinds.values())
        by_kind = FAMILIES.get(spec.model, Family()).by_kind
        if not flat and not by_kind:
            raise Refused(
                f"{self.title} has one dictionary for all layers of {spec.model or 'this model'}, and its kinds of "
                f"layers differ: {', '.join(kinds)}"
            )
        if flat and by_kind:
            kinds, flat = {kind: first for kind, _ in spec.kinds if kind not in DO_NOT}, False
        ropes = self.spelled(spec, {} if flat else kinds, first)
        config = {**shape(spec), **ropes}
        keys = ropes | {n: config[n] for n in ("max_position_embeddings",) if n in config}
        for _, tau in spec.temperatures:
            if tau.form == "mistral":
                keys[QUERIES] = {"beta": tau.a, ORIGINAL: int(tau.n)}
        for part in reversed(self.place(spec)):
            keys = {part: keys}
        served = [] if spec.served is None else [self.length_flag, str(spec.served)]
        text = shlex.join([*self.command, *served, self.keys_flag, json.dumps(keys)])
        written = Written(self.name, config, text, (*dict.fromkeys(notes), self.rounding))
        return self.proved(spec, written, lambda: self.read(Config(config, "config.json"), served=spec.served))

    def spelled(self, spec: RopeSpec, kinds: dict[str, Any], first: dict[str, Any]) -> dict[str, Any]:
        """The keys that say the ropes: of each kind of layer, or ``first`` where all are alike."""
        return {"rope_parameters": kinds or first}

    def place(self, spec: RopeSpec) -> list[str]:
        """The parts of a config that the text model's own keys stand in, from the outside."""
        if spec.model in NESTED:
            return ["text_config"]
        if any(source.startswith("thinker_config.") for source in spec.sources.values()):
            raise Refused(
                f"overrides do not reach the text model of {spec.model}, whose keys are in thinker_config: change its "
                "config.json"
            )
        paths = [source.split(".") for source in spec.sources.values()]
        return max(([part for part in path[:-1] if part in TEXT] for path in paths), key=len, default=[])

    def words(self, rope: LayerRope, spec: RopeSpec, notes: list[str]) -> dict[str, Any]:
        """A rope as a dictionary, with the share that turns where the model's own is another."""
        dictionary = self.scaling_words(rope, spec, notes)
        own_share = self.name == "vllm" and spec.model.startswith("gemma4")  # a quarter, of the full layers
        return {"partial_rotary_factor": 1.0, **dictionary} if own_share else dictionary

    def scaling_words(self, rope: LayerRope, spec: RopeSpec, notes: list[str]) -> dict[str, Any]:
        """A rope as a dictionary; notes are added to the list."""
        if spec.model in self.since(self.handed):
            dictionary, more = write_scaling(rope, spec)
            notes += more
            return whole_yarn(dictionary, rope.scaling)
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
            self.check_ramp(rope, scaling, spec)
            return whole_yarn(write_yarn(rope, scaling, spec, self.keys_of_m(rope, scaling, spec)), scaling)
        dictionary, m = write_other(rope, spec, notes)
        return (
            {**dictionary, "short_mscale": m, "long_mscale": m} if dictionary["rope_type"] == "longrope" else dictionary
        )

    def each_m(self, scaling: LongRoPE, served: int) -> tuple[float, float] | None:
        """m of the short and of the long factors, where the engine has this longrope as two lists."""
        return (scaling.m, scaling.m) if scaling.length == served else None

    def keys_of_m(self, rope: LayerRope, yarn: YaRN, spec: RopeSpec) -> dict[str, float]:
        """The keys that set m, all of them. DeepSeek's mscale stays, for the softmax needs it."""
        keys: dict[str, float] = {}
        default = mscale(yarn.factor)
        if spec.model in DEEPSEEK:
            keys = {"mscale": 1.0, "mscale_all_dim": 0.0, **own_scales(yarn)}
            default = deepseek_m(replace(yarn, attn_factor=None))
        if "attention_factor" not in self.since(KEYS_OF_M):
            return {**keys, "attn_factor": yarn.m / default}
        if spec.model in DEEPSEEK:
            return {**keys, **mscale_keys(self.title, rope, yarn)}
        return {"attention_factor": yarn.m}

    def check_ramp(self, rope: LayerRope, yarn: YaRN, spec: RopeSpec) -> None:
        """Refuse a yarn whose ramp would be computed for another length."""
        if rope.sections is not None and spec.model not in self.since(NEAR_RAMP):
            raise Refused(
                f"{self.title} computes the ramp of yarn with M-RoPE for 4 x {yarn.trained} tokens: pairs "
                f"{_ramp(rope, replace(yarn, trained=4 * yarn.trained))} would be blended, not {_ramp(rope, yarn)}; "
                "serve it with transformers, or extend it with another method"
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


def whole_yarn(dictionary: dict[str, Any], yarn: Any) -> dict[str, Any]:
    """The dictionary of a yarn with the keys of its ramp, also where they are the defaults."""
    if dictionary["rope_type"] != "yarn":
        return dictionary
    bounds_of_ramp = {"beta_fast": yarn.beta_fast, "beta_slow": yarn.beta_slow, "truncate": truncates(yarn)}
    return {**dictionary, **bounds_of_ramp}


def _ramp(rope: LayerRope, yarn: YaRN) -> str:
    """The pairs that a yarn blends."""
    truncate = yarn.truncate is not False
    low, high = bounds(
        rope.plain(), yarn.trained, yarn.beta_fast, yarn.beta_slow, truncate=truncate, most=rope.rotary - 1
    )
    return f"{low:g} to {high:g}"
