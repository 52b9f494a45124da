"""Bad configs: one sentence each, with the key and the value."""

from __future__ import annotations

import importlib
import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from milepost.rope import ConfigError, RopeSpec

real: Any = importlib.import_module("real_configs")
LLAMA, YARN, LLAMA_31, PHI, GEMMA = (
    real.LLAMA_2,
    real.YARN_LLAMA_2,
    real.LLAMA_31,
    real.PHI_3_128K,
    real.GEMMA_3["text_config"],
)


def refused(config: Any, **kwargs: Any) -> str:
    """The one sentence."""
    with pytest.raises(ConfigError) as caught:
        RopeSpec.from_config(config, **kwargs)
    said = str(caught.value)
    assert said.strip() and "\n" not in said and len(said) < 500
    return said


def scaled(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A config with some keys of its rope_scaling changed."""
    return {**config, "rope_scaling": {**(config.get("rope_scaling") or {}), **changes}}


HUGE = 10**400
CASES: dict[str, tuple[dict[str, Any], str]] = {
    # wrong types
    "theta a text": ({**LLAMA, "rope_theta": "10000"}, "rope_theta must be a finite number, got '10000'"),
    "theta a flag": ({**LLAMA, "rope_theta": True}, "rope_theta must be a finite number, got True"),
    "theta a list": ({**LLAMA, "rope_theta": [1e4]}, "rope_theta must be a finite number, got [10000.0]"),
    "scaling a text": (
        {**LLAMA, "rope_scaling": "yarn"},
        "rope_scaling must be a mapping of names to values, got 'yarn'",
    ),
    "scaling a list": ({**LLAMA, "rope_scaling": [4]}, "rope_scaling must be a mapping of names to values, got [4]"),
    "type a number": (scaled(LLAMA, rope_type=3), "rope_scaling.rope_type must be a text, got 3"),
    "model type a number": ({**LLAMA, "model_type": 3}, "model_type must be a text, got 3"),
    "heads a text": ({**LLAMA, "num_attention_heads": "32"}, "num_attention_heads must be a whole number from 1 to"),
    "heads none": ({**LLAMA, "num_attention_heads": 0}, "num_attention_heads must be a whole number from 1"),
    "heads uneven": (
        {**LLAMA, "num_attention_heads": 33},
        "hidden_size = 4096 over num_attention_heads = 33 is no size of a head: say head_dim",
    ),
    "head odd": ({**LLAMA, "head_dim": 127}, "127 of 127 channels can't be turned in pairs"),
    "truncate a number": (scaled(YARN, truncate=1), "rope_scaling.truncate must be true or false, got 1"),
    "length not whole": (
        {**LLAMA, "max_position_embeddings": 4096.5},
        "max_position_embeddings must be a whole number from 1 to 1099511627776, got 4096.5",
    ),
    "alibi a text": ({**real.FALCON, "alibi": "yes"}, "alibi must be true or false, got 'yes'"),
    # no numbers
    "theta nan": ({**LLAMA, "rope_theta": math.nan}, "rope_theta must be a finite number, got nan"),
    "theta inf": ({**LLAMA, "rope_theta": math.inf}, "rope_theta must be a finite number, got inf"),
    "theta 0": ({**LLAMA, "rope_theta": 0}, "rope_theta must be above 1, got 0"),
    "theta huge": ({**LLAMA, "rope_theta": HUGE}, "rope_theta must be a finite number, got 1000"),
    "theta too large": (
        {**LLAMA, "rope_theta": 1e301},
        "base must be a finite number above 1 (at most 1e300), got 1e+301",
    ),
    "length huge": ({**LLAMA, "max_position_embeddings": HUGE}, "max_position_embeddings must be a whole number"),
    "length negative": (
        {**LLAMA, "max_position_embeddings": -4096},
        "max_position_embeddings must be a whole number from 1 to 1099511627776, got -4096",
    ),
    "layers huge": ({**LLAMA, "num_hidden_layers": HUGE}, "num_hidden_layers must be a whole number from 1 to 10000"),
    "factor nan": (scaled(YARN, factor=math.nan), "rope_scaling.factor must be a finite number, got nan"),
    "beta nan": (scaled(YARN, beta_fast=math.nan), "rope_scaling.beta_fast must be a finite number, got nan"),
    "list nan": (
        scaled(PHI, short_factor=[math.nan] * 48),
        "rope_scaling.short_factor must be a list of finite numbers above 0, got nan",
    ),
    # factors
    "factor 0": (scaled(YARN, factor=0), "rope_scaling.factor must be above 0, got 0"),
    "factor negative": (scaled(YARN, factor=-4.0), "rope_scaling.factor must be above 0, got -4"),
    "factor inverse": (
        scaled(YARN, factor=0.25),
        "rope_scaling.factor = 0.25 would shrink the context; a factor above 1 means longer: did you mean 4?",
    ),
    "linear inverse": (scaled(LLAMA, type="linear", factor=0.5), "did you mean 2?"),
    "linear without": (scaled(LLAMA, type="linear"), "rope type linear needs rope_scaling.factor, which is not there"),
    "dynamic without": (
        scaled(LLAMA, type="dynamic"),
        "rope type dynamic needs rope_scaling.factor, which is not there",
    ),
    "llama3 without": (
        scaled(LLAMA_31, low_freq_factor=None),
        "rope type llama3 needs rope_scaling.low_freq_factor, which is not there",
    ),
    "llama3 crossed": (
        scaled(LLAMA_31, low_freq_factor=8.0),
        "llama3 wants 0 < low_freq_factor <= high_freq_factor, got 8.0 and 4.0",
    ),
    "yarn crossed": (
        scaled(YARN, beta_fast=1.0, beta_slow=32.0),
        "yarn wants 0 < beta_slow <= beta_fast, in turns over the trained length, got 32.0 and 1.0",
    ),
    "share 0": ({**real.PHI_2, "partial_rotary_factor": 0}, "partial_rotary_factor must be above 0, got 0"),
    "share 2": ({**real.PHI_2, "partial_rotary_factor": 2.0}, "partial_rotary_factor = 2 is more than the whole head"),
    "share odd": (
        {**real.PHI_2, "partial_rotary_factor": 0.02},
        "1 of 80 channels can't be turned in pairs (from partial_rotary_factor)",
    ),
    "ratio 0.5": ({**LLAMA, "rope_condense_ratio": 0.5}, "rope_condense_ratio must be at least 1, got 0.5"),
    # lists
    "list short": (
        scaled(PHI, long_factor=[1.0] * 47),
        "rope_scaling.long_factor has 47 numbers, and there are 48 pairs to turn: it needs one for each",
    ),
    "list long": (
        scaled(PHI, short_factor=[1.0] * 96),
        "rope_scaling.short_factor has 96 numbers, and there are 48 pairs to turn",
    ),
    "list empty": (
        scaled(PHI, short_factor=[]),
        "rope_scaling.short_factor must be a list of finite numbers above 0, got []",
    ),
    "list of texts": (
        scaled(PHI, short_factor=["1"] * 48),
        "rope_scaling.short_factor must be a list of finite numbers above 0, got '1'",
    ),
    "list missing": (
        scaled(PHI, long_factor=None),
        "rope type longrope needs rope_scaling.long_factor, which is not there",
    ),
    "sections": (
        scaled(real.QWEN_2_VL, mrope_section=[16, 24, 23]),
        "must add up to 64 pairs, got [16, 24, 23], which is 63",
    ),
    "sections texts": (
        scaled(real.QWEN_2_VL, mrope_section=["a"]),
        "rope_scaling.mrope_section must be whole numbers of pairs, got ['a']",
    ),
    "sections negative": (
        scaled(real.QWEN_2_VL, mrope_section=[72, -8]),
        "rope_scaling.mrope_section must be whole numbers of pairs, got [72, -8]",
    ),
    # layers
    "kinds short": (
        {**real.GPT_OSS, "layer_types": ["full_attention"] * 23},
        "the config lists 23 kinds of layers, and num_hidden_layers = 24",
    ),
    "kinds a text": (
        {**real.GPT_OSS, "layer_types": "full_attention"},
        "layer_types must be a list, got 'full_attention'",
    ),
    "kinds misspelt": (
        {**real.GPT_OSS, "layer_types": ["ful_attention"] * 24},
        "layer_types holds 'ful_attention', which is no kind of layer",
    ),
    "kinds numbers": ({**real.GPT_OSS, "layer_types": [1] * 24}, "layer_types holds 1, which is no kind of layer"),
    "kinds lists": (
        {**real.GPT_OSS, "layer_types": [["full_attention"]] * 24},
        "layer_types holds ['full_attention'], which is no kind of layer",
    ),
    "no layer turns": (
        {**real.GPT_OSS, "layer_types": ["linear_attention"] * 24},
        "no layer of this model turns: its layers are ['linear_attention']",
    ),
    "no_rope short": (
        {**real.SMOLLM_3, "no_rope_layers": [1, 1, 1, 0]},
        "the config lists 4 kinds of layers, and num_hidden_layers = 36",
    ),
    "no_rope words": (
        {**real.SMOLLM_3, "no_rope_layers": ["yes"] * 36},
        "no_rope_layers holds 'yes'; it has 1 for a layer that turns",
    ),
    "pattern 0": ({**GEMMA, "sliding_window_pattern": 0}, "sliding_window_pattern must be a whole number from 1"),
    "kind without rope": (
        {
            **real.GPT_OSS,
            "rope_scaling": None,
            "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e4}},
        },
        "rope_parameters is for layers of kinds ['full_attention'], and there are layers of kind 'sliding_attention'",
    ),
    "flat for kinds": (
        {**GEMMA, "rope_scaling": None, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        "one dictionary for each kind of layer",
    ),
    "beside kinds": (
        {**LLAMA, "rope_parameters": {"full_attention": {"rope_theta": 1e4}, "factor": 2.0}},
        "rope_parameters.factor = 2.0 stands beside dictionaries for kinds of layers: put it inside of them",
    ),
    # contradictions
    "two thetas": (
        scaled({**LLAMA, "rope_theta": 1e4}, rope_theta=1e6),
        "contradictory keys: rope_scaling.rope_theta = 1000000.0, rope_theta = 10000.0",
    ),
    "two names": (
        {**real.PYTHIA, "rope_theta": 5e5},
        "contradictory keys: rope_theta = 500000.0, rotary_emb_base = 10000.0",
    ),
    "two types": (
        scaled(YARN, rope_type="linear"),
        "contradictory keys: rope_scaling.rope_type = 'linear', rope_scaling.type = 'yarn'",
    ),
    "two dictionaries": (
        {**YARN, "rope_parameters": {"rope_type": "default"}},
        "rope_parameters and rope_scaling are both there, and differ",
    ),
    "two factors on cos": (
        scaled(YARN, attention_factor=1.0, attn_factor=1.0),
        "rope_scaling.attention_factor = 1 is the factor itself (transformers), "
        "rope_scaling.attn_factor = 1 multiplies the default one (vLLM)",
    ),
    "two sizes": (
        {**real.PHI_2, "rotary_dim": 40},
        "contradictory keys: rotary_dim = 40, and partial_rotary_factor = 0.4 of 80 is 32",
    ),
    "two parts": (
        {**real.DEEPSEEK_V3, "partial_rotary_factor": 0.5},
        "qk_rope_head_dim = 64 is the part that turns, and partial_rotary_factor = 0.5",
    ),
    "factor and lengths": (
        scaled(YARN, factor=2.0),
        "rope_scaling.factor = 2 times original_max_position_embeddings = 4096 is less than max_position_embeddings",
    ),
    # unknown
    "unknown type": (
        scaled(LLAMA, type="ntk-aware", factor=2.0),
        "rope_scaling.type = 'ntk-aware' is no rope type; there are default, linear, dynamic",
    ),
    "unknown key": (scaled(YARN, betafast=32), "unknown key rope_scaling.betafast = 32 for rope type yarn; it has"),
    "key of another type": (
        scaled(LLAMA, type="linear", factor=2.0, beta_fast=32),
        "unknown key rope_scaling.beta_fast = 32 for rope type linear; it has factor",
    ),
    "unknown beside": (
        {**LLAMA, "rope_theta_scale": 4},
        "unknown key rope_theta_scale = 4, whose name says that it is about rotary positions",
    ),
    "use_dynamic_ntk": ({**LLAMA, "use_dynamic_ntk": True}, "unknown key use_dynamic_ntk = True"),
    "a base for each layer": ({**LLAMA, "layer_rope_theta": [1e4]}, "unknown key layer_rope_theta = [10000.0]"),
    "no sizes": ({"model_type": "llama"}, "the head size is not known"),
    "empty": (
        {},
        "the head size is not known: the config has neither head_dim, nor hidden_size and num_attention_heads",
    ),
    "no base": ({"head_dim": 64}, "the base is not known: the config has no rope_theta"),
    "no lengths": (
        scaled({"model_type": "llama", "head_dim": 64}, type="yarn", factor=4.0),
        "rope_scaling has no original_max_position_embeddings",
    ),
    # no rotary positions
    "bloom": (
        {"model_type": "bloom", "n_head": 8, "hidden_size": 64},
        "this model has no rotary positions: model_type 'bloom' has ALiBi",
    ),
    "jamba": ({"model_type": "jamba", "hidden_size": 64}, "model_type 'jamba' has attention without positions (NoPE)"),
    "absolute": (
        {**LLAMA, "position_embedding_type": "absolute"},
        "this model has no rotary positions: position_embedding_type = 'absolute'",
    ),
    "no channels": (
        {**real.DEEPSEEK_V3, "qk_rope_head_dim": 0},
        "this model has no rotary positions: qk_rope_head_dim = 0",
    ),
    "not held": (
        {**LLAMA, "model_type": "nanochat"},
        "model_type 'nanochat' turns pairs the other way round, by minus the angle: a RopeSpec can't hold that",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_bad_config_is_refused_with_its_key_and_value(name: str) -> None:
    config, words = CASES[name]
    assert words in refused(config)


UNKNOWN = [
    "unknown key",
    "key of another type",
    "unknown beside",
    "use_dynamic_ntk",
    "a base for each layer",
    "factor and lengths",
]


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_unknown_is_a_note_when_that_is_allowed(name: str) -> None:
    config, words = CASES[name]
    spec = RopeSpec.from_config(config, allow_unknown=True)
    assert any(words.split(" = ")[0] in note for note in spec.notes)


def test_what_is_wrong_stays_wrong_when_the_unknown_is_allowed() -> None:
    for name in set(CASES) - set(UNKNOWN):
        refused(CASES[name][0], allow_unknown=True)


@pytest.mark.parametrize(
    "config", [{1: 2}, {**LLAMA, 7: 1}, scaled(LLAMA, **{"type": "default"}) | {"rope_scaling": {3: 4}}]
)
def test_keys_are_texts(config: Any) -> None:
    assert "are texts, got" in refused(config)


@pytest.mark.parametrize("config", [3, None, [], 1.5, b"config.json"])
def test_what_is_no_config_and_no_path(config: Any) -> None:
    assert "a config is a mapping, or a path; got" in refused(config)


def test_deep_nesting() -> None:
    deep: Any = {}
    for _ in range(5000):
        deep = {"text_config": deep, "x": [deep]}
    refused(deep)
    lists: Any = []
    for _ in range(5000):
        lists = [lists]
    assert "rope_theta must be a finite number" in refused({**LLAMA, "rope_theta": lists})


# --------------------------------------------------------------------------------------------------------- files


def written(folder: Path, text: str | bytes) -> Path:
    file = folder / "config.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


WHOLE = json.dumps(LLAMA_31, indent=1)


def test_a_file_cut_short_says_where(tmp_path: Path) -> None:
    for cut in (1, 10, len(WHOLE) // 2, len(WHOLE) - 1):
        assert "config.json is not whole JSON:" in refused(written(tmp_path, WHOLE[:cut]))
    assert "at line 1, column 1" in refused(written(tmp_path, ""))


TEXTS = {
    '{"a": 1, "a": 2}': "has the key 'a' twice",
    '{"rope_scaling": {"factor": 2, "factor": 4}}': "has the key 'factor' twice",
    '{"rope_theta": NaN}': "holds NaN, which is no number",
    '{"rope_theta": -Infinity}': "holds -Infinity, which is no number",
    "[1, 2]": "must hold a JSON object, got [1, 2]",
    "null": "must hold a JSON object, got None",
    "[" * 100000: "can't be read as JSON: RecursionError",
    '{"rope_theta": ' + "1" * 10000 + "}": "can't be read as JSON: ValueError",
    '{"head_dim": 64, "rope_theta": 1e400}': "rope_theta must be a finite number, got inf",
}


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:20])
def test_a_file_that_holds_no_config(text: str, tmp_path: Path) -> None:
    assert TEXTS[text] in refused(written(tmp_path, text))


def test_a_file_of_bytes_is_no_text(tmp_path: Path) -> None:
    assert "is not a text file: a config is JSON" in refused(written(tmp_path, b"\xff\xfe\x00{"))


def test_a_file_of_100_mb_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    with file.open("wb") as out:
        out.truncate(100_000_000)
    assert "has 100 MB, and a config has a few kB: is it the right file?" in refused(file)


def test_a_folder_without_a_config_says_what_it_looked_for(tmp_path: Path) -> None:
    assert "holds none of config.json, params.json, *.gguf" in refused(tmp_path)


def test_no_such_file(tmp_path: Path) -> None:
    assert "there is no file or folder" in refused(tmp_path / "nothing.json")
    assert "there is no file or folder" in refused("./nothing")
    assert "there is no file or folder" in refused("a\0b")


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    """A broken link and a folder in the place of a file: what every user can't read, root or not."""
    os.symlink(tmp_path / "gone", tmp_path / "config.json")
    refused(tmp_path)
    other = tmp_path / "model"
    (other / "config.json").mkdir(parents=True)
    assert "holds none of" in refused(other)


@pytest.mark.parametrize("kind", ["linear", "yarn", "dynamic"])
@pytest.mark.parametrize("factor", [1e308, 1e200, 1e15])
def test_a_factor_past_every_text_is_a_sentence(kind, factor):
    config = {
        "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "max_position_embeddings": 128,
        "rope_theta": 1e4, "rope_scaling": {"rope_type": kind, "factor": factor},
    }  # fmt: skip
    try:
        spec = RopeSpec.from_config(config)
        spec.to_json()
    except ValueError as error:
        assert str(error)
    else:
        assert kind == "dynamic"


def test_what_a_sentence_quotes_of_a_foreign_file_is_bounded():
    with pytest.raises(ConfigError) as caught:
        RopeSpec.from_config({**LLAMA, "rope_scaling": {"type": "mrope", "mrope_section": [4096] * 4000}})
    words = str(caught.value)
    assert "must add up to 64 pairs, got [4096, " in words and " ... " in words and len(words) <= 1200
    assert str(ConfigError("a" * 1200)) == "a" * 1200 and str(ConfigError("x" + "a" * 5000 + "y"))[-1] == "y"
