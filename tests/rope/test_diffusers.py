"""The readings of diffusion transformers against what diffusers' own models were measured to do; needs no diffusers."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest
import torch

from milepost.rope import ConfigError
from milepost.rope.engines import measured
from milepost.rope.engines.runtimes.diffusers import read_transformer
from tools.engines_docs import ANGLES, angles_apart

HELD = json.loads((resources.files(measured) / "diffusers-0.42.1.json").read_text(encoding="utf-8"))["models"]
AXIAL = [name for name in HELD if not name.startswith("LTX")]


@pytest.mark.parametrize("name", AXIAL)
def test_angles_are_those_of_the_model(name: str) -> None:
    """Cosine and sine of every pair and token: angles to 10^2 in float32, rounded to six places, are within 2e-5."""
    model = HELD[name]
    assert model["pairing"] == "interleaved" and model["heads_alike"]
    assert angles_apart(model) < ANGLES
    made = read_transformer(model["config"])
    places = made.places(**{key: model[key] for key in ("frames", "rows", "columns", "text")})
    assert len(places) == model["tokens"]
    known = torch.tensor([places[t] is not None for t in model["at"]])
    angle = torch.tensor(model["angles"][0], dtype=torch.float64)
    assert (angle[known].abs().amax(1) > 0.1).sum() > 5  # most tokens are really turned
    assert (angle[~known] == 0).all()


def test_ltx_has_other_frequencies_in_each_head() -> None:
    """Why it is refused: the first head and the second turn by different angles."""
    model = HELD["LTX-Video"]
    first, second = (torch.tensor(head) for head in model["angles"])
    assert not model["heads_alike"] and (first - second).abs().max() > 1
    with pytest.raises(ConfigError, match="each head turns by others"):
        read_transformer(model["config"])


def test_wan_shares_its_channels_out() -> None:
    assert "split=(44, 42, 42)" in read_transformer({"_class_name": "WanTransformer3DModel"}).encoding
    assert "split=(32, 32, 32)" in read_transformer(HELD["Wan, heads of 96"]["config"]).encoding


def test_a_planted_mistake_is_seen() -> None:
    """Another base, or places that are not counted from the middle, are far from what was measured."""
    model = HELD["Qwen-Image"]
    other = {**model, "config": {**model["config"], "axes_dims_rope": [32, 48, 48]}}
    assert angles_apart(other) > 0.5 and angles_apart({**model, "rows": model["rows"] + 2}) > 0.5


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"_class_name": "FluxTransformer3DModel"}, "did you mean FluxTransformer2DModel"),
        ({}, "is not a transformer that was measured"),
        ({"_class_name": "FluxTransformer2DModel", "axes_dims_rope": [16, 56]}, "3 even numbers"),
        ({"_class_name": "FluxTransformer2DModel", "axes_dims_rope": [16, 55, 57]}, "3 even numbers"),
        ({"_class_name": "WanTransformer3DModel", "attention_head_dim": "128"}, "even number of channels"),
    ],
)
def test_bad_configs_are_errors(config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_transformer(config)


def test_what_is_not_described_is_refused() -> None:
    with pytest.raises(ValueError, match="multiples of 32"):
        read_transformer({"_class_name": "ZImageTransformer2DModel"}).places(rows=3, columns=3, text=7)
