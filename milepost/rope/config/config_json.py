"""Reading config.json: the whole of it. `read_rope` reads the rope of one kind of layer, `read_scaling` its dictionary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from milepost.rope.config.families import FAMILIES, NOT_HELD, NOT_ROTARY, Family
from milepost.rope.config.keys import ConfigError, Keys, short
from milepost.rope.config.layer_kinds import DO_NOT, layer_kinds
from milepost.rope.config.read_rope import Model, read_rope
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.scaling.longrope import LongRoPE
from milepost.scaling.yarn import YaRN

TEXT = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where models of several modalities keep the text model's config."""
ROPE = ("rope_parameters", "rope_scaling", "rope_theta")
KNOWN = {
    *ROPE, "rotary_dim", "rotary_pct", "rotary_emb_base", "rotary_emb_fraction", "rope_pct", "rope_local_base_freq", "rotary",
    "global_rope_theta", "local_rope_theta", "partial_rotary_factor", "rope_interleave", "rope_interleaved", "rotary_emb_interleaved",
    "no_rope_layers", "no_rope_layer_interval", "qk_rope_head_dim", "rotary_scaling_factor", "rope_condense_ratio", "use_mem_rope",
}  # fmt: skip
WORDS = ("rope", "rotary", "yarn", "ntk")
"""A key of the config with one of these in its name has to do with rotary positions."""


def read(config: Mapping[str, Any], *, allow_unknown: bool = False) -> RopeSpec:
    """What transformers makes of a config."""
    said = parse(config, allow_unknown=allow_unknown)
    kinds: list[tuple[str, LayerRope | None]] = []
    notes = list(said.notes)
    for kind, found in said.kinds:
        if found is None:
            kinds.append((kind, found))
            continue
        rope = _whole(said, kind, found, allow_unknown, notes)
        scaling = rope.scaling
        if isinstance(scaling, YaRN):
            nested = said.sources.get(f"{kind}.scaling", "").endswith(f".{kind}")
            if (
                nested and scaling.truncate is False
            ):  # 5.22 looks for the key beside the kinds of layers, where it is not
                notes.append(
                    f"transformers does not see truncate = false of {kind}: it reads that key outside of the kinds of layers, and truncates"
                )
                scaling = replace(scaling, truncate=None)
            scaling = replace(scaling, attn_factor=None)
        if isinstance(scaling, LongRoPE):
            scaling = replace(scaling, short_m=None, long_m=None)
        kinds.append((kind, replace(rope, scaling=scaling)))
    return _checked(replace(said, kinds=tuple(kinds), notes=tuple(notes)))


def _whole(said: RopeSpec, kind: str, rope: LayerRope, allow_unknown: bool, notes: list[str]) -> LayerRope:
    """Code that turns whole heads passes over a share; so would we, with a word."""
    family = FAMILIES.get(said.model)
    if family is None or family.turns_part or rope.rotary == rope.head_dim:
        return rope
    key = next((said.sources[k] for k in (f"{kind}.rotary", "rotary") if k in said.sources), "partial_rotary_factor")
    text = f"{key} asks for {rope.rotary} of {rope.head_dim} channels, and transformers' {said.model} turns whole heads: it has no code for a part"
    if not allow_unknown:
        raise ConfigError(text + "; remove the key, or read with --allow-unknown")
    notes.append(text + " (passed over: --allow-unknown)")
    try:
        made = replace(rope, rotary=rope.head_dim)
        made.spectrum(said.served or 1)
    except ValueError as error:
        raise ConfigError(f"{text}; {error}") from None
    return made


def parse(config: Mapping[str, Any], *, allow_unknown: bool = False) -> RopeSpec:
    """What a config says, with the keys that transformers passes over and other engines read."""
    keys, name = text_model(Keys(config))
    family = FAMILIES.get(name)
    sources: dict[str, str] = {}
    notes: list[str] = []
    _refuse_others(keys, name, family)
    _check_names(keys, allow_unknown, notes)
    if family is None:
        notes.append(f"model_type {name!r} is not one that milepost knows" if name else "the config has no model_type")
    elif family.note:
        notes.append(f"{name}: {family.note}")
    known = family or Family(base=None, partial=True)
    count = next(
        filter(None, (keys.whole(n, most=10000) for n in ("num_hidden_layers", "n_layer", "n_layers", "num_layers"))),
        None,
    )
    listed = layer_kinds(known, keys, None if count is None else count.value)
    if count is not None and listed and len(listed) != count.value:
        raise ConfigError(f"the config lists {len(listed)} kinds of layers, and {count.key} = {count.value}")
    pairing = _pairing(keys, family, sources, notes)
    model = Model(name, keys, known, pairing, _served(keys, sources), sources, notes, allow_unknown)
    given = _dictionaries(model, listed)
    if set(given) == {"all"}:
        listed = ("all",) * (len(listed) or (0 if count is None else count.value))
    kinds: dict[str, LayerRope | None] = {}
    lengths: dict[str, int | None] = {}
    for kind, dictionary in given.items():
        kinds[kind] = None
        if dictionary is not None:
            kinds[kind], lengths[kind] = read_rope(model, dictionary, kind)
    _temperature_of_queries(keys, notes)
    if not lengths:
        raise ConfigError(
            f"no rotary positions: no layer of this model turns: its layers are {short(sorted(set(listed)))}"
        )
    trained = lengths.get("full_attention") or next(iter(lengths.values()))
    try:
        return _checked(
            RopeSpec(tuple(kinds.items()), listed, trained, model.served, name, sources, tuple(dict.fromkeys(notes)))
        )
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _checked(spec: RopeSpec) -> RopeSpec:
    """The spec, if its tables can be made at every length that matters."""
    for kind, rope in spec.ropes().items():
        try:
            for length in (1, spec.served or 1, 4 * (spec.trained or spec.served or 1)):
                table = rope.spectrum(length)
                if not all(0 <= w < float("inf") for w in (*table.frequencies, table.temperature * rope.softmax)):
                    raise ValueError(f"the frequencies for {length} tokens are not finite")
        except (ValueError, ArithmeticError) as error:
            place = "" if kind == "all" else f" of {kind} layers"
            raise ConfigError(f"the rotation{place} can't be worked out: {error}") from None
    return spec


def text_model(keys: Keys) -> tuple[Keys, str]:
    """The text model's part of a config, and the name of its type."""
    outer = ""
    for _ in range(4):
        said = keys.text("model_type")
        name = said.value if said is not None else outer + "_text" if outer + "_text" in FAMILIES else outer
        inner = next((keys.inner(part) for part in TEXT if isinstance(keys.config.get(part), Mapping)), None)
        if inner is None or not any(
            inner.has(n) for n in (*ROPE, *TEXT, "hidden_size", "num_attention_heads", "model_type")
        ):
            return keys, name
        for key in ROPE:  # saved twice, the two must agree; saved outside only, that is where they are
            if keys.has(key) and inner.has(key) and keys.config[key] != inner.config[key]:
                raise ConfigError(
                    f"contradictory keys: {keys.path(key)} = {short(keys.config[key])}, {inner.path(key)} = {short(inner.config[key])}; keep one"
                )
        if any(keys.has(key) for key in ROPE) and not any(inner.has(key) for key in (*ROPE, *TEXT)):
            return keys, name
        keys, outer = inner, name
    return keys, outer


def _refuse_others(keys: Keys, name: str, family: Family | None) -> None:
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
                f"this model has no rotary positions: a {name} turns only where {key} is {wanted!r}, got {short(keys.config.get(key))}"
            )
    kind = keys.text("position_embedding_type")
    if kind is not None and not any(word in kind.value.lower() for word in ("rope", "rotary")):
        raise ConfigError(f"this model has no rotary positions: {kind.key} = {kind.value!r}")


def _check_names(keys: Keys, allow_unknown: bool, notes: list[str]) -> None:
    for key, value in keys.config.items():
        if key not in KNOWN and value is not None and any(word in key.lower() for word in WORDS):
            said = f"unknown key {keys.path(short(key)[1:-1])} = {short(value)}, whose name says that it is about rotary positions"
            if not allow_unknown:
                raise ConfigError(said + "; read with --allow-unknown to pass over it")
            notes.append(said + " (passed over: --allow-unknown)")


def _served(keys: Keys, sources: dict[str, str]) -> int | None:
    names = ("max_position_embeddings", "n_positions"), ("seq_length",), ("max_sequence_length",), ("max_seq_len",)
    found = next(filter(None, (keys.whole(*group) for group in names)), None)
    if found is None:
        return None
    sources["served"] = found.key
    return found.value


def _pairing(keys: Keys, family: Family | None, sources: dict[str, str], notes: list[str]) -> Any:
    said = keys.flag("rope_interleave", "rope_interleaved", "rotary_emb_interleaved")
    if said is not None:
        sources["pairing"] = said.key
        return "interleaved" if said.value else "half"
    if family is not None:
        sources["pairing"] = "the model type's code"
        return family.pairing
    sources["pairing"] = "assumed: no config says it, and the model type is not known"
    notes.append("how channels are paired is not known for this model type; half is assumed, as most models have it")
    return "half"


def _dictionaries(model: Model, listed: tuple[str, ...]) -> dict[str, Keys | None]:
    """The dictionary of each kind of layer (an empty one where the config has none); None where a kind does not turn."""
    keys, family = model.keys, model.family
    new, old = keys.inner("rope_parameters"), keys.inner("rope_scaling")
    if new is not None and old is not None and new.config != old.config:
        raise ConfigError("contradictory keys: rope_parameters and rope_scaling are both there, and differ; keep one")
    given = new or old
    if (given is None or not given.config) and family.rope is not None:
        given = Keys(family.rope, "the model type's rope_parameters")
        model.notes.append(f"the config has no rope_parameters: those of its model type are {short(dict(family.rope))}")
    if given is not None and any(isinstance(value, Mapping) for value in given.config.values()):
        return _nested(given, listed)
    if given is not None and given is new and given.config and family.by_kind:
        raise ConfigError(
            f"{given.where} = {short(dict(given.config))}: this model type has one dictionary for each kind of layer, and reads no other"
        )
    flat = given or Keys({}, "")
    kinds = dict.fromkeys(listed)
    if not kinds or (len(kinds) == 1 and not family.by_kind and not family.still and not set(kinds) & set(DO_NOT)):
        return {"all": flat}
    turn = (
        family.turns_without is not None
        and family.turns_without in keys.config
        and keys.config[family.turns_without] is None
    )
    still = {*DO_NOT, *(() if turn else family.still)}
    return {kind: None if kind in still else flat for kind in kinds}


def _nested(given: Keys, listed: tuple[str, ...]) -> dict[str, Keys | None]:
    """A dictionary for each kind of layer, null for one that does not turn."""
    stray = next(
        (key for key, value in given.config.items() if value is not None and not isinstance(value, Mapping)), None
    )
    if stray is not None:
        raise ConfigError(
            f"{given.path(stray)} = {short(given.config[stray])} stands beside dictionaries for kinds of layers: put it inside of them"
        )
    nested: dict[str, Keys | None] = {kind: given.inner(kind) for kind in given.config}
    for kind in dict.fromkeys(listed):
        if kind in DO_NOT:
            nested[kind] = None
        elif kind not in nested:
            raise ConfigError(
                f"{given.where} is for layers of kinds {short(sorted(nested))}, and there are layers of kind {kind!r}"
            )
    return nested


def _temperature_of_queries(keys: Keys, notes: list[str]) -> None:
    """Temperatures by the query's position are no part of the table; they are said."""
    for where in (keys.inner("rope_parameters"), keys.inner("rope_scaling")):
        beta = None if where is None else where.number("llama_4_scaling_beta")
        if beta is not None:
            notes.append(
                f"queries are multiplied by 1 + {beta.value:g} ln(1 + floor(p / trained)) besides ({beta.key}); that is no part of the table"
            )
    if keys.config.get("attn_temperature_tuning"):
        notes.append(
            "queries of layers without rotation are multiplied by a temperature of their position (attn_temperature_tuning); that is no part of the table"
        )
