"""Reading the rope of one kind of layer: the size of the head and of its part that turns, the base, the scaling, the sections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from milepost.rope.config.families import HEADS, Family
from milepost.rope.config.keys import ConfigError, Found, Keys, agreed, short
from milepost.rope.config.read_scaling import ORIGINAL, Read, read_scaling, rope_type_of
from milepost.rope.spec import LayerRope
from milepost.scaling.dynamic import Dynamic
from milepost.scaling.linear import Linear
from milepost.scaling.yarn import YaRN, mscale

LARGEST_HEAD = 1 << 16
SHARES = ("partial_rotary_factor", "rotary_pct", "rotary_emb_fraction", "rope_pct")


@dataclass
class Model:
    """What is the same for all kinds of layers; ``sources`` and ``notes`` are added to."""

    name: str
    keys: Keys
    family: Family
    pairing: Any
    served: int | None
    sources: dict[str, str]
    notes: list[str]
    allow_unknown: bool


def read_rope(model: Model, given: Keys, kind: str) -> tuple[LayerRope, int | None]:
    """The rope of one kind of layer, and the length that it was trained for; ``given`` is the dictionary that says it."""
    keys, family = model.keys, model.family
    nested = given.where.endswith(f".{kind}")
    label = "" if kind == "all" else f"{kind}."
    if kind in family.unscaled and not nested:
        given = Keys(
            {k: v for k, v in given.config.items() if k in ("rope_theta", "partial_rotary_factor")}, given.where
        )
    head_dim = _head_dim(model, kind)
    base = _base(model, given, kind, nested, label)
    rotary = head_dim if rope_type_of(given) == "proportional" else _rotary(model, given, head_dim, label)
    outside = keys.whole(ORIGINAL) or keys.whole("max_trained_positions")
    done = read_scaling(
        given,
        pairs=rotary // 2,
        served=model.served,
        original=outside,
        allow_unknown=model.allow_unknown,
        alpha=family.alpha,
    )
    done = _older_scalings(keys, done, model.served)
    if done.trained is not None and "served" in model.sources:
        done.sources.setdefault("trained", model.sources["served"])
    model.sources.update({label + field: source for field, source in done.sources.items()})
    model.notes += done.notes
    softmax = 1.0
    if family.softmax and isinstance(done.scaling, YaRN) and done.scaling.mscale_all_dim:
        softmax = mscale(done.scaling.factor, done.scaling.mscale_all_dim) ** 2
        model.notes.append(
            f"the softmax scale is multiplied by {softmax:.4f} (mscale_all_dim), in the model's own code"
        )
    sections, crossed = _sections(given)
    try:
        return LayerRope(head_dim, base, rotary, model.pairing, done.scaling, softmax, sections, crossed), done.trained
    except ValueError as error:
        raise ConfigError(f"{given.where or 'the config'}: {error}") from None


def _head_dim(model: Model, kind: str) -> int:
    keys, sources, wide = model.keys, model.sources, model.family.wide
    if wide is not None and kind == wide[0]:
        said = keys.whole(wide[1], most=LARGEST_HEAD) or _size_of_layers(keys)
        sources[f"{kind}.head_dim"] = (
            said.key if said is not None else f"not in the config: the default of its model type ({wide[2]})"
        )
        return wide[2] if said is None else said.value
    part = keys.whole("qk_rope_head_dim", least=0, most=LARGEST_HEAD)
    if part is not None and part.value == 0:
        raise ConfigError(f"this model has no rotary positions: {part.key} = 0")
    found = (
        part
        or keys.whole("attention_head_dim", most=LARGEST_HEAD)
        or keys.whole("head_dim", "kv_channels", most=LARGEST_HEAD)
    )
    if found is not None:
        sources["head_dim"] = found.key
        return found.value
    if model.name in HEADS:
        sources["head_dim"] = f"not in the config: the default of its model type ({HEADS[model.name]})"
        return HEADS[model.name]
    width, heads = (
        keys.whole("hidden_size", "n_embd", "d_model", "dim"),
        keys.whole("num_attention_heads", "n_head", "n_heads", "num_heads"),
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


def _size_of_layers(keys: Keys) -> Found[int] | None:
    """The head size in per_layer_config, as transformers 5 saves it: {"05": {"head_dim": 512}, ...}."""
    layers = keys.inner("per_layer_config")
    if layers is None:
        return None
    each = [
        layer.whole("head_dim", most=LARGEST_HEAD) for layer in map(layers.inner, layers.config) if layer is not None
    ]
    return agreed(*each)


def _rotary(model: Model, given: Keys, head_dim: int, label: str) -> int:
    """How many channels turn."""
    keys, family, sources = model.keys, model.family, model.sources
    share, whole = (
        agreed(given.number("partial_rotary_factor", above=0), keys.number(*SHARES, above=0)),
        keys.whole("rotary_dim"),
    )
    portion = family.share if share is None else share.value
    if portion > 1:
        raise ConfigError(
            f"{share.key if share else 'partial_rotary_factor'} = {portion:g} is more than the whole head"
        )
    rotary = int(head_dim * portion)
    sources[label + "rotary"] = (
        share.key
        if share is not None
        else f"not in the config: the default of its model type ({family.share:g})"
        if family.share != 1
        else "the whole head"
    )
    if keys.has("qk_rope_head_dim"):
        rotary = _part(keys, share, head_dim)
        sources[label + "rotary"] = keys.path("qk_rope_head_dim")
    elif whole is not None:
        if share is not None and rotary != whole.value:
            raise ConfigError(
                f"contradictory keys: {whole.key} = {whole.value}, and {share.key} = {share.value:g} of {head_dim} is {rotary}; keep one"
            )
        rotary, sources[label + "rotary"] = whole.value, whole.key
    elif family.rotary is not None and "rotary_dim" not in keys.config and share is None:
        rotary, sources[label + "rotary"] = (
            family.rotary,
            f"not in the config: the default of its model type ({family.rotary})",
        )
    if rotary < 2 or rotary % 2 or rotary > head_dim:
        raise ConfigError(
            f"{rotary} of {head_dim} channels can't be turned in pairs (from {sources[label + 'rotary']}); the rotary size is even, 2 to {head_dim}"
        )
    return rotary


def _part(keys: Keys, share: Found[float] | None, size: int) -> int:
    """qk_rope_head_dim channels are the part that turns: a share may say so once more, of the whole head."""
    if share is not None and share.value != 1:
        nope, whole = keys.whole("qk_nope_head_dim", least=0), keys.whole("head_dim", "qk_head_dim")
        heads = {size + nope.value if nope is not None else size, whole.value if whole is not None else size}
        if size not in {int(head * share.value) for head in heads}:
            raise ConfigError(
                f"contradictory keys: {keys.path('qk_rope_head_dim')} = {size} is the part that turns, and {share.key} = {share.value:g}; keep one"
            )
    return size


def _base(model: Model, given: Keys, kind: str, nested: bool, label: str) -> float:
    """rope_theta: in the dictionary, beside it, under an older name, or the model type's own, which is said."""
    keys, family = model.keys, model.family
    inside, beside = (
        given.number("rope_theta", above=1),
        keys.number("rope_theta", "rotary_emb_base", "global_rope_theta", above=1),
    )
    default = family.base
    if kind == "sliding_attention" and family.local is not None:
        older = keys.number("rope_local_base_freq", "local_rope_theta", above=1)
        found, default = agreed(inside, older) if nested else older, family.local
    elif nested and kind != "full_attention":
        found = inside or beside
    else:
        found = agreed(inside, beside)
    if found is not None:
        model.sources[label + "base"] = found.key
        return found.value
    if default is None:
        raise ConfigError(
            "the base is not known: the config has no rope_theta, and its model type has no default that milepost knows; add rope_theta"
        )
    model.sources[label + "base"] = f"not in the config: the default of its model type ({default:g})"
    return default


def _older_scalings(keys: Keys, done: Read, served: int | None) -> Read:
    """Scalings that once stood outside of any dictionary: LongChat's ratio (linear), and Nomic's factor (dynamic)."""
    ratio, factor = keys.number("rope_condense_ratio", least=1), keys.number("rotary_scaling_factor", least=1)
    both = [f for f in (ratio, factor) if f is not None and f.value != 1]
    if not both:
        return done
    if len(both) > 1 or done.scaling is not None:
        besides = repr(done.scaling) if done.scaling is not None else f"{both[1].key} = {both[1].value:g}"
        raise ConfigError(
            f"contradictory keys: {both[0].key} = {both[0].value:g} is a scaling, and there is {short(besides)} besides; keep one"
        )
    found = both[0]
    sources = {**done.sources, "scaling": found.key}
    if found is ratio:
        note = f"{found.key} = {found.value:g} is read as linear, as LongChat's own code has it; it has no key for the trained length"
        return Read("linear", Linear(found.value), done.trained, [*done.notes, note], sources)
    if done.trained is None:
        raise ConfigError(f"{found.key} = {found.value:g} starts from max_trained_positions, which is not there")
    note = f"{found.key} = {found.value:g} is read as dynamic NTK, as Nomic's own code has it"
    return Read("dynamic", Dynamic(done.trained, found.value), done.trained, [*done.notes, note], sources)


def _sections(given: Keys) -> tuple[tuple[int, ...] | None, bool]:
    found, crossed = given.items("mrope_section"), given.flag("mrope_interleaved")
    if found is None:
        return None, False
    if not found.value or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in found.value):
        raise ConfigError(f"{found.key} must be whole numbers of pairs, got {short(found.value)}")
    return tuple(found.value), crossed is not None and crossed.value
