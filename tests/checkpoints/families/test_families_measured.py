"""Families by running: what a small random model of a class does, measured, is what its code says; and planted changes
of that code show."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from milepost.checkpoints import inspect
from milepost.checkpoints.families import CannotBuild, cache, find_measured, small
from milepost.checkpoints.families.answer import as_spec
from milepost.checkpoints.families.measure import MeasuredFamily, close, measure
from milepost.checkpoints.inspection.families import READERS
from milepost.checkpoints.model.quiet import quiet
from milepost.rope import ConfigError, RopeSpec
from milepost.rope.config.families import FAMILIES, NOT_ROTARY
from milepost.rope.engines.parity import differences

LLAMA = {
    "model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": 2, "intermediate_size": 64, "max_position_embeddings": 4096, "vocab_size": 100,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(**config: Any) -> MeasuredFamily:
    with quiet():
        return measure(config)


def test_a_llama_is_measured_as_its_config_says() -> None:
    measured = run(**LLAMA)
    assert [layer.number for layer in measured.layers] == [0, 1]
    for layer in measured.layers:
        assert layer.turn is not None and layer.softmax == 1.0 and not layer.temperature and not layer.values
        assert (layer.turn.size, layer.turn.width, layer.turn.pairing, layer.turn.base) == (64, 64, "half", 500000.0)
    assert differences(as_spec(measured, LLAMA), RopeSpec.from_config(LLAMA)) == []
    assert measured.sentence.startswith("measured on a random model of class LlamaModel of transformers ")


def test_scaling_has_the_name_that_the_config_gives_it() -> None:
    yarn = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 1024}
    config = {**LLAMA, "rope_parameters": yarn}
    spec = as_spec(run(**config), config)
    assert "yarn" in repr(spec.main.scaling)
    assert differences(spec, RopeSpec.from_config(config)) == []


def test_hunyuan_ocrs_own_words_mean_what_its_class_does() -> None:
    """xdrope with alpha 1000: a fixed base, and the four axes of text are one."""
    config = {
        **LLAMA, "model_type": "hunyuan_vl_text", "head_dim": 64, "rope_theta": 10000.0,
        "rope_scaling": {
            "alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
            "type": "xdrope", "xdrope_section": [8, 8, 8, 8],
        },
    }  # fmt: skip
    del config["rope_parameters"]
    read = RopeSpec.from_config(config)
    base = 10000.0 * 1000 ** (64 / 62)
    for layer in run(**config).layers:
        assert layer.turn is not None and (layer.turn.size, layer.turn.pairing) == (64, "half")
        assert close(layer.turn.frequencies, tuple(base ** (-pair / 32) for pair in range(32)), layer.turn.error)
    assert math.isclose(read.main.spectrum().base, base, rel_tol=1e-12) and read.main.sections == (8, 8, 8, 8)


@pytest.mark.parametrize(("plant", "what"), [("minus", "backwards"), ("twice", "base"), ("one", "half")])
def test_a_planted_change_of_the_rotary_function_shows(plant: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.llama import modeling_llama

    right = modeling_llama.apply_rotary_pos_emb

    def wrong(q: Any, k: Any, cos: Any, sin: Any, unsqueeze_dim: int = 1) -> Any:
        if plant == "minus":
            return right(q, k, cos, -sin, unsqueeze_dim)
        if plant == "twice":
            return right(*right(q, k, cos, sin, unsqueeze_dim), cos, sin, unsqueeze_dim)
        return right(q, k, cos, sin, unsqueeze_dim)[0], k

    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", wrong)
    turn = run(**LLAMA).layers[0].turn
    assert turn is not None
    assert turn.backwards == (plant == "minus")
    if plant == "twice":
        assert turn.base is None and math.isclose(turn.frequencies[0], 2.0, rel_tol=1e-5)


def test_layers_that_stand_still_and_temperatures_by_position_are_seen() -> None:
    """Beam: every 6th layer has no rope, and a temperature (1 + (p + 1) / 2048)^0.1 instead."""
    measured = run(model_type="beam", num_hidden_layers=8)
    still = [layer for layer in measured.layers if layer.turn is None]
    assert [layer.number for layer in still] == [5, 7]  # the last layer stands still too
    for p, tau in still[0].temperature:
        at_0 = (1 + 1 / 2048) ** 0.1
        assert math.isclose(tau, (1 + (p + 1) / 2048) ** 0.1 / at_0, rel_tol=1e-5)
    assert all(not layer.temperature and layer.window == "sliding_window" for layer in measured.layers if layer.turn)


@pytest.mark.slow
def test_an_indexer_and_turned_values_are_seen() -> None:
    sparse = run(model_type="deepseek_v32", num_hidden_layers=2, first_k_dense_replace=2).layers[0]
    assert sparse.turn is not None and sparse.indexer is not None
    assert (sparse.turn.pairing, sparse.indexer.pairing, sparse.values) == ("interleaved", "half", False)
    back = run(model_type="deepseek_v4", num_hidden_layers=2, layer_types=["sliding_attention"] * 2).layers[0]
    assert back.turn is not None
    assert back.values
    assert (back.turn.first, back.turn.size, back.turn.width) == (448, 64, 512)
    assert run(model_type="nanochat", num_hidden_layers=1).layers[0].turn.backwards  # type: ignore[union-attr]


def test_a_learned_table_is_seen() -> None:
    measured = run(model_type="gpt2", n_layer=2)
    assert measured.tables == (("wpe", 1024, 0),)
    assert measured.added and not measured.turns
    assert (
        run(model_type="opt", num_hidden_layers=1, word_embed_proj_dim=768).tables[0][2] == 2
    )  # rows before position 0


def test_a_bias_beside_the_mask_is_seen_and_gives_no_text_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inkling's relative logits come to attention as position_bias; it has a reader, which is taken away here."""
    config = {
        "model_type": "inkling_text", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2, "swa_head_dim": 16, "num_hidden_layers": 2,
        "intermediate_size": 64, "mlp_layer_types": ["dense"] * 2, "vocab_size": 100, "max_position_embeddings": 512,
    }  # fmt: skip
    monkeypatch.delitem(READERS, "inkling_text")
    monkeypatch.delitem(NOT_ROTARY, "inkling_text")
    found = inspect(write(config, tmp_path))
    assert found.where == ("logits, by position",) and [layer.scheme for layer in found.layers] == ["bias"] * 2
    assert found.text == "" and any("logits of 2 layers get a bias besides" in warning for warning in found.warnings)


# -- inspect and spec of a type that no list knows ---------------------------------------------------------------------


@pytest.fixture
def unknown(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Llama's config, and no list that knows llama."""
    monkeypatch.delitem(FAMILIES, "llama")
    yield LLAMA


def write(config: dict[str, Any], folder: Path) -> str:
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder / "config.json")


def test_inspect_measures_a_type_that_no_list_knows_once(
    unknown: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(unknown, tmp_path)
    read = inspect(path)
    assert read.known
    assert "measured on a random model of class LlamaModel" in read.sources["layers"]
    assert [(layer.rotary, layer.base, layer.pairing) for layer in read.layers] == [(64, 500000.0, "half")] * 2
    monkeypatch.setattr(small, "builds", None)  # the second time nothing is built
    again = inspect(path)
    assert (again.layers, again.sources) == (read.layers, read.sources)
    (file,) = cache.folder().glob("*.json")
    assert file.stat().st_size < 4096
    file.write_text(file.read_text()[:100])
    assert cache.load(file) is None  # damaged: measured anew


def test_without_transformers_the_answer_is_what_the_words_say(
    unknown: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr(small.metadata, "version", _not_there)
    read = inspect(write(unknown, tmp_path))
    assert not read.known
    assert any("transformers is not installed" in warning for warning in read.warnings)
    assert read.layers[0].base == 500000.0  # as the config has it
    assert not cache.folder().exists()


def _not_there(name: str) -> str:
    raise small.metadata.PackageNotFoundError(name)


def test_code_of_a_checkpoint_is_never_run(unknown: dict[str, Any], tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    (tmp_path / "modeling_own.py").write_text(f"open({str(marker)!r}, 'w')")
    read = inspect(write({**unknown, "auto_map": {"AutoModel": "modeling_own.Own"}}, tmp_path))
    assert not marker.exists() and not read.known
    assert any("code of its own, which is never run" in warning for warning in read.warnings)
    assert not cache.folder().exists()


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"model_type": "no_such_type"}, "transformers has no model type 'no_such_type'"),
        ({**LLAMA, "num_hidden_layers": 5000}, "it has 5000 layers, and 128 are the most that are built"),
        ({**LLAMA, "hidden_size": "wide"}, "transformers can't read this config as 'llama'"),
        ({**LLAMA, "head_dim": 1 << 20}, "million parameters even with small widths"),
    ],
)
def test_a_class_that_cannot_be_built_says_why(config: dict[str, Any], why: str) -> None:
    with pytest.raises(CannotBuild, match=why), quiet():
        find_measured(config)
    assert not cache.folder().exists()  # nothing half-cached


def test_what_a_spec_cannot_hold_is_said() -> None:
    with pytest.raises(ConfigError, match=r"turns by minus the angle .*: a RopeSpec can't hold that"):
        as_spec(run(model_type="nanochat", num_hidden_layers=1), {"model_type": "nanochat", "num_hidden_layers": 1})


def test_whether_a_cache_may_be_shifted(tmp_path: Path) -> None:
    assert inspect(write(LLAMA, tmp_path)).cache == "cut; and shifted, if keys are turned back by the distance"
    dynamic = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
    assert inspect(write({**LLAMA, "rope_parameters": dynamic}, tmp_path)).cache.startswith("no: frequencies depend")
    assert inspect(write({"model_type": "gpt2"}, tmp_path)).cache.startswith("no: a position was added")
    assert inspect(write({"model_type": "bloom", "n_layer": 2, "n_head": 4}, tmp_path)).cache.startswith(
        "cut and shifted"
    )
