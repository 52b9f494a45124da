"""config.json of an extended model: the source's, with a few keys changed, in the source's own spelling.

    transformers 5    rope_parameters: {rope_type, rope_theta, ...}, one for each kind of layer where there are kinds
    transformers 4    rope_scaling: {rope_type (and type, where the source says that), ...} beside rope_theta, or its
    older names

The new config is read back twice, by us and by transformers' own config class, and refused if either makes other
frequencies of it. `undo` is what a sidecar keeps, so that a model that is extended again is extended from where it
began.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from milepost.checkpoints.model.quiet import first_line, quiet
from milepost.rope import RopeSpec, export
from milepost.rope.config.config_json import ROPE, text_model
from milepost.rope.config.keys import ConfigError, ConfigKeys, short
from milepost.rope.engines.parity import differences
from milepost.rope.engines.written import Refused

SERVED = ("max_position_embeddings", "n_positions"), ("seq_length",), ("max_sequence_length",), ("max_seq_len",)
"""Keys that say the served length; the first group that is there is read."""
BASES = ("rope_theta", "rotary_emb_base", "global_rope_theta")
CARRIED = ("llama_4_scaling_beta",)
"""Keys of the dictionary that are no part of a scaling, and stay."""


def extended_config(source: Mapping[str, Any], plain: RopeSpec, spec: RopeSpec) -> tuple[dict[str, Any], list[str]]:
    """The source's config with the keys of ``spec``, and what to know about them; read back, to be sure."""
    made = copy.deepcopy(dict(source))
    part: dict[str, Any] = text_model(ConfigKeys(made))[0].config  # type: ignore[assignment]  # a dict inside of `made`
    written = export(spec, _version(made, part))
    new_keys = written.config
    if "rope_parameters" in new_keys:
        part["rope_parameters"] = _carried(new_keys["rope_parameters"], part.get("rope_parameters"))
        part.pop("rope_scaling", None)
        if "rope_theta" in new_keys["rope_parameters"]:  # the older names, where the source says them too
            part.update(
                {name: new_keys["rope_parameters"]["rope_theta"] for name in BASES if part.get(name) is not None}
            )
    else:
        old = part.get("rope_scaling") or {}
        new = new_keys["rope_scaling"]
        if isinstance(new, Mapping) and "type" in old:
            new = {"type": new["rope_type"], **new}
        part["rope_scaling"] = None if new is None else _carried(new, old)
        base = next((new_keys[name] for name in BASES if name in new_keys), plain.main.base)
        there = next((name for name in BASES if part.get(name) is not None), None)
        if there is not None or base != plain.main.base:
            part[there or ("rotary_emb_base" if spec.model == "gpt_neox" else "rope_theta")] = base
    groups = [[name for name in group if part.get(name) is not None] for group in SERVED]
    names = next(filter(None, groups), ["max_position_embeddings"])
    part.update(dict.fromkeys(names, new_keys["max_position_embeddings"]))
    if part is not made:  # saved outside too
        made.update({key: part.get(key) for key in ROPE if made.get(key) is not None})
    wrong = differences(spec, RopeSpec.from_config(made))
    if wrong:
        raise Refused(
            f"a config.json like the source's can't say this: it would be read as {wrong[0].sentence('meant', 'read')}"
        )
    return made, list(written.notes)


def _version(config: Mapping[str, Any], part: Mapping[str, Any]) -> str:
    """In the words of which transformers the source is written."""
    if part.get("rope_parameters") is not None:
        return "transformers"
    if "rope_scaling" in part or any(part.get(name) is not None for name in BASES):
        return "transformers-v4"
    newer = str(config.get("transformers_version", "4")).split(".")[0] >= "5"
    return "transformers" if newer else "transformers-v4"


def _carried(new: Mapping[str, Any], old: Any) -> dict[str, Any]:
    """A dictionary, or one for each kind of layer, with the old one's keys that are not about the scaling."""
    old = old if isinstance(old, Mapping) else {}
    if any(isinstance(value, Mapping) for value in new.values()):
        return {kind: value if value is None else _carried(value, old.get(kind)) for kind, value in new.items()}
    return {**{key: old[key] for key in CARRIED if old.get(key) is not None}, **new}


def check_transformers(config: Mapping[str, Any], spec: RopeSpec) -> None:
    """transformers' own class for this config must keep it: some rename a rope type, or take only one."""
    import transformers

    name = str(config.get("model_type"))
    known: Any = transformers.models.auto.configuration_auto.CONFIG_MAPPING
    try:
        with quiet():
            loaded = known[name].from_dict(copy.deepcopy(dict(config))).to_dict()
        wrong = differences(spec, RopeSpec.from_config(loaded, allow_unknown=True))
    except Exception as error:  # transformers' own errors are of many kinds
        raise Refused(
            f"transformers' config of {name} does not take {spec.main.scaling!r}: {first_line(error)}"
        ) from None
    if wrong:
        raise Refused(
            f"transformers' config of {name} changes what is written: {wrong[0].sentence('written', 'as it is loaded')}"
        )


def changes(old: Mapping[str, Any], new: Mapping[str, Any], where: str = "") -> dict[str, tuple[Any, Any]]:
    """The keys that differ, with both values; inside of the text model's part too."""
    changed: dict[str, tuple[Any, Any]] = {}
    for key in dict.fromkeys((*old, *new)):
        a, b = old.get(key), new.get(key)
        if a == b and (key in old) == (key in new):
            continue
        if key not in ROPE and isinstance(a, Mapping) and isinstance(b, Mapping):
            changed |= changes(a, b, f"{where}{key}.")
        else:
            changed[where + key] = (a, b)
    return changed


def undo(first: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """What undoes every extension of this config: values by their path, and paths that were not there."""
    changed = changes(first, config)
    absent = [path for path in changed if _parent(first, path)[1] not in _parent(first, path)[0]]
    return {"keys": {path: value[0] for path, value in changed.items() if path not in absent}, "absent": absent}


def _parent(config: Mapping[str, Any], path: str) -> tuple[Any, str]:
    """The part of a config that holds a path's last key, and that key."""
    *parts, name = path.split(".")
    for key in parts:
        config = config[key]
    return config, name


def undone(config: Mapping[str, Any], sidecar: Mapping[str, Any] | None) -> dict[str, Any]:
    """A config as it was before the extensions that its sidecar describes."""
    made = copy.deepcopy(dict(config))
    if sidecar is None:
        return made
    try:
        for path, value in sidecar["original"]["keys"].items():
            part, name = _parent(made, path)
            part[name] = value
        for path in sidecar["original"]["absent"]:
            part, name = _parent(made, path)
            part.pop(name, None)
    except (KeyError, TypeError) as error:
        raise ConfigError(
            f"milepost.json names keys that the config.json beside it does not have: {short(error)}; remove it"
        ) from None
    return made
