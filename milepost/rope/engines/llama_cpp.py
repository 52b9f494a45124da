"""llama.cpp: what its flags make of a model, and the flags that say a spec.

    --rope-scaling none | linear | yarn     by default the model's own
    --rope-scale s                          times longer; --rope-freq-scale is its inverse: 0.25 is s = 4
    --rope-freq-base                        the base; by default the model's own
    --yarn-orig-ctx                         the trained length; by default the model's own
    --yarn-beta-fast, --yarn-beta-slow      32 and 1
    --yarn-ext-factor                       1 is yarn, 0 is linear
    -c                                      the length served, but no more than the file's context_length
    --override-kv ARCH.context_length=int:n the length up to which -c counts; the trained length of yarn, too, unless
                                            --yarn-orig-ctx says it

What is different here:

    yarn            m = 0.1 ln s + 1, always: --yarn-attn-factor is read, then overwritten. With s = 4, m = 1.1386.
                    Bounds are always truncated (gpt-oss needs them as they come)
    llama3, proportional, longrope          in the GGUF as tensors of factors, from its conversion; flags go on top
    longrope        the long factors for all texts if -c is above the trained length
    dynamic         not there
    sliding layers  that have a base of their own keep it, whatever the flags say

A config.json is read as llama.cpp's converter and loader do: what the converter does not write for a family is lost
(the base of Gemma, GPT-NeoX and StableLM, yarn in Cohere), and the betas of yarn are read for few architectures.

M-RoPE, dealt in turn (Qwen3-VL): a pair beyond three times the section of its axis takes a fourth axis, which is 0 for
text, so that it stands still: of 24, 20 and 20 pairs, 61 and 62.

A context shift under yarn multiplies the cached keys by m again: use --no-context-shift.
"""

from __future__ import annotations

import difflib
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from milepost.rope.config.config import Config
from milepost.rope.config.gguf import BASE
from milepost.rope.config.gguf_archs import architecture
from milepost.rope.config.keys import ConfigError, as_config_error, short
from milepost.rope.config.read_scaling import ORIGINAL
from milepost.rope.engines.config_engine import ConfigEngine
from milepost.rope.engines.parity import CLOSE
from milepost.rope.engines.transformers import read_spec
from milepost.rope.engines.written import Refused, Written
from milepost.rope.engines.yarn import refuse_bounds, truncates, truncation
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.scaling import NTK, Dynamic, LargerBase, Linear, Llama3, LongRoPE, Proportional, YaRN, mscale

SCALE_FLAGS = (
    "--rope-scaling", "--rope-scale", "--rope-freq-scale", "--rope-freq-base", "--yarn-orig-ctx", "--yarn-ext-factor",
    "--yarn-beta-slow", "--yarn-beta-fast",
)  # fmt: skip
"""Flags that change the table."""
FLAGS = (*SCALE_FLAGS, "--yarn-attn-factor", "--ctx-size", "--grp-attn-n", "--grp-attn-w")
SHORT_FLAGS = {"-c": "--ctx-size", "-gan": "--grp-attn-n", "-gaw": "--grp-attn-w"}


SLIDES_APART = ("gemma2", "llama4", "llama4_text")
"""Model types of one rope, whose sliding layers take no flags in llama.cpp."""
READS_BETAS = ("grok", "mistral3", "ministral3")
"""Model types whose loaders read the betas of yarn."""
WRITES_LONGROPE = {"0": ("phi3_v", "minicpm"), "11549": ("phi3", "phimoe", "minicpm")}
"""Model types whose converters write the two lists of longrope, by the first build: before, Phi-3's were lost."""
WRITES_LLAMA3 = (
    "llama", "mistral", "mixtral", "granite", "smollm3", "apertus", "arcee", "llama4", "llama4_text", "mistral3",
    "ministral3", "afmoe", "exaone", "exaone4", "nemotron-nas",
)  # fmt: skip
"""Those whose converters write the factors of llama3."""


_ENDLESS = "its converter calls itself without end at Baichuan's weights (RecursionError)"
STOPS = {
    "0": {
        "baichuan": _ENDLESS,
        "gpt_neox": "its converter stops at GPT-NeoX (KeyError: 'rotary_pct'): transformers 5.5.1, through which it "
        "reads configs, has moved that key",
    },
    "11549": {"baichuan": _ENDLESS},
}
"""Model types that the converter stops at, by the first build: why."""
WANTS = {
    "0": {"falcon": ("num_kv_heads", 1, "of one key head"), "nomic_bert": ("num_experts", 0, "without experts")},
    "11549": {"falcon": ("num_kv_heads", 1, "of one key head")},
}
"""Model types that the converter stops at unless config.json has a key, by the first build: its value for which."""


class LlamaCpp(ConfigEngine):
    """llama.cpp, which reads GGUF files, and flags on top of them. A version is the number of a build."""

    name = title = "llama.cpp"
    keeps_temperatures = True  # in the file, where no flag reaches them

    def read(self, config: Config, *, served: int | None = None) -> RopeSpec:
        """What llama.cpp makes of a model with -c ``served``: of a GGUF file, or of one converted from a config."""
        if config.format == "config.json":
            return super().read(config, served=served)
        own = read_spec(config)
        spec = self.read_flags([], own, served=served)
        if config.format != "GGUF":
            return spec
        # without flags, a yarn of the file stays as it is, with the attn_factor of the file
        as_it_is = {kind: rope for kind, rope in own.ropes().items() if isinstance(rope.scaling, YaRN)}
        return replace(spec, kinds=tuple((kind, as_it_is.get(kind, rope)) for kind, rope in spec.kinds))

    def wanted(self, model: str) -> str:
        """The key that the converter stops without, in a sentence; nothing for most model types."""
        if model not in self.since(WANTS):
            return ""
        key, value, which = self.since(WANTS)[model]
        return f"{self.named}'s converter stops at {model} without {key} in config.json: {which}, write {key} = {value}"

    def arriving(self, rope: LayerRope, kind: str, config: Config) -> tuple[LayerRope, list[str]]:
        """What the converter writes for a family was measured with linear and yarn; the rest is `_converted`'s."""
        model, data = config.parsed.spec.model, config.data
        groups = data.get("new_decoder_architecture")  # of Falcon, whose key heads are as many as transformers says
        if model in self.since(WANTS) and self.since(WANTS)[model][0] not in data and not groups:
            raise ConfigError(self.wanted(model))
        if model == "falcon":
            note = f"{self.named}'s converter writes neither base nor scaling of Falcon: base 10000, unscaled"
            plain = replace(rope, base=BASE, scaling=None)
            return plain, [] if plain == rope else [note]
        if rope.scaling is None or isinstance(rope.scaling, Linear | YaRN):
            return super().arriving(rope, kind, config)
        arrived, notes = super().arriving(replace(rope, scaling=None), kind, config)
        return replace(arrived, scaling=rope.scaling), notes

    def meaning(self, rope: LayerRope, kind: str, config: Config, served: int | None) -> tuple[LayerRope, list[str]]:
        """What it makes of a rope: what its converter writes, as its loader reads it."""
        spec = config.parsed.spec
        notes: list[str] = []
        if spec.model in self.since(STOPS):
            raise ConfigError(f"{self.named} has no file of this model: {self.since(STOPS)[spec.model]}")
        if kind == "sliding_attention" and rope != spec.main:
            return rope, []
        listed = self.since(WRITES_LONGROPE)
        rope = _converted(rope, spec.model, config.parsed.dictionaries[kind], listed, notes)
        return _meaning(rope, {}, spec, served, notes), notes

    def read_flags(self, flags: Sequence[str] | str, on: RopeSpec, *, served: int | None = None) -> RopeSpec:
        """What llama.cpp makes of a model, ``on``, with these flags; those not about positions are passed over."""
        words = shlex.split(flags) if isinstance(flags, str) else list(flags)
        given = _given(words if served is None else [*words, "-c", str(served)])
        notes = list(on.notes)
        length = on.served if given.get("--ctx-size", 0) == 0 else int(given["--ctx-size"])
        if given.get("--grp-attn-n", 1) != 1:
            raise ConfigError(
                f"--grp-attn-n {given['--grp-attn-n']:g} is self-extend, which gives far keys other positions: "
                "it is no table of frequencies"
            )
        apart = {kind for kind, rope in on.ropes().items() if kind == "sliding_attention" and rope != on.main}
        kinds: list[tuple[str, LayerRope | None]] = []
        for kind, rope in on.kinds:
            if rope is not None and kind not in apart:
                with as_config_error():
                    rope = _meaning(rope, given, on, length, notes)  # noqa: PLW2901
                    rope.spectrum(1)
            kinds.append((kind, rope))
        if apart and any(flag in given for flag in SCALE_FLAGS):
            notes.append(
                "the flags are for layers of full attention: sliding layers keep the base and scale of the GGUF"
            )
        trained = next((rope.trained for _, rope in kinds if rope is not None and rope.trained is not None), on.trained)
        return replace(on, kinds=tuple(kinds), trained=trained, served=length, notes=tuple(dict.fromkeys(notes)))

    def _write(self, spec: RopeSpec) -> Written:
        """`llama-server` with the flags that mean ``spec``, for a GGUF of the model before any scaling."""
        rope = self.one_rope(spec, "convert the model with its config.json, and run it without rope flags")
        if spec.model in self.since(STOPS):
            raise Refused(f"{self.named} has no file of this model: {self.since(STOPS)[spec.model]}")
        if still_pairs(rope):
            raise Refused(f"{self.named} can't turn as this model does: {still_note(rope)[0]}; use another engine")
        if rope.scaling is not None and spec.model in SLIDES_APART:
            raise Refused(
                f"no flag reaches the layers of {spec.model} that slide: they keep the base and scale of the GGUF, and "
                f"{rope.scaling!r} is for all layers; convert the model with it in its config.json"
            )
        if spec.model == "gemma2" and rope.base != BASE:
            raise Refused(
                f"no flag reaches the layers of gemma2 that slide, and the converter writes no base for it: they would "
                f"turn by {BASE:g}, not by {rope.base:.10g}"
            )
        served, note = _served(spec)
        text = shlex.join(["llama-server", "-m", "MODEL.gguf", *served, *_flags(rope, spec)])
        notes = list(filter(None, [self.wanted(spec.model), note]))
        if isinstance(rope.scaling, YaRN):
            notes.append(
                f"add --no-context-shift: a shift would multiply the cached keys by m = {rope.scaling.m:.4f} again, "
                "each time"
            )
        before = tuple((kind, None if other is None else replace(other, scaling=None)) for kind, other in spec.kinds)
        unscaled = replace(spec, kinds=before, notes=())
        return self.proved(spec, Written(self.name, {}, text, tuple(notes)), lambda: self.read_flags(text, unscaled))


def _converted(
    rope: LayerRope, model: str, given: Mapping[str, Any], listed: tuple[str, ...], notes: list[str]
) -> LayerRope:
    """What llama.cpp's converter writes of a rope, as far as its loader reads it; ``listed`` have longrope."""
    scaling, lost = rope.scaling, ""
    if isinstance(scaling, YaRN) and model == "nemotron":
        notes.append(f"llama.cpp's converter writes every scaling of nemotron as linear: factor {scaling.factor:g}")
        return replace(rope, scaling=Linear(scaling.factor))
    if isinstance(scaling, YaRN):
        if "factor" not in given:
            lost = "has no factor"
        elif ORIGINAL not in given:
            raise ConfigError("llama.cpp's converter stops at a yarn without " + ORIGINAL)
        elif model not in READS_BETAS:
            plain = replace(scaling, beta_fast=YaRN.beta_fast, beta_slow=YaRN.beta_slow)
            if plain != scaling:
                notes.append(
                    f"llama.cpp does not read beta_fast = {scaling.beta_fast:g} and beta_slow = {scaling.beta_slow:g} "
                    f"for {model or 'this model'}: it takes {plain.beta_fast:g} and {plain.beta_slow:g}"
                )
            return replace(rope, scaling=plain)
    elif isinstance(scaling, LongRoPE) and not model.startswith(listed):
        lost = "is written for Phi-3 and MiniCPM only"
    elif isinstance(scaling, Llama3) and model and model not in WRITES_LLAMA3:
        lost = "is not written for this family"
    elif isinstance(scaling, Dynamic) or (isinstance(scaling, NTK) and not model.startswith("hunyuan")):
        lost = "has no key in a GGUF"
    if not lost:
        return rope
    notes.append(f"{scaling!r} is dropped by llama.cpp's converter, silently: it {lost}")
    return replace(rope, scaling=None)


def still_pairs(rope: LayerRope) -> list[int]:
    """The pairs of an M-RoPE that is dealt in turn which llama.cpp gives to a fourth axis."""
    if rope.sections is None or not rope.sections_interleaved or len(rope.sections) != 3:
        return []
    return [pair for pair in range(rope.rotary // 2) if pair >= 3 * rope.sections[pair % 3]]


def still_note(rope: LayerRope) -> list[str]:
    """What to say of these pairs: by how much they are behind after 100000 tokens."""
    still = still_pairs(rope)
    if not still:
        return []
    behind = 1e5 * max(rope.spectrum().frequencies[pair] for pair in still)
    return [
        f"llama.cpp gives pairs {', '.join(map(str, still))} of this M-RoPE to a fourth axis, which is 0 for text: "
        f"they stand still, {behind:.3g} radians behind after 100000 tokens"
    ]


BAKED = (
    "are baked into the GGUF when it is converted; convert the model with this scaling in its config.json, "
    "and run it without rope flags"
)


def _given(words: list[str]) -> dict[str, Any]:
    """The flags about positions, with their values: numbers, and one word."""
    given: dict[str, Any] = {}
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        name = SHORT_FLAGS.get(name, name.replace("_", "-") if name.startswith("--") else name)
        if name not in FLAGS:
            if name.startswith(("--rope", "--yarn")):
                near = difflib.get_close_matches(name, FLAGS, 1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(FLAGS)}"
                raise ConfigError(f"llama.cpp has no flag {short(name)}; {hint}")
            continue
        text = value if equals else next(rest, None)
        if text is None:
            raise ConfigError(f"{name} needs a value")
        parsed = text if name == "--rope-scaling" else _number(name, text)
        if given.setdefault(name, parsed) != parsed:
            raise ConfigError(f"{name} is there twice, as {given[name]} and as {parsed}: keep one")
    _check(given)
    return given


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ConfigError(f"{name} must be a finite number, got {short(text)}")
    if name in ("--ctx-size", "--yarn-orig-ctx") and (number < 0 or number != int(number)):
        raise ConfigError(f"{name} is a number of tokens, got {short(text)}")
    return number


def _check(given: dict[str, Any]) -> None:
    method, scale = given.get("--rope-scaling", "none"), given.get("--rope-scale")
    inverse, base = given.get("--rope-freq-scale"), given.get("--rope-freq-base", 0)
    if method not in ("none", "linear", "yarn"):
        raise ConfigError(f"--rope-scaling is none, linear or yarn, got {short(method)}")
    if inverse is not None and inverse <= 0:
        raise ConfigError(f"--rope-freq-scale must be above 0, got {inverse:g}")
    if inverse is not None and inverse > 1:
        raise ConfigError(
            f"--rope-freq-scale {inverse:g} would shrink the context; it is the inverse of --rope-scale: "
            f"{inverse:g} times longer is --rope-scale {inverse:g}, or --rope-freq-scale {1 / inverse:g}"
        )
    if scale is not None and scale < 1:
        hint = f": did you mean --rope-scale {1 / scale:g}, or --rope-freq-scale {scale:g}?" if scale > 0 else ""
        raise ConfigError(f"--rope-scale {scale:g} would shrink the context{hint}")
    if scale is not None and inverse is not None and not math.isclose(scale * inverse, 1, rel_tol=1e-6):
        raise ConfigError(
            f"contradictory flags: --rope-scale {scale:g} and --rope-freq-scale {inverse:g}, "
            f"which is --rope-scale {1 / inverse:g}; keep one"
        )
    if base != 0 and base <= 1:
        raise ConfigError(f"--rope-freq-base must be above 1, got {base:g}")


def _meaning(rope: LayerRope, given: dict[str, Any], on: RopeSpec, served: int | None, notes: list[str]) -> LayerRope:
    """What the flags make of a rope."""
    own = rope.scaling
    notes += still_note(rope)
    if isinstance(own, LongRoPE | Llama3 | Proportional):
        return _baked(rope, given, served, notes)
    if isinstance(own, LargerBase | NTK):  # a base, which the GGUF has
        rope, own = replace(rope, base=rope.spectrum().base, scaling=None), None
    if not (own is None or isinstance(own, Linear | YaRN)):
        raise ConfigError(
            f"llama.cpp has no {own!r}: a GGUF has linear, yarn, longrope, or a list of factors that was baked into it"
        )
    plain = replace(rope, base=given.get("--rope-freq-base") or rope.base, scaling=None)
    scale = 1 / given["--rope-freq-scale"] if "--rope-freq-scale" in given else given.get("--rope-scale")
    factor = float(scale if scale is not None else getattr(own, "factor", 1.0))
    if not math.isfinite(factor):
        raise ConfigError(f"--rope-freq-scale {given['--rope-freq-scale']:g} is no scale that a model can have")
    by_default = "yarn" if isinstance(own, YaRN) else "linear"  # linear where the GGUF is silent
    method = given.get("--rope-scaling") or by_default
    mixed = given.get("--yarn-ext-factor", -1.0)
    if mixed < 0:
        mixed = 1.0 if method == "yarn" else 0.0
    if mixed not in (0.0, 1.0):
        raise ConfigError(
            f"--yarn-ext-factor {mixed:g} mixes yarn and linear, which is not one of our scalings; "
            "1 is yarn, 0 is linear"
        )
    if method == "none":
        if scale is not None and scale != 1:
            notes.append(f"--rope-scaling none: --rope-scale {scale:g} has no effect")
        return plain
    if mixed == 0.0:
        m = given.get("--yarn-attn-factor", 1.0)
        if m > 0 and m != 1:
            raise ConfigError(
                f"--yarn-attn-factor {m:g} without yarn multiplies cos and sin by {m:g}, which is not one of our "
                "scalings; leave it out"
            )
        return replace(plain, scaling=None if factor == 1 else Linear(factor))
    return replace(plain, scaling=_yarn(plain, own, factor, given, on, notes))


def _yarn(rope: LayerRope, own: Any, factor: float, given: dict[str, Any], on: RopeSpec, notes: list[str]) -> YaRN:
    known = own if isinstance(own, YaRN) else None
    trained = int(given.get("--yarn-orig-ctx", 0)) or (known.trained if known else on.trained)
    if trained is None:
        raise ConfigError("yarn needs the trained length, which the model does not say: add --yarn-orig-ctx")
    betas = {name: given.get("--yarn-" + name.replace("_", "-"), -1.0) for name in ("beta_fast", "beta_slow")}
    betas = {name: value if value > 0 else float(getattr(known or YaRN, name)) for name, value in betas.items()}
    made = YaRN(factor, trained, **betas)
    if known is not None and rope.softmax != 1:  # DeepSeek: in the GGUF as yarn_log_multiplier
        made = replace(made, mscale=known.mscale_all_dim, mscale_all_dim=known.mscale_all_dim)
    elif known is not None and known.mscale_all_dim and on.model in READS_BETAS:  # Mistral's, the same key
        made = replace(made, mscale=1.0, mscale_all_dim=known.mscale_all_dim)
    made(rope.plain())
    m = f"m = {made.m:.4f}, logits x {made.m**2:.4f}"
    if known is not None and not math.isclose(known.m / mscale(known.factor), made.m / mscale(factor), rel_tol=5e-5):
        notes.append(f"llama.cpp has no key for m = {known.m:.4f}: {m}")
    if given.get("--yarn-attn-factor", 1.0) not in (1.0, -1.0):
        notes.append(
            f"--yarn-attn-factor {given['--yarn-attn-factor']:g} has no effect with yarn, which overwrites it: {m}"
        )
    if known is not None and not truncates(known):
        notes.append(f"the bounds of yarn are always truncated: {truncation(rope, made)}")
    return made


def _baked(rope: LayerRope, given: dict[str, Any], served: int | None, notes: list[str]) -> LayerRope:
    """A rope whose factors are in the GGUF as a tensor."""
    neutral = {
        "--rope-scaling": ("none", "linear"),
        "--rope-scale": (1.0,),
        "--rope-freq-scale": (1.0,),
        "--rope-freq-base": (0.0, rope.base),
    }
    if any(flag in given and given[flag] not in neutral.get(flag, ()) for flag in SCALE_FLAGS):
        on_top = ", ".join(f"{flag} {value}" for flag, value in given.items() if flag in SCALE_FLAGS)
        raise ConfigError(
            f"{on_top}: the factors of {type(rope.scaling).__name__} are baked into the GGUF and stay, so that "
            "llama.cpp would scale twice; leave the flags out"
        )
    if isinstance(rope.scaling, LongRoPE) and rope.scaling.length_dependent:
        if served is None:
            raise ConfigError("llama.cpp chooses the factors of longrope by -c, which is not known: add -c")
        which = "long" if served > rope.scaling.trained else "short"
        notes.append(
            f"the {which} factors are for texts of all lengths: -c {served}, and {rope.scaling.trained} tokens were "
            "trained"
        )
        return replace(rope, scaling=rope.scaling.at(served))
    return rope


def _served(spec: RopeSpec) -> tuple[list[str], str]:
    """The flags that serve a spec's length, and what to know about them.

    The server takes no texts beyond the file's context_length, whatever -c says: it warns in its log, and refuses them.
    Build 11549 lifts that to the factor times the trained length where flags say yarn; build 8929 does not.
    """
    if spec.served is None:
        return [], ""
    flags = ["-c", str(spec.served)]
    if spec.trained is None or spec.served <= spec.trained:
        return flags, ""
    arch = architecture(spec.model)
    note = "" if arch else "put the file's general.architecture in place of ARCH: -c alone serves no more than it says"
    return [*flags, "--override-kv", f"{arch or 'ARCH'}.context_length=int:{spec.served}"], note


def _flags(rope: LayerRope, spec: RopeSpec) -> list[str]:
    """The flags that mean a rope."""
    scaling = rope.scaling
    if rope.softmax != 1:
        raise Refused(
            f"no flag multiplies the softmax scale by {rope.softmax:.4f} (mscale_all_dim): it is in the GGUF, by "
            "conversion; run it without rope flags"
        )
    if isinstance(scaling, Llama3 | Proportional):
        raise Refused(f"no flag says {scaling!r}: its {rope.rotary // 2} factors (rope_freqs) {BAKED}")
    if isinstance(scaling, LongRoPE):
        raise Refused(
            f"no flag says longrope: its lists of {len(scaling.long)} factors {BAKED} "
            f"(-c above {scaling.trained} takes the long ones)"
        )
    if isinstance(scaling, Dynamic) and scaling.length is None:
        far = spec.served if spec.served is not None and spec.served > scaling.trained else 2 * scaling.trained
        fixed = replace(scaling, length=far)
        base = replace(rope, scaling=fixed).spectrum().base
        raise Refused(f"llama.cpp has no dynamic NTK; fix the length, {fixed!r}, which is the base {base:.10g}")
    if isinstance(scaling, YaRN) and spec.model == "ministral3":
        raise Refused(
            f"no flag says {scaling!r} of a Ministral 3: its file holds mscale_all_dim (yarn_log_multiplier), by which "
            "m is 1 for every factor; convert the model with it in its config.json, and run it without rope flags"
        )
    if isinstance(scaling, YaRN):
        flags = _yarn_flags(rope, scaling)
    elif isinstance(scaling, Linear):
        flags = ["--rope-scaling", "linear", "--rope-scale", _shown(scaling.factor)]
    elif scaling is None or isinstance(scaling, LargerBase | NTK | Dynamic):
        rope = replace(rope, base=rope.spectrum().base)
        flags = ["--rope-scaling", "none"]
    else:
        raise Refused(f"no flag says {scaling!r}: llama.cpp has linear, yarn and a larger base; export another method")
    return [*flags, "--rope-freq-base", _shown(rope.base)]


def _yarn_flags(rope: LayerRope, yarn: YaRN) -> list[str]:
    default = mscale(yarn.factor)
    if not math.isclose(yarn.m, default, rel_tol=CLOSE / 4):
        raise Refused(
            f"llama.cpp's yarn has m = 0.1 ln({yarn.factor:g}) + 1 = {default:.4f} whatever --yarn-attn-factor says, "
            f"and this one has {yarn.m:.4f}: logits would be x {default**2:.4f} instead of x {yarn.m**2:.4f}; "
            "use another engine, or a yarn with the default m"
        )
    if yarn.preset == "paper":
        raise Refused(f"llama.cpp's ramp is over pairs, and {yarn!r} has one over turns; use a yarn without preset")
    refuse_bounds("llama.cpp", rope, yarn)
    flags = ["--rope-scaling", "yarn", "--rope-scale", _shown(yarn.factor), "--yarn-orig-ctx", str(yarn.trained)]
    for name in ("beta_fast", "beta_slow"):
        if getattr(yarn, name) != getattr(YaRN, name):
            flags += ["--yarn-" + name.replace("_", "-"), _shown(getattr(yarn, name))]
    return flags


def _shown(value: float) -> str:
    """A number as one writes it."""
    return str(int(value)) if value == int(value) else repr(float(value))
