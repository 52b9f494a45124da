"""The shipped measurements of every type of transformers with rope keys, against the reader of configs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import milepost
from milepost.checkpoints.families import cache
from milepost.checkpoints.families.compare import wrong
from milepost.rope import RopeSpec, export
from milepost.rope.config.families import FAMILIES, NOT_HELD, NOT_ROTARY, RUN
from milepost.rope.engines.parity import differences
from milepost.rope.engines.written import Refused
from milepost.rope.temperature import QueryTemperature
from tools.families import DOCS, NAMED

DATA = json.loads((Path(milepost.__file__).parent / "measured" / "families.json").read_text(encoding="utf-8"))
TYPES = DATA["types"]
RAN = sorted(name for name, data in TYPES.items() if data["measured"] is not None)


def test_no_type_is_unknown_and_few_are_not_measured() -> None:
    assert len(TYPES) == 239
    assert [name for name in TYPES if name not in FAMILIES and name not in NOT_HELD and name not in NOT_ROTARY] == []
    left = {name: data["why"] for name, data in TYPES.items() if data["measured"] is None}
    assert len(left) <= 0.05 * len(TYPES) and all(left.values())
    assert set(RUN) <= set(TYPES)
    page = DOCS.read_text(encoding="utf-8")
    assert all(f"\n| {name} |" in page for name in TYPES)
    assert "DIFFERENT" not in page and "UNKNOWN" not in page


@pytest.mark.parametrize("name", RAN)
def test_the_reader_says_what_was_measured(name: str) -> None:
    data = TYPES[name]
    faults = wrong(data["config"], cache.from_json(data["measured"]))
    assert bool(faults) == (name in NAMED), faults


def test_a_measurement_survives_its_file() -> None:
    for name in ("deepseek_v4", "beam", "gemma3_text", "hy_v4"):
        measured = cache.from_json(TYPES[name]["measured"])
        assert cache.from_json(json.loads(json.dumps(cache.to_json(measured)))) == measured


def test_a_wrong_reading_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, other in (("cohere", "llama"), ("mistral_large4_text", "hy_v4"), ("flint", "llama")):
        data = TYPES[name]
        monkeypatch.setitem(FAMILIES, name, FAMILIES[other])
        assert wrong(data["config"], cache.from_json(data["measured"]))


def test_parity_compares_temperatures_indexers_and_values() -> None:
    config = TYPES["glm_moe_dsa"]["config"]
    other = {**config, "model_type": "deepseek_v32"}
    (first, *_) = differences(RopeSpec.from_config(config), RopeSpec.from_config(other))
    assert first.what == "the indexer's pairing"
    beam = RopeSpec.from_config(TYPES["beam"]["config"])
    assert dict(beam.temperatures) == {"full_attention": QueryTemperature("beam", 0.1, 2048)}
    assert beam.layer(5) is None
    for engine in ("megatron", "torchtitan"):
        with pytest.raises(Refused, match="no words for what queries are multiplied by according to their position"):
            export(beam, engine)


def test_an_interval_of_layers_without_rope_is_taken_at_its_word_for_unknown_types() -> None:
    config = {
        "model_type": "stranger", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 8,
        "rope_theta": 10000.0, "no_rope_layer_interval": 4, "max_position_embeddings": 64,
    }  # fmt: skip
    spec = RopeSpec.from_config(config)
    assert [n for n in range(8) if spec.layer(n) is None] == [3, 7]


@pytest.mark.parametrize(
    ("form", "a", "n", "p", "tau"),
    [
        ("llama4", 0.1, 8192, 8190, 1.0),
        ("llama4", 0.1, 8192, 8191, 1.0693147180559945),
        ("mistral", 0.1, 16384, 16383, 1.0),
        ("mistral", 0.1, 16384, 16384, 1.0693147180559945),
        ("inkling", 0.1, 128, 127, 1.0),
        ("inkling", 0.1, 128, 1279, 1.2302585092994046),
        ("beam", 0.1, 2048, 8191, 1.1746189430880190),
    ],
)
def test_temperatures_are_those_that_models_publish(form: str, a: float, n: int, p: int, tau: float) -> None:
    assert QueryTemperature(form, a, n).at(p) == pytest.approx(tau, rel=1e-12)  # type: ignore[arg-type]
