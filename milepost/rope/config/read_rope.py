"""Reading the rope of one kind of layer: head size, rotary size, base, scaling and sections."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from milepost.rope.config.families import HEADS, Family
from milepost.rope.config.keys import ConfigError, ConfigKeys, Entry, agreed, as_config_error, or_default, short
from milepost.rope.config.read_scaling import ORIGINAL, ScalingReader, rope_type_of
from milepost.rope.spec import LayerRope
from milepost.scaling import Dynamic, Linear, YaRN, mscale

LARGEST_HEAD = 1 << 16
SHARES = ("partial_rotary_factor", "rotary_pct", "rotary_emb_fraction", "rope_pct")


@dataclass
class Model:
    """What is the same for all kinds of layers; ``sources`` and the notes are added to."""

    name: str
    keys: ConfigKeys
    family: Family
    pairing: Any
    served: int | None
    sources: dict[str, str]
    notes: list[str]
    allow_unknown: bool
    about_transformers: list[str] = field(default_factory=list)


def read_rope(model: Model, given: ConfigKeys, kind: str) -> tuple[LayerRope, int | None]:
    """The rope of one kind of layer, and the length that it was trained for; ``given`` is its dictionary."""
    keys, family = model.keys, model.family
    nested = given.where.endswith(f".{kind}")
    label = "" if kind == "all" else f"{kind}."
    if kind in family.unscaled and not nested:
        plain = {k: v for k, v in given.config.items() if k in ("rope_theta", "partial_rotary_factor")}
        given = ConfigKeys(plain, given.where)
    head_dim = _head_dim(model, kind)
    base = _base(model, given, kind, nested, label)
    rotary = head_dim if rope_type_of(given) == "proportional" else _rotary(model, given, head_dim, label)
    outside = keys.whole(ORIGINAL) or keys.whole("max_trained_positions")
    reader = ScalingReader(given, rotary // 2, model.served, outside, model.allow_unknown).read()
    _read_older_scalings(keys, reader)
    if reader.trained is not None and "served" in model.sources:
        reader.sources.setdefault("trained", model.sources["served"])
    model.sources.update({label + name: source for name, source in reader.sources.items()})
    model.notes += reader.notes
    model.about_transformers += reader.about_transformers
    scaling, softmax = reader.scaling, 1.0
    if family.softmax and isinstance(scaling, YaRN) and scaling.mscale_all_dim:
        softmax = mscale(scaling.factor, scaling.mscale_all_dim) ** 2
        model.notes.append(
            f"the softmax scale is multiplied by {softmax:.4f} (mscale_all_dim), in the model's own code"
        )
    sections, interleaved = _sections(given)
    with as_config_error(given.where or "the config"):
        rope = LayerRope(head_dim, base, rotary, model.pairing, scaling, softmax, sections, interleaved)
    return rope, reader.trained


def _by_default(value: object) -> str:
    return f"not in the config: the default of its model type ({value})"


def _head_dim(model: Model, kind: str) -> int:
    keys, sources, wide = model.keys, model.sources, model.family.wide
    if wide is not None and kind == wide[0]:
        own = keys.whole(wide[1], most=LARGEST_HEAD) or _size_of_layers(keys)
        sources[f"{kind}.head_dim"] = _by_default(wide[2]) if own is None else own.key
        return or_default(own, wide[2])
    part = keys.whole("qk_rope_head_dim", least=0, most=LARGEST_HEAD)
    if part is not None and part.value == 0:
        raise ConfigError(f"this model has no rotary positions: {part.key} = 0")
    size = (
        part
        or keys.whole("attention_head_dim", most=LARGEST_HEAD)
        or keys.whole("head_dim", "kv_channels", most=LARGEST_HEAD)
    )
    if size is not None:
        sources["head_dim"] = size.key
        return size.value
    if model.name in HEADS:
        sources["head_dim"] = _by_default(HEADS[model.name])
        return HEADS[model.name]
    width = keys.whole("hidden_size", "n_embd", "d_model", "dim")
    heads = keys.whole("num_attention_heads", "n_head", "n_heads", "num_heads") or keys.whole(
        "encoder_num_attention_heads", "decoder_num_attention_heads"
    )
    if width is None or heads is None:
        raise ConfigError(
            "the head size is not known: the config has neither head_dim, nor hidden_size and num_attention_heads"
        )
    if width.value % heads.value or width.value // heads.value > LARGEST_HEAD:
        raise ConfigError(
            f"{width.key} = {width.value} over {heads.key} = {heads.value} is no size of a head: say head_dim"
        )
    sources["head_dim"] = f"{width.key} / {heads.key}"
    return width.value // heads.value


def _size_of_layers(keys: ConfigKeys) -> Entry[int] | None:
    """The head size in per_layer_config, as transformers 5 saves it: {"05": {"head_dim": 512}, ...}."""
    layers = keys.inner("per_layer_config")
    if layers is None:
        return None
    inner = (layers.inner(name) for name in layers.config)
    return agreed(*(layer.whole("head_dim", most=LARGEST_HEAD) for layer in inner if layer is not None))


def _rotary(model: Model, given: ConfigKeys, head_dim: int, label: str) -> int:
    """How many channels turn."""
    keys, family = model.keys, model.family
    share = agreed(given.number("partial_rotary_factor", above=0), keys.number(*SHARES, above=0))
    size = None if "rotary_dim" in family.unread else keys.whole("rotary_dim")
    portion = or_default(share, family.share)
    if portion > 1:
        raise ConfigError(
            f"{share.key if share else 'partial_rotary_factor'} = {portion:g} is more than the whole head"
        )
    rotary = int(head_dim * portion)
    if keys.has("qk_rope_head_dim"):
        rotary, source = _latent(keys, share, head_dim), keys.path("qk_rope_head_dim")
    elif size is not None:
        if share is not None and rotary != size.value:
            raise ConfigError(
                f"contradictory keys: {size.key} = {size.value}, and {share.key} = {share.value:g} of {head_dim} is "
                f"{rotary}; keep one"
            )
        rotary, source = size.value, size.key
    elif share is not None:
        source = share.key
    elif family.rotary is not None and "rotary_dim" not in keys.config:
        rotary, source = family.rotary, _by_default(family.rotary)
    else:
        source = "the whole head" if family.share == 1 else _by_default(f"{family.share:g}")
    model.sources[label + "rotary"] = source
    if rotary < 2 or rotary % 2 or rotary > head_dim:
        raise ConfigError(
            f"{rotary} of {head_dim} channels can't be turned in pairs (from {source}); "
            f"the rotary size is even, 2 to {head_dim}"
        )
    return rotary


def _latent(keys: ConfigKeys, share: Entry[float] | None, size: int) -> int:
    """qk_rope_head_dim channels are the part that turns: a share may say so once more, of the whole head."""
    if share is not None and share.value != 1:
        rest, whole = keys.whole("qk_nope_head_dim", least=0), keys.whole("head_dim", "qk_head_dim")
        heads = {size + rest.value if rest is not None else size, whole.value if whole is not None else size}
        if size not in {int(head * share.value) for head in heads}:
            raise ConfigError(
                f"contradictory keys: {keys.path('qk_rope_head_dim')} = {size} is the part that turns, "
                f"and {share.key} = {share.value:g}; keep one"
            )
    return size


def _base(model: Model, given: ConfigKeys, kind: str, nested: bool, label: str) -> float:
    """rope_theta: in the dictionary, beside it, under an older name, or the model type's own, which sources name."""
    keys, default = model.keys, model.family.base
    inside = given.number("rope_theta", above=1)
    beside = keys.number("rope_theta", "rotary_emb_base", "global_rope_theta", above=1)
    if kind == "sliding_attention" and model.family.local is not None:
        older = keys.number("rope_local_base_freq", "local_rope_theta", above=1)
        base, default = agreed(inside, older) if nested else older, model.family.local
    elif nested and kind != "full_attention":
        base = inside or beside
    else:
        base = agreed(inside, beside)
    if base is not None:
        model.sources[label + "base"] = base.key
        return base.value
    if default is None:
        raise ConfigError(
            "the base is not known: the config has no rope_theta, and its model type has no default that milepost "
            "knows; add rope_theta"
        )
    model.sources[label + "base"] = _by_default(f"{default:g}")
    return default


def _read_older_scalings(keys: ConfigKeys, reader: ScalingReader) -> None:
    """Scalings that once stood outside of any dictionary: LongChat's ratio (linear), and Nomic's factor (dynamic)."""
    ratio, factor = keys.number("rope_condense_ratio", least=1), keys.number("rotary_scaling_factor", least=1)
    given = [entry for entry in (ratio, factor) if entry is not None and entry.value != 1]
    if not given:
        return
    shown = f"{given[0].key} = {given[0].value:g}"
    if len(given) > 1 or reader.scaling is not None:
        other = f"{given[1].key} = {given[1].value:g}" if reader.scaling is None else repr(reader.scaling)
        raise ConfigError(f"contradictory keys: {shown} is a scaling, and so is {short(other)}; keep one")
    reader.sources["scaling"] = given[0].key
    if given[0] is ratio:
        reader.scaling = Linear(given[0].value)
        reader.notes.append(
            f"{shown} is read as linear, as LongChat's own code has it; it has no key for the trained length"
        )
    elif reader.trained is None:
        raise ConfigError(f"{shown} starts from max_trained_positions, which is not there")
    else:
        reader.scaling = Dynamic(reader.trained, given[0].value)
        reader.notes.append(f"{shown} is read as dynamic NTK, as Nomic's own code has it")


def _sections(given: ConfigKeys) -> tuple[tuple[int, ...] | None, bool]:
    """The sections of M-RoPE, and whether they are interleaved."""
    sections = agreed(given.items("mrope_section"), given.items("xdrope_section"))  # HunYuan-VL's older name
    interleaved = given.flag("mrope_interleaved")
    if sections is None:
        return None, False
    return whole_sections(sections), interleaved is not None and interleaved.value


def whole_sections(entry: Entry[list[Any]]) -> tuple[int, ...]:
    """Sections, if they are whole numbers."""
    if not entry.value or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in entry.value):
        raise ConfigError(f"{entry.key} must be whole numbers of pairs, got {short(entry.value)}")
    return tuple(entry.value)
