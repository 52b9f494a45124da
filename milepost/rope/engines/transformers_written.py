"""Writing a spec as the keys of config.json, for transformers 5 or 4, with proof: they are read back, and must give the same table."""

from __future__ import annotations

import json
from typing import Any

from milepost.rope.config.config_json import read
from milepost.rope.config.families import FAMILIES, Family
from milepost.rope.config.layer_kinds import DO_NOT
from milepost.rope.engines.write_scaling import write_scaling
from milepost.rope.engines.written import Refused, Written, proved
from milepost.rope.spec import RopeSpec
from milepost.scaling.dynamic import Dynamic


def write(spec: RopeSpec, *, version: int = 5) -> Written:
    """The keys of config.json that say ``spec``, for transformers 5 or 4; refused where none do."""
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
            notes.append(
                f"dynamic starts from max_position_embeddings, so that must stay the trained length, {rope.scaling.trained}"
            )
    first = next(d for d in dictionaries.values() if d is not None)
    alike = all(d == first for d in dictionaries.values() if d is not None)
    family = FAMILIES.get(spec.model, Family())
    still = {kind for kind, rope in spec.kinds if rope is None}
    flat = (
        alike and not family.by_kind and still <= {*DO_NOT, *family.still}
    )  # what stands still is known without a word
    if version == 5:
        config["rope_parameters"] = (
            first if flat else {kind: d for kind, d in dictionaries.items() if kind not in DO_NOT}
        )
    else:
        _as_v4(spec, config, dictionaries, flat, family)
    written = Written(f"transformers v{version}", config, json.dumps(config, indent=2), tuple(dict.fromkeys(notes)))
    return proved(spec, written, read(config))


def _as_v4(spec: RopeSpec, config: dict[str, Any], dictionaries: dict[str, Any], flat: bool, family: Family) -> None:
    """rope_theta beside rope_scaling, in place of rope_parameters."""
    local = dictionaries.get("sliding_attention")
    two = (
        set(dictionaries) == {"sliding_attention", "full_attention"}
        and local is not None
        and (local["rope_type"] == "default" or not family.unscaled)
    )
    still = [kind for kind, given in dictionaries.items() if given is None]
    if not flat and not two and len(dictionaries) - len(still) > 1:
        raise Refused(
            f"transformers v4 has one rope_scaling for all layers, and {spec.model or 'this model'} has {len(dictionaries)} kinds of layers"
        )
    main = dict(
        dictionaries.get("full_attention") or next(given for given in dictionaries.values() if given is not None)
    )
    if two and local is not None and local["rope_theta"] != main["rope_theta"]:
        name = "local_rope_theta" if spec.model.startswith("modernbert") else "rope_local_base_freq"
        config[name] = local["rope_theta"]
    config["global_rope_theta" if spec.model.startswith("modernbert") else "rope_theta"] = main.pop("rope_theta")
    if "partial_rotary_factor" in main and main["rope_type"] != "proportional":
        config["partial_rotary_factor"] = main.pop("partial_rotary_factor")
    config["rope_scaling"] = None if main == {"rope_type": "default"} and family.rope is None else main


def shape(spec: RopeSpec) -> dict[str, Any]:
    """The keys of a config that are not about the scaling, but that it can't be read without."""
    main = spec.main
    config: dict[str, Any] = {"model_type": spec.model} if spec.model else {}
    config["qk_rope_head_dim" if main.softmax != 1 else "head_dim"] = main.head_dim
    if spec.layers:
        config["num_hidden_layers"] = len(spec.layers)
        if "no_rope" in dict(spec.kinds):
            config["no_rope_layers"] = [int(kind != "no_rope") for kind in spec.layers]
        elif len(spec.kinds) > 1:
            config["layer_types"] = list(spec.layers)
    if spec.served is not None:
        config["max_position_embeddings"] = spec.served
    family = FAMILIES.get(spec.model)
    if main.pairing != (family.pairing if family is not None else "half"):
        config["rope_interleave"] = main.pairing == "interleaved"
    return config
