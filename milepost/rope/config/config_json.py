"""Reading config.json. `read_rope` reads the rope of one kind of layer, `read_scaling` its dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from milepost.rope.config.families import FAMILIES, NOT_HELD, NOT_ROTARY, Family
from milepost.rope.config.keys import ConfigError, ConfigKeys, as_config_error, or_default, pass_over, short
from milepost.rope.config.layer_kinds import DO_NOT, UNSCALED, layer_kinds
from milepost.rope.config.read_rope import Model, read_rope
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.rope.temperature import QueryTemperature

TEXT = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where models of several modalities keep the text model's config."""
ROPE = ("rope_parameters", "rope_scaling", "rope_theta")
KNOWN = {
    *ROPE, "rotary_dim", "rotary_pct", "rotary_emb_base", "rotary_emb_fraction", "rope_pct", "rope_local_base_freq",
    "rotary", "global_rope_theta", "local_rope_theta", "partial_rotary_factor", "rope_interleave", "rope_interleaved",
    "rotary_emb_interleaved", "no_rope_layers", "no_rope_layer_interval", "qk_rope_head_dim", "rotary_scaling_factor",
    "rope_condense_ratio", "use_mem_rope", "rope_scaling_layers", "rotary_value",
}  # fmt: skip
WORDS = ("rope", "rotary", "yarn", "ntk")
"""A key of the config with one of these in its name has to do with rotary positions."""


@dataclass(frozen=True)
class Parsed:
    """What a config says. ``spec`` has also what transformers does not read and other engines do.

    ``dictionaries`` are those that set the scaling, by kind of layer; ``about_transformers`` those notes of the spec
    that are true of transformers only.
    """

    spec: RopeSpec
    dictionaries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    about_transformers: frozenset[str] = frozenset()


def parse(config: Mapping[str, Any], *, allow_unknown: bool = False) -> Parsed:
    """What a config.json says, with the keys that transformers passes over and other engines read."""
    keys, name = text_model(ConfigKeys(config))
    family = FAMILIES.get(name)
    sources: dict[str, str] = {}
    notes: list[str] = []
    _refuse_others(keys, name, family)
    names = {*KNOWN, "layer_rope_theta"} if family is not None and family.bases else KNOWN
    check_names(keys, names, WORDS, allow_unknown, notes)
    if family is None:
        notes.append(f"model_type {name!r} is not one that milepost knows" if name else "the config has no model_type")
    elif family.note:
        notes.append(f"{name}: {family.note}")
    known = family or Family(base=None, partial=True)
    counts = (keys.whole(n, most=10000) for n in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"))
    count = next(filter(None, counts), None)
    number = or_default(count, 0)
    if known.needs and not keys.has(known.needs):
        raise ConfigError(f"{known.needs} is not in the config, and it alone says which layers of a {name} turn")
    layers = layer_kinds(known, keys, number, known=family is not None)
    if count is not None and layers and len(layers) != number:
        raise ConfigError(f"the config lists {len(layers)} kinds of layers, and {count.key} = {number}")
    pairing = _pairing(keys, family, sources, notes)
    model = Model(name, keys, known, pairing, served_length(keys, sources), sources, notes, allow_unknown)
    given = _dictionaries(model, layers)
    if set(given) == {"all"}:
        layers = ("all",) * (len(layers) or number)
    kinds: dict[str, LayerRope | None] = dict.fromkeys(given)
    lengths: dict[str, int | None] = {}
    dictionaries: dict[str, Mapping[str, Any]] = {}
    for kind, dictionary in given.items():
        if dictionary is not None:
            rope, lengths[kind] = read_rope(model, dictionary, kind)
            kinds[kind] = replace(
                rope,
                one_key=keys.has("qk_rope_head_dim"),
                indexer=None if known.indexer is None else replace(rope, pairing=known.indexer, softmax=1.0),
            )
            dictionaries[kind] = dictionary.config
    temperatures = _temperatures(keys, name, known, kinds, dictionaries, notes)
    if not lengths:
        raise ConfigError(
            f"no rotary positions: no layer of this model turns: its layers are {short(sorted(set(layers)))}"
        )
    trained = lengths.get("full_attention") or next(iter(lengths.values()))
    with as_config_error():
        unique = tuple(dict.fromkeys(notes))
        made = RopeSpec(tuple(kinds.items()), layers, trained, model.served, name, sources=sources, notes=unique)
        spec = checked(replace(made, temperatures=temperatures))
    return Parsed(spec, dictionaries, frozenset(model.about_transformers))


def checked(spec: RopeSpec) -> RopeSpec:
    """The spec, if its tables can be made at every length that matters."""
    for kind, rope in spec.ropes().items():
        with as_config_error(f"the rotation{'' if kind == 'all' else f' of {kind} layers'} can't be worked out"):
            for length in (1, spec.served or 1, 4 * (spec.trained or spec.served or 1)):
                table = rope.spectrum(length)
                if not all(0 <= w < float("inf") for w in (*table.frequencies, table.temperature * rope.softmax)):
                    raise ValueError(f"the frequencies for {length} tokens are not finite")
    return spec


def text_model(keys: ConfigKeys) -> tuple[ConfigKeys, str]:
    """The text model's part of a config, and the name of its type."""
    outer = ""
    for _ in range(4):
        name = or_default(keys.text("model_type"), f"{outer}_text" if f"{outer}_text" in FAMILIES else outer)
        if name in NOT_HELD:
            return keys, name
        inner = next((keys.inner(part) for part in TEXT if isinstance(keys.config.get(part), Mapping)), None)
        signs = (*ROPE, *TEXT, "hidden_size", "num_attention_heads", "model_type")
        if inner is None or not any(inner.has(sign) for sign in signs):
            return keys, name
        for key in ROPE:  # saved twice, the two must agree; saved outside only, that is where they are
            if keys.has(key) and inner.has(key) and keys.config[key] != inner.config[key]:
                raise ConfigError(
                    f"contradictory keys: {keys.path(key)} = {short(keys.config[key])}, "
                    f"{inner.path(key)} = {short(inner.config[key])}; keep one"
                )
        if any(keys.has(key) for key in ROPE) and not any(inner.has(key) for key in (*ROPE, *TEXT)):
            return keys, name
        keys, outer = inner, name
    return keys, outer


def check_names(
    keys: ConfigKeys, known: set[str], words: tuple[str, ...], allow_unknown: bool, notes: list[str]
) -> None:
    """Keys that have a word of rotary positions in their name must be known."""
    for key, value in keys.config.items():
        if key not in known and value is not None and any(word in key.lower() for word in words):
            shown = f"{keys.path(short(key)[1:-1])} = {short(value)}"
            problem = f"unknown key {shown}, whose name says that it is about rotary positions"
            pass_over(problem, allow_unknown, notes)


def _refuse_others(keys: ConfigKeys, name: str, family: Family | None) -> None:
    """Refuse models without rotary positions, and those that a spec can't hold."""
    alibi = keys.flag("alibi")
    if alibi is not None and alibi.value:
        raise ConfigError(f"{alibi.key} is true: this model has ALiBi, no rotary positions")
    if name in NOT_HELD:
        raise ConfigError(f"model_type {name!r} {NOT_HELD[name]}: a RopeSpec can't hold that")
    if name in NOT_ROTARY:
        raise ConfigError(f"this model has no rotary positions: model_type {name!r} has {NOT_ROTARY[name]}")
    if family is not None and family.only is not None:
        key, wanted = family.only
        if keys.config.get(key) != wanted:
            raise ConfigError(
                f"this model has no rotary positions: a {name} turns only where {key} is {wanted!r}, "
                f"got {short(keys.config.get(key))}"
            )
    values = keys.flag("rotary_value")
    if values is not None and values.value:
        raise ConfigError(
            f"{values.key} is true: values are turned, and outputs are not turned back: a RopeSpec can't hold that"
        )
    kind = keys.text("position_embedding_type")
    if kind is not None and not any(word in kind.value.lower() for word in ("rope", "rotary")):
        raise ConfigError(f"this model has no rotary positions: {kind.key} = {kind.value!r}")


def served_length(keys: ConfigKeys, sources: dict[str, str]) -> int | None:
    """The length that a config says may be served; ``sources`` gets its key."""
    names = ("max_position_embeddings", "n_positions"), ("seq_length",), ("max_sequence_length",), ("max_seq_len",)
    length = next(filter(None, (keys.whole(*group) for group in names)), None)
    if length is None:
        return None
    sources["served"] = length.key
    return length.value


def _pairing(keys: ConfigKeys, family: Family | None, sources: dict[str, str], notes: list[str]) -> Any:
    interleaved = keys.flag("rope_interleave", "rope_interleaved", "rotary_emb_interleaved")
    if interleaved is not None:
        sources["pairing"] = interleaved.key
        return "interleaved" if interleaved.value else "half"
    if family is not None:
        sources["pairing"] = "the model type's code"
        return family.pairing
    sources["pairing"] = "assumed: no config says it, and the model type is not known"
    notes.append("how channels are paired is not known for this model type; half is assumed, as most models have it")
    return "half"


def _dictionaries(model: Model, layers: tuple[str, ...]) -> dict[str, ConfigKeys | None]:
    """The dictionary of each kind of layer (empty where the config has none); None where a kind does not turn."""
    keys, family = model.keys, model.family
    new, old = keys.inner("rope_parameters"), keys.inner("rope_scaling")
    if new is not None and old is not None and new.config != old.config:
        raise ConfigError("contradictory keys: rope_parameters and rope_scaling are both there, and differ; keep one")
    given = new or old
    if (given is None or not given.config) and family.rope is not None:
        given = ConfigKeys(family.rope, "the model type's rope_parameters")
        model.notes.append(f"the config has no rope_parameters: those of its model type are {short(dict(family.rope))}")
    if given is not None and any(isinstance(value, Mapping) for value in given.config.values()):
        return _nested(given, layers)
    if given is not None and given is new and given.config and family.by_kind:
        raise ConfigError(
            f"{given.where} = {short(dict(given.config))}: this model type has one dictionary for each kind of layer, "
            "and reads no other"
        )
    flat = given or ConfigKeys({}, "")
    kinds = dict.fromkeys(layers)
    if not kinds or (len(kinds) == 1 and not family.by_kind and not family.still and not set(kinds) & set(DO_NOT)):
        return {"all": flat}
    key = family.turns_without
    turns = key is not None and key in keys.config and keys.config[key] is None
    still = {*DO_NOT, *(() if turns else family.still)}
    plain = ConfigKeys({key: flat.config[key] for key in ("rope_theta",) if key in flat.config}, flat.where)
    return {kind: None if kind in still else plain if kind == UNSCALED else flat for kind in kinds}


def _nested(given: ConfigKeys, layers: tuple[str, ...]) -> dict[str, ConfigKeys | None]:
    """A dictionary for each kind of layer, null for one that does not turn."""
    for key, value in given.config.items():
        if value is not None and not isinstance(value, Mapping):
            raise ConfigError(
                f"{given.path(key)} = {short(value)} stands beside dictionaries for kinds of layers: "
                "put it inside of them"
            )
    nested: dict[str, ConfigKeys | None] = {kind: given.inner(kind) for kind in given.config}
    for kind in dict.fromkeys(layers):
        if kind in DO_NOT:
            nested[kind] = None
        elif kind not in nested:
            raise ConfigError(
                f"{given.where} is for layers of kinds {short(sorted(nested))}, and there are layers of kind {kind!r}"
            )
    return nested


def _temperatures(
    keys: ConfigKeys,
    name: str,
    family: Family,
    kinds: Mapping[str, LayerRope | None],
    dictionaries: Mapping[str, Mapping[str, Any]],
    notes: list[str],
) -> tuple[tuple[str, QueryTemperature], ...]:
    """What queries are multiplied by according to their position, by kind of layer; a note says so as well."""
    temperatures: dict[str, QueryTemperature] = {}
    for kind, given in dictionaries.items():
        where = ConfigKeys(given, "rope_parameters")
        beta = where.number("llama_4_scaling_beta")
        length = where.whole("original_max_position_embeddings")
        if beta is not None and name in FAMILIES and "llama_4_scaling_beta" not in (family.rope or {}):
            notes.append(f"the code of {name} does not read {beta.key}: its queries are not multiplied by anything")
            continue
        if beta is None or length is None:
            continue
        temperatures[kind] = QueryTemperature("mistral", beta.value, length.value)
        notes.append(
            f"queries are also multiplied by 1 + {beta.value:g} ln(1 + floor(p / {length.value})) ({beta.key}); "
            "that is no part of the table"
        )
    still = [kind for kind, rope in kinds.items() if rope is None and kind not in DO_NOT[:-1]]
    if family.temperature is not None:
        form, a, n = family.temperature
        temperatures |= dict.fromkeys(still, QueryTemperature(form, a, n))  # type: ignore[arg-type]
    if keys.config.get("attn_temperature_tuning") and still:
        strength, steps = or_default(keys.number("attn_scale"), 0.1), or_default(keys.whole("floor_scale"), 8192)
        temperatures |= dict.fromkeys(still, QueryTemperature("llama4", strength, steps))
        notes.append(
            "queries of layers without rotation are multiplied by a temperature of their position "
            "(attn_temperature_tuning); that is no part of the table"
        )
    return tuple(temperatures.items())
