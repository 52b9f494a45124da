"""The cases of one engine: every config of configs.json as it is, and everything that `export` writes for it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from collect import digest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
METHODS = ("as it is", "yarn", "linear", "llama3", "ntk")


def reading(configs: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The configs, each with the lengths that matter to it."""
    from milepost.rope import read
    from milepost.rope.config.keys import ConfigError

    cases = []
    for name, config in configs.items():
        try:
            spec = read(config)
            length = spec.main.trained or spec.trained or spec.served or 4096
        except ConfigError:
            length = 4096
        of = digest(json.dumps(config), 8)
        cases.append({"id": name, "of": of, "config": config, "lengths": [length, length + 1, 4 * length]})
    return cases


def exported(spec: Any, method: str) -> Any:
    """The spec that is exported: as it is, or for four times its length."""
    return spec if method == "as it is" else spec.extended(4 * (spec.trained or 0), method)


def exports(
    engine: str, version: str, configs: dict[str, dict[str, Any]]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """What export writes for each config and method, and why it refuses where it does."""
    from milepost.rope import export, read
    from milepost.rope.config.keys import ConfigError
    from milepost.rope.engines.written import Refused

    cases, refused = [], {}
    small = [name for name in configs if name.endswith(" default flat")]  # these are quick, so they are first
    for name in [*small, *(name for name in configs if name.startswith(("tests", "golden")))]:
        config = configs[name]
        for method in METHODS:
            key = f"{name} | {method}"
            try:
                spec = exported(read(config), method)
                written = export(spec, engine, version=version)
            except Refused as reason:
                refused[key] = str(reason)
                continue
            except (ConfigError, ValueError):  # nothing to extend, or read by nobody
                continue
            length = spec.trained or spec.served or 4096
            case = {"id": f"export {key}", "of": digest(written.text), "lengths": [length, length + 1, 4 * length]}
            case["text"] = written.text
            if engine == "llama.cpp":  # flags are for a file of the model before any scaling
                always_yarn = spec.model == "ministral3"  # its converter makes no other file of it
                case |= {"config": config if always_yarn else before_scaling(config), "command": written.text}
            elif engine == "torchtitan":
                case["still"] = [spec.layer(n) is None for n in range(len(spec.layers))] or [False]
            elif engine == "megatron":
                case["depth"] = len(spec.layers) or 1
            elif written.config and not written.text.startswith(("vllm", "python")):
                case["config"] = pasted(config, written.config)
            else:
                case |= {"config": config, "command": written.text}
            cases.append(case)
    return cases, refused


def before_scaling(config: dict[str, Any]) -> dict[str, Any]:
    """A config without its scaling: the base, the share that turns and the sections of M-RoPE stay."""
    from milepost.rope.config.config_json import TEXT

    part = next((n for n in TEXT if isinstance(config.get(n), dict)), None)
    if part is not None:
        return {**config, part: before_scaling(config[part])}

    def plain(given: dict[str, Any]) -> dict[str, Any]:
        if any(isinstance(value, dict) for value in given.values()):
            return {kind: plain(value) if isinstance(value, dict) else value for kind, value in given.items()}
        stay = ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")
        return {"rope_type": "default", **{key: value for key, value in given.items() if key in stay}}

    dictionaries = {key: plain(config[key]) for key in ("rope_scaling", "rope_parameters") if config.get(key)}
    older = ("rope_condense_ratio", "rotary_scaling_factor")
    return {key: value for key, value in config.items() if key not in older} | dictionaries


def pasted(config: dict[str, Any], keys: Any) -> dict[str, Any]:
    """A config with the keys of its text model's rotation replaced."""
    from milepost.rope.config.config_json import ROPE, TEXT

    part = next((n for n in TEXT if isinstance(config.get(n), dict)), None)
    if part is not None:
        return {**config, part: pasted(config[part], keys)}
    older = (*ROPE, "rotary_emb_base", "rotary_pct", "global_rope_theta", "local_rope_theta", "rope_local_base_freq",
             "partial_rotary_factor")  # fmt: skip
    return {**{k: v for k, v in config.items() if k not in older}, **keys}
