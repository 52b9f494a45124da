"""Families by running: configs with hostile sizes, measured on small random models of their classes, and inspected.

A valid config of every type is measured before, so that what a class imports is no time of an input.
"""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path
from typing import Any

import milepost
from milepost.checkpoints import inspect
from milepost.checkpoints.families import CannotBuild, find_measured
from milepost.checkpoints.families.answer import as_positions, as_spec
from milepost.rope import ConfigError
from milepost.rope.config.families import FAMILIES, NOT_ROTARY
from tools.attack.mutation import NUMBERS, as_json, changed, places

TYPES = (
    "kimi_linear", "glm5_next_text", "deepseek_v4", "ernie4_5_vl_moe_text", "nanochat", "beam", "esm", "moshi",
    "qwen2_5_vl_vision", "llama4_vision_model", "dinov3_vit", "wav2vec2-conformer", "seamless_m4t", "gemma3n_text",
    "zamba2",
)  # fmt: skip
"""Classes of many kinds: linear and sparse attention, experts, grids, sounds, encoders and decoders."""
PLAIN = ("gpt2", "bert", "opt", "bloom", "vit", "clip", "t5", "whisper", "mamba")
"""Types without rope keys; their sizes are those of their class."""
WORDS = (
    "num_hidden_layers", "n_layer", "num_layers", "depth", "image_size", "patch_size", "head_dim", "hidden_size",
    "max_position_embeddings", "layer_types", "vocab_size", "num_experts", "rope_parameters", "sliding_window",
)  # fmt: skip


def prepare(folder: Path) -> Any:
    """A place for the file, and valid configs, each measured once."""
    held = json.loads((Path(milepost.__file__).parent / "measured/families.json").read_text())["types"]
    configs = [{**held[name]["config"], "model_type": name} for name in TYPES]
    configs += [{"model_type": name, "hidden_size": 64} for name in PLAIN]
    for config in configs:
        with contextlib.suppress(CannotBuild):
            find_measured(config)
    return folder / "config.json", configs


def attack(state: Any, rng: random.Random) -> None:
    """One config."""
    file, configs = state
    valid = rng.choice(configs)
    config = changed({key: value for key, value in valid.items() if key != "model_type"}, rng, WORDS)
    config = config if isinstance(config, dict) else {}
    if rng.random() < 0.4:  # a number that is larger than any model's, or as large as the largest
        numbers = [(where, key) for where, key in places(config) if type(where[key]) is int]
        where, key = rng.choice(numbers or [(config, rng.choice(WORDS))])
        where[key] = rng.choice((100, 128, 1000, 4096, 10**5, *NUMBERS))
    config["model_type"] = valid["model_type"]
    if config["model_type"] in FAMILIES or config["model_type"] in NOT_ROTARY:  # those are read, and not measured
        with contextlib.suppress(CannotBuild, ConfigError):
            measured = find_measured(config)
            as_positions(measured, config, as_spec(measured, config))
    else:
        file.write_bytes(as_json(config))
        inspect(file, allow_unknown=True)
