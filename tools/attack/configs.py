"""Configs: config.json and params.json of real models, changed; read, analysed, inspected and written for engines."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

from milepost.checkpoints import inspect
from milepost.rope import ENGINES, RopeSpec, export
from milepost.rope.analysis import analyse
from milepost.rope.config.config_json import KNOWN
from milepost.rope.config.families import FAMILIES
from milepost.rope.config.read_scaling import COMMON, KEYS
from tools.attack.mutation import as_json, changed, damaged
from tools.attack.seeds import real_configs

WORDS = (
    *KNOWN, *COMMON, *FAMILIES, *KEYS, *(key for keys in KEYS.values() for key in keys),
    "head_dim", "hidden_size", "num_attention_heads", "num_hidden_layers", "max_position_embeddings", "text_config",
    "layer_types", "sliding_window", "alibi", "no_rope_layers", "full_attention", "sliding_attention",
)  # fmt: skip


def prepare(folder: Path) -> Any:
    """A place for the file, and the configs that are changed."""
    return folder / "config.json", list(real_configs().values())


def attack(state: Any, rng: random.Random) -> None:
    """One config."""
    file, real = state
    config = changed(rng.choice(real), rng, WORDS)
    raw = as_json(config)
    file.write_bytes(damaged(raw, rng) if rng.random() < 0.1 else raw)
    target = rng.choice((None, 1, 4096, 10**6, 2**40))
    inspect(file, target_length=target, allow_unknown=rng.random() < 0.5)
    spec = RopeSpec.from_config(file, allow_unknown=True)
    trained = spec.trained or spec.served or 1
    for rope in spec.ropes().values():
        for length in (1, trained, 4 * trained):
            table = rope.spectrum(length)
            assert all(math.isfinite(w) and w >= 0 for w in table.frequencies), "a frequency that is none"
            assert 0 < table.temperature * rope.softmax < math.inf, "a temperature that is none"
    analyse(spec, target)
    export(spec, rng.choice(list(ENGINES)))
