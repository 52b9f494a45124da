"""Whatever a config holds, reading gives a spec whose tables can be made, or one sentence. `make fuzz` tries more of
them."""

from __future__ import annotations

import copy
import importlib
import json
import math
import os
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from milepost.rope import ConfigError, RopeSpec, read
from milepost.rope.config.config_json import KNOWN
from milepost.rope.config.families import FAMILIES
from milepost.rope.config.read_scaling import COMMON, KEYS

REAL: dict[str, dict[str, Any]] = importlib.import_module("real_configs").REAL
CASES = int(os.environ.get("MILEPOST_FUZZ", "1000"))
often = settings(max_examples=CASES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
seldom = settings(often, max_examples=CASES // 5)

numbers = st.one_of(
    st.integers(-2, 300),
    st.integers(),
    st.sampled_from([0, 1, 2, 64, 2**31, 2**63, 10**400, -1, 4096, 131072]),
    st.floats(),
    st.sampled_from([0.25, 0.5, 1.0, 1e-320, 5e-324, 1e300, 1.7e308, 1.0000000001]),
)
leaves = st.one_of(
    st.none(),
    st.booleans(),
    numbers,
    st.text(max_size=5),
    st.sampled_from([*KEYS, "su", "mrope", "full_attention", *FAMILIES]),
)
names = st.one_of(
    st.sampled_from(
        sorted(
            {
                *KNOWN,
                *COMMON,
                *(key for keys in KEYS.values() for key in keys),
                "layer_types",
                "num_hidden_layers",
                "head_dim",
                "hidden_size",
                "text_config",
            }
            | {
                "num_attention_heads",
                "max_position_embeddings",
                "model_type",
                "sliding_window",
                "alibi",
                "position_embedding_type",
                "per_layer_config",
            }
            | {
                "full_attention",
                "sliding_attention",
                "no_rope_layers",
                "sliding_window_pattern",
                "max_trained_positions",
                "attn_layer_indices",
                "block_types",
            }
        )
    ),
    st.text(max_size=5),
)
junk = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(names, inner, max_size=5)),
    max_leaves=8,
)


def places(config: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every path into a config."""
    inside = config.items() if isinstance(config, dict) else enumerate(config) if isinstance(config, list) else ()
    return [path, *(deeper for key, value in inside for deeper in places(value, (*path, key)))]


@st.composite
def mutated(draw: Any) -> dict[str, Any]:
    """A real config with one to four things dropped, replaced, added, or moved."""
    config = copy.deepcopy(REAL[draw(st.sampled_from(sorted(REAL)))])
    for _ in range(draw(st.integers(1, 4))):
        paths = [path for path in places(config) if path]
        if not paths:
            break
        path = draw(st.sampled_from(paths))
        parent = config
        for step in path[:-1]:
            parent = parent[step]
        action = draw(st.sampled_from(["drop", "junk", "number", "add", "double", "type"]))
        if action == "drop":
            del parent[path[-1]]
        elif action == "junk":
            parent[path[-1]] = draw(junk)
        elif action == "number":
            parent[path[-1]] = draw(numbers)
        elif action == "double" and isinstance(parent[path[-1]], list):
            parent[path[-1]] = parent[path[-1]] * 2
        elif action == "type":
            config["model_type"] = draw(st.sampled_from(sorted(FAMILIES)))
        elif isinstance(parent, dict):
            parent[draw(names)] = draw(junk)
    return config


def check(config: Any) -> None:
    for allow_unknown in (False, True):
        try:
            spec = RopeSpec.from_config(config, allow_unknown=allow_unknown)
        except ConfigError as error:
            said = str(error)
            assert said and "\n" not in said and len(said) < 1000
            continue
        trained = spec.trained or spec.served or 1
        for rope in spec.ropes().values():
            for length in (1, trained, 4 * trained):
                table = rope.spectrum(length)
                assert all(math.isfinite(w) and w >= 0 for w in table.frequencies)
                assert 0 < table.temperature * rope.softmax < math.inf
        assert all(isinstance(note, str) for note in (*spec.notes, *spec.sources.values()))


@pytest.mark.slow
@often
@given(mutated())
def test_a_real_config_with_mistakes_is_read_or_refused(config: dict[str, Any]) -> None:
    check(config)


@pytest.mark.slow
@seldom
@given(st.dictionaries(names, junk, max_size=8))
@example({})
@example(
    {
        "rope_scaling": {"rope_type": "yarn", "factor": 1e300, "original_max_position_embeddings": 1},
        "head_dim": 4,
        "rope_theta": 1e300,
    }
)
def test_any_json_is_read_or_refused(config: dict[str, Any]) -> None:
    check(config)


@pytest.mark.parametrize("name", sorted(REAL))
def test_the_text_of_a_config_cut_or_with_wrong_bytes_is_read_or_refused(name: str, tmp_path: Path) -> None:
    """Also cut inside of a number, where what is left is a config with another one."""
    whole = json.dumps(REAL[name], indent=1).encode()
    chance = random.Random(name)
    file = tmp_path / "config.json"
    for case in range(max(10, CASES // len(REAL))):
        text = bytearray(whole[: chance.randrange(len(whole))] if case % 2 else whole)
        for _ in range(chance.randrange(4)):
            if text:
                text[chance.randrange(len(text))] = chance.choice([chance.randrange(256), *b'0123456789{}[],:"'])
        file.write_bytes(bytes(text))
        try:
            read(file)
        except ConfigError as error:
            assert "\n" not in str(error)
