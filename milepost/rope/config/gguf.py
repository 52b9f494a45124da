"""GGUF: what llama.cpp makes of a file's key-values and of its tensors of factors.

    qwen2.rope.freq_base = 1e6, qwen2.rope.scaling.type = yarn, .factor = 4, .original_context_length = 32768
    rope_freqs.weight                                a factor for each pair, by which its frequency is divided (Llama 3)
    rope_factors_short.weight, rope_factors_long.weight    the same for short and for long contexts (Phi-3)

llama.cpp scales whatever the type says: frequencies over scaling.factor unless the type is none, and over the tensor's
factors always. Its YaRN always has whole bounds and m = 1 + 0.1 ln(factor). Several keys do nothing for most
architectures; notes say so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from milepost.rope.config.config_json import check_names
from milepost.rope.config.gguf_archs import (
    CROSSED,
    HALF,
    INTERLEAVED,
    KINDS,
    NOT_ROTARY,
    PERMUTED,
    READS_BETAS,
    READS_EXT,
    SHARPENED,
    TENTH,
    Kinds,
)
from milepost.rope.config.gguf_header import WANTED, Tensor, metadata
from milepost.rope.config.keys import ConfigError, ConfigKeys, as_config_error, or_default, short
from milepost.rope.config.read_rope import whole_sections
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.rope.temperature import QueryTemperature
from milepost.scaling import Linear, Llama3, LongRoPE, Scaling, YaRN, mscale
from milepost.spectrum import geometric

if TYPE_CHECKING:
    from milepost.rotation import Pairing

__all__ = ["metadata", "read"]

BASE = 10000.0
"""llama.cpp's base for files that say none."""
FREQS, LONG, SHORT = WANTED
ORIGINAL = "rope.scaling.original_context_length"
KNOWN = {
    "rope.dimension_count", "rope.dimension_count_swa", "rope.dimension_sections", "rope.freq_base",
    "rope.freq_base_swa", "rope.scale_linear", "rope.scaling.type", "rope.scaling.factor", "rope.scaling.attn_factor",
    ORIGINAL, "rope.scaling.finetuned", "rope.scaling.yarn_log_multiplier", "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow",
    "rope.scaling.alpha", "attention.rope_pattern", "attention.compress_rope_freq_base",
}  # fmt: skip


@dataclass
class _File:
    """A file's keys, under its architecture's name; notes and sources are added on the way."""

    arch: str
    keys: ConfigKeys
    tensors: dict[str, Tensor]
    served: int
    notes: list[str] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)


def read(meta: Mapping[str, Any], *, allow_unknown: bool = False) -> RopeSpec:
    """What llama.cpp makes of a file, from its `metadata`."""
    file = _open(meta)
    _refuse_others(file)
    check_names(file.keys, KNOWN, ("rope", "yarn"), allow_unknown, file.notes)
    _note_others(file)
    layers, kinds = _kinds(file)
    main = _with_alpha(file, _rope(file))
    ropes: dict[str, LayerRope | None] = dict.fromkeys(layers, main)
    if kinds is None:
        ropes = ropes or {"all": main}
    else:
        ropes = ropes or dict.fromkeys(("full_attention", "sliding_attention"), main)
        if "sliding_attention" in ropes:
            ropes["sliding_attention"] = _sliding(file, main, kinds)
        if kinds.still in ropes:
            ropes[kinds.still] = None
    layers = _still_layers(file, layers)
    if "no_rope" in layers:
        ropes = {kind: rope for kind, rope in ropes.items() if kind in layers} | {"no_rope": None}
    trained = main.trained
    if trained is None:
        original = file.keys.whole(ORIGINAL)
        trained = file.served if original is None or main.scaling is None else original.value
    with as_config_error():
        tau = _temperature(file)
        sharp = [kind for kind, rope in ropes.items() if file.arch != "llama4" or rope is None] if tau else []
        notes = tuple(dict.fromkeys(file.notes))
        made = RopeSpec(tuple(ropes.items()), layers, trained, file.served, file.arch, file.sources, notes)
        return replace(made, temperatures=tuple((kind, tau) for kind in sharp if tau is not None))


def _open(meta: Mapping[str, Any]) -> _File:
    arch = ConfigKeys(meta).text("general.architecture")
    if arch is None or not arch.value:
        raise ConfigError("the file has no general.architecture: llama.cpp would not know what model it is")
    prefix = f"{arch.value}."
    keys = ConfigKeys({n.removeprefix(prefix): value for n, value in meta.items() if n.startswith(prefix)}, arch.value)
    served = keys.whole("context_length")
    if served is None:
        raise ConfigError(f"the file has no {keys.path('context_length')}, without which llama.cpp loads no model")
    tensors = {name: meta[name] for name in WANTED if name in meta}
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor) or not all(0 < value < math.inf for value in tensor.values):
            raise ConfigError(f"{name} must be a tensor of finite factors above 0, got {short(tensor)}")
    return _File(arch.value, keys, tensors, served.value, sources={"served": served.key})


def _refuse_others(file: _File) -> None:
    other = NOT_ROTARY.get(file.arch)
    layers = file.keys.whole("block_count", most=10000)
    if file.arch == "baichuan" and layers is not None and layers.value == 40:  # the 13B, as llama.cpp knows it too
        other = "ALiBi in the size with 40 layers"
    switch = file.keys.flag("rope.scaling.finetuned")
    if file.arch.startswith("granite") and switch is not None and not switch.value:
        other = f"none, as {switch.key} = false says"
    if other is not None:
        raise ConfigError(f"this model has no rotary positions: architecture {file.arch!r} has {other}")


def _temperature(file: _File) -> QueryTemperature | None:
    """What llama.cpp multiplies queries by according to their position: 1 + scale ln(1 + floor((p + offset) / n)).

    Mistral 3 takes n from the length before YaRN, DeepSeek and Mistral 4 from a key, and Llama 4 has numbers of its
    own, for the layers that do not turn. Other architectures do not read the keys.
    """
    scale, length = file.keys.number("attention.temperature_scale"), file.keys.whole("attention.temperature_length")
    if file.arch == "llama4":
        file.sources["temperature"] = "llama.cpp's own, in layers that do not turn"
        return QueryTemperature("llama4", 0.1, 8192)
    if scale is None or scale.value == 0:
        return None
    if file.arch not in SHARPENED:
        file.notes.append(f"{scale.key} = {scale.value:g} is not read by llama.cpp for {file.arch}: it does nothing")
        return None
    if file.arch == "mistral3":
        length = file.keys.whole(ORIGINAL) or file.keys.whole("context_length")
    if length is None:
        raise ConfigError(
            f"{scale.key} = {scale.value:g} needs {file.keys.path('attention.temperature_length')}, which the file "
            "does not have: llama.cpp does not load it"
        )
    file.sources["temperature"] = f"{scale.key}, {length.key}"
    return QueryTemperature("mistral", scale.value, length.value)


def _note_others(file: _File) -> None:
    """Keys of newer files that change what turns, and that no rope of a spec holds: a note says what they mean."""
    keys = file.keys
    compressed = keys.number("attention.compress_rope_freq_base", above=1)
    if compressed is not None:
        file.notes.append(
            f"compressed keys turn by a base of their own, {compressed.value:g} ({compressed.key}): not in the table"
        )


def _with_alpha(file: _File, rope: LayerRope) -> LayerRope:
    """rope.scaling.alpha (HunyuanVL): llama.cpp takes freq_base x alpha^(d / (d - 2)) for the base."""
    alpha = file.keys.number("rope.scaling.alpha", above=0)
    if alpha is None or alpha.value == 1:
        return rope
    if not file.arch.startswith("hunyuan"):
        file.notes.append(f"{alpha.key} = {alpha.value:g} is read for Hunyuan alone, and passed over here")
        return rope
    base = rope.base * alpha.value ** (rope.rotary / (rope.rotary - 2))
    file.sources["base"] = f"{file.sources.get('base', '')} x {alpha.key}^(d / (d - 2))"
    return replace(rope, base=base)


def _still_layers(file: _File, layers: tuple[str, ...]) -> tuple[str, ...]:
    """attention.rope_pattern (granite_swa, kolibri): an entry for each layer, 0 for one that does not turn."""
    pattern = file.keys.config.get("attention.rope_pattern")
    if pattern is None:
        return layers
    if not isinstance(pattern, list) or len(pattern) != len(layers) or any(n not in (0, 1) for n in pattern):
        raise ConfigError(
            f"{file.keys.path('attention.rope_pattern')} has 1 or 0 for each of {len(layers)} layers, "
            f"got {short(pattern)}"
        )
    if not any(pattern):
        raise ConfigError("this model has no rotary positions: attention.rope_pattern is 0 for every layer")
    return tuple(kind if turns else "no_rope" for kind, turns in zip(layers, pattern, strict=True))


def _kinds(file: _File) -> tuple[tuple[str, ...], Kinds | None]:
    """The kind of each layer (nothing where that is not known), and what kinds there are (None: one)."""
    keys = file.keys
    layers = or_default(keys.whole("block_count", most=10000), 0)
    kinds = KINDS.get(file.arch)
    window = keys.whole("attention.sliding_window", least=0)
    if kinds is not None and (window is None or window.value == 0) and (kinds.window or window is not None):
        kinds = None
    sliding = keys.has("rope.freq_base_swa") or keys.has("rope.dimension_count_swa")
    if kinds is None and sliding and not (window is not None and window.value == 0):
        kinds = Kinds(0)
    if kinds is None:
        return ("all",) * layers, None
    listed = keys.config.get("attention.sliding_window_pattern")
    if isinstance(listed, list):
        if len(listed) != layers or not all(isinstance(value, bool | int) for value in listed):
            raise ConfigError(
                f"{keys.path('attention.sliding_window_pattern')} lists {len(listed)} layers, and there are {layers}"
            )
        return tuple(kinds.many if slides else kinds.one for slides in listed), kinds
    group = or_default(keys.whole("attention.sliding_window_pattern"), kinds.group)
    if group == 0:
        file.notes.append("which layers slide is not in the file, and milepost does not know it of this architecture")
        return (), kinds
    return tuple(kinds.one if (i if kinds.first else i + 1) % group == 0 else kinds.many for i in range(layers)), kinds


def _rope(file: _File) -> LayerRope:
    """The rope of all layers, or of those with full attention."""
    keys, sources = file.keys, file.sources
    given = keys.number("rope.freq_base", above=1)
    base = or_default(given, BASE)
    sources["base"] = "not in the file: llama.cpp's default" if given is None else given.key
    if given is None:
        file.notes.append(f"the file has no {keys.path('rope.freq_base')}: llama.cpp takes {BASE:g}")
    head_dim, rotary = _sizes(file)
    sections = _sections(file)
    scaling = _scaling(file, base, rotary)
    pairing, softmax = _pairing(file, sections), _softmax(file, scaling)
    interleaved = sections is not None and file.arch in CROSSED
    with as_config_error(f"{file.arch}.rope"):
        rope = LayerRope(head_dim, base, rotary, pairing, scaling, softmax, sections, interleaved)
        rope.spectrum(file.served)
    return rope


def _sliding(file: _File, main: LayerRope, kinds: Kinds) -> LayerRope:
    """The rope of the layers that slide."""
    keys = file.keys
    base = keys.number("rope.freq_base_swa", above=1)
    rotary = keys.whole("rope.dimension_count_swa", most=1 << 16)
    file.sources["sliding_attention.base"] = (
        "not in the file: the architecture's own in llama.cpp" if base is None else base.key
    )
    if not kinds.scaled and not kinds.group and main.scaling is not None:
        file.notes.append(
            "layers that slide are taken as unscaled: milepost does not know what llama.cpp does in this architecture"
        )
    with as_config_error(f"{file.arch}.rope of layers that slide"):
        return replace(
            main,
            base=base.value if base is not None else kinds.local or main.base,
            head_dim=or_default(keys.whole("attention.key_length_swa", most=1 << 16), main.head_dim),
            rotary=or_default(rotary, main.rotary),
            scaling=main.scaling if kinds.scaled else None,
            sections=None if rotary is not None and rotary.value != main.rotary else main.sections,
        )


def _sizes(file: _File) -> tuple[int, int]:
    """The head size, and how many of its channels turn."""
    keys, sources, most = file.keys, file.sources, 1 << 16
    turned = keys.whole("rope.dimension_count", most=most)
    if keys.has("attention.kv_lora_rank") and turned is not None:  # latent attention: they are a head of their own
        sources["head_dim"] = sources["rotary"] = turned.key
        return turned.value, turned.value
    size = keys.whole("attention.key_length", most=most)
    if size is not None:
        head_dim, sources["head_dim"] = size.value, size.key
    else:
        width, heads = keys.whole("embedding_length"), _heads(keys)
        if width is None or heads is None or width.value % heads or width.value // heads > most:
            raise ConfigError(
                f"the head size is not known: the file has no {keys.path('attention.key_length')}, and embedding_length"
                f" = {None if width is None else width.value} over attention.head_count = {short(heads)} gives none"
            )
        head_dim, sources["head_dim"] = width.value // heads, f"{keys.path('embedding_length')} / attention.head_count"
    sources["rotary"] = "the whole head" if turned is None else turned.key
    return head_dim, or_default(turned, head_dim)


def _heads(keys: ConfigKeys) -> int | None:
    """The number of heads; some architectures list it by layer, with zeros for layers without attention."""
    listed = keys.config.get("attention.head_count")
    if not isinstance(listed, list):
        return or_default(keys.whole("attention.head_count"), None)
    counts = {n for n in listed if n}
    if len(counts) != 1 or not all(isinstance(n, int) and n > 0 for n in counts):
        raise ConfigError(
            f"{keys.path('attention.head_count')} lists {short(sorted(counts, key=str))} heads: "
            "the head size is not known, add attention.key_length"
        )
    return int(counts.pop())


def _pairing(file: _File, sections: tuple[int, ...] | None) -> Pairing:
    file.sources["pairing"] = "llama.cpp's rope type for the architecture"
    if file.arch in PERMUTED:
        file.notes.append(
            "pairs are interleaved in this file: llama.cpp's converter permutes the rows of q and k for it, where the "
            "same model's config.json has halves; both are right, each for its own weights"
        )
    if file.arch == "glm4" and sections is not None:  # with M-RoPE it is turned in halves
        return "half"
    if file.arch in INTERLEAVED:
        return "interleaved"
    if file.arch not in HALF:
        file.sources["pairing"] = "assumed: the architecture is not one that milepost knows"
        file.notes.append(
            f"how channels are paired is not known for architecture {file.arch!r}; half is assumed, as most have it"
        )
    return "half"


def _sections(file: _File) -> tuple[int, ...] | None:
    given = file.keys.items("rope.dimension_sections")
    if given is None or not any(given.value):
        return None
    sections = whole_sections(given)
    file.sources["sections"] = given.key
    return sections[: max(i for i, n in enumerate(sections) if n) + 1]  # llama.cpp always has four, zeros at the end


def _scaling(file: _File, base: float, rotary: int) -> Scaling | None:
    """Everything that changes the frequencies or the temperature."""
    keys = file.keys
    name = or_default(keys.text("rope.scaling.type"), "linear")
    if name not in ("none", "linear", "yarn", "longrope"):
        raise ConfigError(
            f"{keys.path('rope.scaling.type')} = {short(name)} is not a type that llama.cpp has; "
            "it has none, linear, yarn and longrope"
        )
    given = keys.number("rope.scaling.factor", least=0) or keys.number("rope.scale_linear", least=0)
    factor = given.value if given is not None and given.value else 1.0
    if name == "none" and factor != 1:
        file.notes.append(f"{given.key if given else ''} = {factor:g} has no effect: the scaling type is none")
        factor = 1.0
    if given is not None and factor != 1:
        file.sources["scaling"] = given.key
    m = or_default(keys.number("rope.scaling.attn_factor", above=0), 1.0)
    extended = _extends(file) if name == "yarn" else False
    with as_config_error(keys.path("rope.scaling")):
        if file.tensors:
            return _by_factors(file, base, rotary, factor, m, extended)
        if name == "longrope":
            raise ConfigError(
                f"{keys.path('rope.scaling.type')} = longrope, and the file has no tensor {SHORT}: "
                "if it is split, name its first part"
            )
        if extended and factor != 1:
            return _yarn(file, factor, m)
        if m != 1:
            return LongRoPE((factor,) * (rotary // 2), (factor,) * (rotary // 2), file.served, attention_factor=m)
        return Linear(factor) if factor != 1 else None


def _by_factors(file: _File, base: float, rotary: int, factor: float, m: float, extended: bool) -> Scaling | None:
    """A factor for each pair, from a tensor. rope_freqs comes before the two lists, as in llama.cpp."""
    if extended and factor != 1:
        raise ConfigError(f"the file has YaRN and {next(iter(file.tensors))}; milepost has no scaling that is both")
    names = (FREQS, FREQS) if FREQS in file.tensors else (SHORT, LONG)
    lists = []
    for name in names:
        if name not in file.tensors:
            raise ConfigError(f"the file has one of {SHORT} and {LONG}, and not the other: {name} is missing")
        values = file.tensors[name].values
        if len(values) < rotary // 2:
            raise ConfigError(
                f"{name} has {len(values)} factors, and there are {rotary // 2} pairs to turn: it needs one for each"
            )
        lists.append(tuple(value * factor for value in values[: rotary // 2]))  # more than the pairs is padding
    short_list, long_list = lists
    if names[0] == FREQS:
        file.sources["scaling"] = FREQS
        if factor == m == 1:
            if set(short_list) == {1.0}:
                file.notes.append(f"{FREQS} holds only ones: nothing is scaled")
                return None
            known = _llama3(short_list, base, rotary)
            if known is not None:
                file.sources["scaling"] = (
                    f"{FREQS}, whose factors are those of llama3 with factor {known.factor:g}, to float32"
                )
                file.notes.append(
                    f"{FREQS} holds the factors of llama3 (factor {known.factor:g}, trained {known.trained}): "
                    "read as that"
                )
                return known
        return LongRoPE(short_list, long_list, _original(file), attention_factor=m)
    trained = _original(file)
    file.sources["scaling"] = f"{SHORT} and {LONG}"
    file.notes.append(
        f"llama.cpp chooses between the two lists of factors once, by the context it is started with (-c): the long "
        f"ones above {trained} tokens. transformers chooses at each call, by the text"
    )
    if file.keys.number("rope.scaling.attn_factor") is None:
        file.notes.append(
            f"the file has no {file.keys.path('rope.scaling.attn_factor')}: llama.cpp takes 1, where transformers "
            "computes it from the lengths"
        )
    return LongRoPE(short_list, long_list, trained, max(1.0, file.served / trained), attention_factor=m)


def _llama3(factors: tuple[float, ...], base: float, rotary: int) -> Llama3 | None:
    """The Llama 3 scaling that has these factors, if one has. The slowest pair shows its factor."""
    if not factors or not factors[-1] > 1:
        return None
    known, plain = Llama3(factors[-1], 8192, 1.0, 4.0), geometric(rotary, base)
    own = [w / u for w, u in zip(plain.frequencies, known(plain).frequencies, strict=True)]
    close = 4 * known.factor * 2.0**-23  # converters work in float32; on the ramp an error grows up to factor times
    return known if all(math.isclose(a, b, rel_tol=close) for a, b in zip(own, factors, strict=True)) else None


def _original(file: _File) -> int:
    """The trained length."""
    original = file.keys.whole(ORIGINAL)
    if original is None:
        file.sources["trained"] = f"{file.keys.path('context_length')} (there is no {ORIGINAL})"
        return file.served
    file.sources["trained"] = original.key
    return original.value


def _extends(file: _File) -> bool:
    """Whether YaRN is on: a yarn_ext_factor of 0, where it is read, leaves linear scaling."""
    entry = file.keys.number("rope.scaling.yarn_ext_factor")
    if entry is None or entry.value < 0 or entry.value == 1:
        return True
    if file.arch not in READS_EXT:
        file.notes.append(f"llama.cpp does not read {entry.key} = {entry.value:g} for this architecture: it takes 1")
        return True
    if entry.value:
        raise ConfigError(
            f"{entry.key} = {entry.value:g} mixes YaRN in by parts; milepost has it whole (1) or not at all (0)"
        )
    return False


def _yarn(file: _File, factor: float, attn: float) -> YaRN:
    """llama.cpp's YaRN: whole bounds, and m = 1 + 0.1 ln(factor) unless yarn_log_multiplier changes it, times attn."""
    keys, arch = file.keys, file.arch
    betas = {"yarn_beta_fast": 8.0 if arch == "grok" else 32.0, "yarn_beta_slow": 1.0}
    for name, default in betas.items():
        entry = keys.number(f"rope.scaling.{name}", above=0)
        if entry is not None and entry.value != default:
            if arch in READS_BETAS:
                betas[name] = entry.value
            else:
                file.notes.append(
                    f"llama.cpp does not read {entry.key} = {entry.value:g} for this architecture: it takes {default:g}"
                )
    ignored = keys.number("rope.scaling.yarn_attn_factor")
    if ignored is not None and ignored.value != 1:
        file.notes.append(
            f"{ignored.key} = {ignored.value:g} has no effect: llama.cpp overwrites it, and m is 1 + 0.1 ln(factor)"
        )
    every = _all_dim(file)
    m = mscale(factor) if not every else mscale(factor, every if arch == "deepseek2" else 1.0) / mscale(factor, every)
    own = attn == 1 and not every
    return YaRN(
        factor,
        _original(file),
        betas["yarn_beta_fast"],
        betas["yarn_beta_slow"],
        attention_factor=None if own else m * attn,
    )


def _all_dim(file: _File) -> float:
    """mscale_all_dim, as far as llama.cpp reads it; 0 where it does not."""
    entry = file.keys.number("rope.scaling.yarn_log_multiplier")
    if entry is None or not entry.value:
        return 0.0
    if file.arch not in TENTH | {"mistral3"}:
        file.notes.append(f"llama.cpp does not read {entry.key} = {entry.value:g} for this architecture")
        return 0.0
    return entry.value / 0.1 if file.arch in TENTH else entry.value


def _softmax(file: _File, scaling: Scaling | None) -> float:
    """DeepSeek's code multiplies the softmax scale too."""
    if not isinstance(scaling, YaRN) or file.arch not in TENTH:
        return 1.0
    softmax = (scaling.m * mscale(scaling.factor, _all_dim(file))) ** 2
    file.notes.append(
        f"the softmax scale is multiplied by {softmax:.4f} (yarn_log_multiplier), in llama.cpp's own code"
    )
    return softmax
