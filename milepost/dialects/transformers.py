"""transformers: reads config.json of version 4 and 5 alike; writes either.

    v5    rope_parameters: {rope_type, rope_theta, ...}, one for all layers or one for each kind of layer
    v4    rope_theta beside rope_scaling: {rope_type or type, ...}; older names before that

Nothing is filled in silently: `RopeSpec.sources` names the key of every value, or says that it is the model type's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from milepost.dialects.families import FAMILIES, NOT_ROTARY, Family, layer_kinds
from milepost.dialects.keys import ConfigError, Found, Keys, agreed, short
from milepost.dialects.read_scaling import ORIGINAL, Read, read_scaling, rope_type_of
from milepost.dialects.rope_spec import Rope, RopeSpec
from milepost.dialects.write_scaling import write_scaling
from milepost.dialects.written import Refused, Written, proved
from milepost.scaling.dynamic import Dynamic
from milepost.scaling.longrope import LongRoPE
from milepost.scaling.yarn import YaRN, mscale

TEXT = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where models of several modalities keep the text model's config."""
KNOWN = {
    "rope_theta", "rope_scaling", "rope_parameters", "rotary_dim", "rotary_pct", "rotary_emb_base", "rotary_emb_fraction", "rope_pct", "rope_local_base_freq",
    "global_rope_theta", "local_rope_theta", "partial_rotary_factor", "rope_interleave", "rope_interleaved", "rotary_emb_interleaved", "no_rope_layers",
    "no_rope_layer_interval", "qk_rope_head_dim", "rotary_scaling_factor", "rope_condense_ratio", "rotary_emb_scale_base", "original_rope_theta",
}  # fmt: skip
WORDS = ("rope", "rotary", "yarn", "ntk")
"""A key of the config with one of these in its name has to do with rotary positions."""


def read(config: Mapping[str, Any], *, allow_unknown: bool = False) -> RopeSpec:
    """What transformers makes of a config."""
    said = parse(config, allow_unknown=allow_unknown)
    nested = any("." in source.removeprefix("text_config.") for field, source in said.sources.items() if field.endswith(".scaling"))
    kinds, notes = [], list(said.notes)
    for kind, rope in said.kinds:
        scaling = None if rope is None else rope.scaling
        if isinstance(scaling, YaRN):
            if nested and scaling.truncate is False:  # 5.22 looks for the key beside the kinds of layers, where it is not
                notes.append(f"transformers does not see truncate = false of {kind}: it reads that key outside of the kinds of layers, and truncates")
                scaling = replace(scaling, truncate=None)
            scaling = replace(scaling, attn_factor=None)
        if isinstance(scaling, LongRoPE):
            scaling = replace(scaling, short_m=None, long_m=None)
        kinds.append((kind, rope if rope is None else replace(rope, scaling=scaling)))
    return replace(said, kinds=tuple(kinds), notes=tuple(notes))


def parse(config: Mapping[str, Any], *, allow_unknown: bool = False) -> RopeSpec:
    """What a config says, with the keys that transformers passes over and other engines read."""
    keys = _text_model(Keys(config))
    model = keys.text("model_type")
    name = "" if model is None else model.value
    family = FAMILIES.get(name)
    notes: list[str] = []
    _refuse_others(keys, name)
    _check_names(keys, allow_unknown, notes)
    if family is None:
        notes.append(f"model_type {name!r} is not one that milepost knows" if name else "the config has no model_type")
    sources: dict[str, str] = {}
    head_dim = _head_dim(keys, sources)
    served = _served(keys, sources)
    count = keys.whole("num_hidden_layers", "n_layer", "n_layers", "num_layers", least=1, most=10000)
    known = family or Family(base=None)
    listed = layer_kinds(known, keys, None if count is None else count.value)
    if count is not None and listed and len(listed) != count.value:
        raise ConfigError(f"the config lists {len(listed)} kinds of layers, and {count.key} = {count.value}")
    pairing = _pairing(keys, family, sources, notes)
    kinds: dict[str, Rope | None] = {}
    trained: list[int | None] = []
    for kind, given in _dictionaries(keys, known, listed).items():
        if given is None:
            kinds[kind] = None
            continue
        rope, done = _rope(keys, given, kind, known, head_dim, served, pairing, sources, allow_unknown)
        kinds[kind] = rope
        trained.append(done.trained)
        notes += done.notes
    if len(kinds) == 1 and not listed:
        listed = tuple(kinds) * (0 if count is None else count.value)
    for word in set(listed) - set(kinds):
        kinds[word] = None  # kinds of layers without attention, or without rotation
    _temperature_of_queries(keys, notes)
    lengths = dict(zip([kind for kind, rope in kinds.items() if rope is not None], trained, strict=True))
    main = lengths.get("full_attention") or next(iter(lengths.values()), None)
    try:
        return RopeSpec(tuple(kinds.items()), listed, main, served, name, sources, tuple(dict.fromkeys(notes)))
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _text_model(keys: Keys) -> Keys:
    """The text model's part of a config."""
    for _ in range(3):
        inner = next((keys.inner(name) for name in TEXT if isinstance(keys.config.get(name), Mapping)), None)
        if inner is None or any(name in keys.config for name in ("rope_theta", "rope_scaling", "rope_parameters")):
            return keys
        keys = inner
    return keys


def _refuse_others(keys: Keys, name: str) -> None:
    alibi = keys.flag("alibi")
    kind = keys.text("position_embedding_type")
    other = NOT_ROTARY.get(name) or ("ALiBi" if alibi is not None and alibi.value else None)
    if other is None and kind is not None and kind.value not in ("rope", "rotary"):
        other = f"{kind.key} = {kind.value!r}"
    if other is not None and not any(keys.has(n) for n in ("rope_parameters", "rope_scaling", "rope_theta")):
        raise ConfigError(f"this model has no rotary positions: model_type {name!r} has {other}")
    if alibi is not None and alibi.value:
        raise ConfigError(f"{alibi.key} is true: this model has ALiBi, no rotary positions")


def _check_names(keys: Keys, allow_unknown: bool, notes: list[str]) -> None:
    for key, value in keys.config.items():
        if key not in KNOWN and value is not None and any(word in key.lower() for word in WORDS):
            said = f"unknown key {keys.path(key)} = {short(value)}, whose name says that it is about rotary positions"
            if not allow_unknown:
                raise ConfigError(said + "; read with --allow-unknown to pass over it")
            notes.append(said + " (passed over: --allow-unknown)")


def _head_dim(keys: Keys, sources: dict[str, str]) -> int:
    most = 1 << 16
    found = keys.whole("qk_rope_head_dim", most=most) or keys.whole("head_dim", "kv_channels", "attention_head_dim", most=most)
    if found is not None:
        sources["head_dim"] = found.key
        return found.value
    width, heads = keys.whole("hidden_size", "n_embd", "d_model", "dim"), keys.whole("num_attention_heads", "n_head", "n_heads", "num_heads")
    if width is None or heads is None:
        raise ConfigError("the head size is not known: the config has neither head_dim, nor hidden_size and num_attention_heads")
    if width.value % heads.value or width.value // heads.value > most:
        raise ConfigError(f"{width.key} = {width.value} is no multiple of {heads.key} = {heads.value}: say head_dim")
    sources["head_dim"] = f"{width.key} / {heads.key}"
    return width.value // heads.value


def _served(keys: Keys, sources: dict[str, str]) -> int | None:
    found = keys.whole("max_position_embeddings", "n_positions") or keys.whole("seq_length") or keys.whole("max_sequence_length") or keys.whole("max_seq_len")
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


def _dictionaries(keys: Keys, family: Family, listed: tuple[str, ...]) -> dict[str, Keys | None]:
    """The dictionary of each kind of layer (an empty one where the config has none); None where a kind does not turn."""
    new, old = keys.inner("rope_parameters"), keys.inner("rope_scaling")
    if new is not None and old is not None and new.config != old.config:
        raise ConfigError("contradictory keys: rope_parameters and rope_scaling are both there, and differ; keep one")
    given = new or old
    if given is not None and given.config and all(value is None or isinstance(value, Mapping) for value in given.config.values()):
        nested = {kind: given.inner(kind) for kind in given.config}
        if listed and not set(nested) & set(listed):
            raise ConfigError(f"{given.where} is for layers of kinds {short(sorted(nested))}, and the layers are {short(sorted(set(listed)))}")
        return nested
    flat = given or Keys({}, "")
    kinds = [kind for kind in dict.fromkeys(listed) if kind in ("full_attention", "sliding_attention", "chunked_attention", "no_rope")]
    if not kinds or (family.local is None and not family.still and not family.unscaled and "no_rope" not in kinds):
        return {"all": flat} if len(kinds) < 2 else dict.fromkeys(kinds, flat)
    return {kind: None if kind in family.still or kind == "no_rope" else flat for kind in kinds}


def _rope(
    keys: Keys, given: Keys, kind: str, family: Family, head_dim: int, served: int | None, pairing: Any, sources: dict[str, str], allow_unknown: bool
) -> tuple[Rope, Read]:
    """The rope of one kind of layer."""
    nested = given.where.count(".") > keys.where.count(".") + (1 if keys.where else 0)
    label = "" if kind == "all" else f"{kind}."
    local = kind == "sliding_attention" and family.local is not None and not nested
    flat = (
        Keys({k: v for k, v in given.config.items() if k in ("rope_theta", "partial_rotary_factor")}, given.where)
        if kind in family.unscaled and not nested
        else given
    )
    base = _base(keys, flat, local, family, sources, label)
    rope_type = rope_type_of(flat)
    share = agreed(
        flat.number("partial_rotary_factor", above=0), keys.number("partial_rotary_factor", "rotary_pct", "rotary_emb_fraction", "rope_pct", above=0)
    )
    whole = keys.whole("rotary_dim")
    rotary = head_dim
    if rope_type != "proportional":
        portion = family.share if share is None else share.value
        if portion > 1:
            raise ConfigError(f"{share.key if share else 'partial_rotary_factor'} = {portion:g} is more than the whole head")
        rotary = int(head_dim * portion)
        sources[label + "rotary"] = share.key if share is not None else "the model type's own" if family.share != 1 else "the whole head"
        if whole is not None:
            if share is not None and rotary != whole.value:
                raise ConfigError(f"contradictory keys: {whole.key} = {whole.value}, and {share.key} = {share.value:g} of {head_dim} is {rotary}; keep one")
            rotary, sources[label + "rotary"] = whole.value, whole.key
    if rotary < 2 or rotary % 2 or rotary > head_dim:
        raise ConfigError(
            f"{rotary} of {head_dim} channels can't be turned in pairs (from {sources[label + 'rotary']}); the rotary size is even, 2 to {head_dim}"
        )
    outside = keys.whole(ORIGINAL)
    done = read_scaling(flat, pairs=rotary // 2, head_dim=head_dim, served=served, original=outside, allow_unknown=allow_unknown)
    condense = keys.number("rope_condense_ratio", "rotary_scaling_factor", above=0)
    if condense is not None and condense.value != 1:
        done = _condensed(condense, done, served)
    sources.update({label + field: source for field, source in done.sources.items()})
    sections = flat.items("mrope_section")
    if sections is not None and not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in sections.value):
        raise ConfigError(f"{sections.key} must be whole numbers of pairs, got {short(sections.value)}")
    crossed = flat.flag("mrope_interleaved")
    softmax = 1.0
    if family.softmax and isinstance(done.scaling, YaRN) and done.scaling.mscale_all_dim:
        softmax = mscale(done.scaling.factor, done.scaling.mscale_all_dim) ** 2
        done.notes.append(f"the softmax scale is multiplied by {softmax:.4f} (mscale_all_dim), in the model's own code")
    try:
        made = Rope(
            head_dim, base, rotary, pairing, done.scaling, softmax, None if sections is None else tuple(sections.value), bool(crossed and crossed.value)
        )
        made.spectrum(served or 1) if done.scaling is not None else made.plain()
    except ValueError as error:
        raise ConfigError(f"{given.where or 'the config'}: {error}") from None
    return made, done


def _base(keys: Keys, given: Keys, local: bool, family: Family, sources: dict[str, str], label: str) -> float:
    """rope_theta: in the dictionary, beside it, under an older name, or the model type's own, which is said."""
    if local:
        found = keys.number("rope_local_base_freq", "local_rope_theta", above=1)
        default = family.local
    else:
        found = agreed(given.number("rope_theta", above=1), keys.number("rope_theta", "rotary_emb_base", "global_rope_theta", above=1))
        default = family.base
    if found is not None:
        sources[label + "base"] = found.key
        return found.value
    if default is None:
        raise ConfigError("the base is not known: the config has no rope_theta, and its model type has no default that milepost knows; add rope_theta")
    sources[label + "base"] = f"not in the config: the default of its model type ({default:g})"
    return default


def _condensed(ratio: Found[float], done: Read, served: int | None) -> Read:
    from milepost.scaling.linear import Linear

    if done.scaling is not None:
        raise ConfigError(f"{ratio.key} = {ratio.value:g} is a linear scaling, and there is {done.scaling!r} besides; keep one")
    return Read("linear", Linear(ratio.value), served, done.notes, {**done.sources, "scaling": ratio.key})


def _temperature_of_queries(keys: Keys, notes: list[str]) -> None:
    """Temperatures by the query's position are no part of the table; they are said."""
    for where in (keys.config.get("rope_parameters"), keys.config.get("rope_scaling")):
        if isinstance(where, Mapping) and where.get("llama_4_scaling_beta") is not None:
            notes.append("queries are multiplied by 1 + beta ln(1 + floor(p / trained)) besides (llama_4_scaling_beta); that is no part of the table")
    tuning = keys.config.get("attn_temperature_tuning")
    if tuning:
        notes.append(
            "queries of layers without rotation are multiplied by a temperature of their position (attn_temperature_tuning); that is no part of the table"
        )


def write(spec: RopeSpec, *, version: int = 5) -> Written:
    """The keys of config.json that say ``spec``, for transformers 5 or 4; refused where none do."""
    ropes = spec.ropes()
    config, notes = shape(spec), []
    dictionaries: dict[str, Any] = {}
    for kind, rope in spec.kinds:
        if rope is None:
            dictionaries[kind] = None
            continue
        dictionaries[kind], said = write_scaling(rope, spec)
        notes += said
        if isinstance(rope.scaling, Dynamic):
            config["max_position_embeddings"] = rope.scaling.trained
            notes.append(f"dynamic starts from max_position_embeddings, so that must stay the trained length, {rope.scaling.trained}")
    flat = len(ropes) == len(spec.kinds) and all(d == next(iter(dictionaries.values())) for d in dictionaries.values())
    if version == 5:
        config["rope_parameters"] = next(iter(dictionaries.values())) if flat else dictionaries
    else:
        _as_v4(spec, config, dictionaries, flat)
    written = Written(f"transformers v{version}", config, json.dumps(config, indent=2), tuple(dict.fromkeys(notes)))
    return proved(spec, written, read(config))


def _as_v4(spec: RopeSpec, config: dict[str, Any], dictionaries: dict[str, Any], flat: bool) -> None:
    """rope_theta beside rope_scaling, in place of rope_parameters."""
    local = dictionaries.get("sliding_attention")
    two = set(dictionaries) == {"sliding_attention", "full_attention"} and local is not None and local["rope_type"] == "default"
    still = [kind for kind, given in dictionaries.items() if given is None]
    if not flat and not two and len(dictionaries) - len(still) > 1:
        raise Refused(f"transformers v4 has one rope_scaling for all layers, and {spec.model or 'this model'} has {len(dictionaries)} kinds of layers")
    main = dict(dictionaries.get("full_attention") or next(given for given in dictionaries.values() if given is not None))
    if two and local is not None and local["rope_theta"] != main["rope_theta"]:
        name = "local_rope_theta" if spec.model.startswith("modernbert") else "rope_local_base_freq"
        config[name] = local["rope_theta"]
    config["rope_theta"] = main.pop("rope_theta")
    if "partial_rotary_factor" in main and main["rope_type"] != "proportional":
        config["partial_rotary_factor"] = main.pop("partial_rotary_factor")
    config["rope_scaling"] = None if main == {"rope_type": "default"} else main


def shape(spec: RopeSpec) -> dict[str, Any]:
    """The keys of a config that are not about the scaling, but that it can't be read without."""
    main = spec.main
    config: dict[str, Any] = {"model_type": spec.model} if spec.model else {}
    config["qk_rope_head_dim" if main.softmax != 1 else "head_dim"] = main.head_dim
    if spec.layers:
        config["num_hidden_layers"] = len(spec.layers)
        if len(spec.kinds) > 1:
            config["layer_types"] = list(spec.layers)
    if spec.served is not None:
        config["max_position_embeddings"] = spec.served
    family = FAMILIES.get(spec.model)
    if main.pairing != (family.pairing if family is not None else "half"):
        config["rope_interleave"] = main.pairing == "interleaved"
    return config
