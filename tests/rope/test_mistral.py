"""params.json of Mistral and of Meta: what is read, what is refused, and the same model's config.json."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost.rope import read
from milepost.rope.config import params_json
from milepost.rope.config.keys import ConfigError
from milepost.rope.engines.parity import differences
from milepost.scaling import Llama3, YaRN

NEMO = {
    "dim": 5120,
    "n_layers": 40,
    "head_dim": 128,
    "hidden_dim": 14336,
    "n_heads": 32,
    "n_kv_heads": 8,
    "norm_eps": 1e-5,
    "rope_theta": 1e6,
}
YARN = {"factor": 16.0, "original_max_position_embeddings": 16384, "alpha": 1.0, "beta": 32.0, "apply_scale": False}
MINISTRAL = {
    **NEMO,
    "max_position_embeddings": 262144,
    "yarn": YARN,
    "llama_4_scaling": {"beta": 0.1, "original_max_position_embeddings": 16384},
}
LLAMA31 = {
    "dim": 4096,
    "n_layers": 32,
    "n_heads": 32,
    "n_kv_heads": 8,
    "vocab_size": 128256,
    "ffn_dim_multiplier": 1.3,
    "rope_theta": 5e5,
}
SCALED = {**LLAMA31, "use_scaled_rope": True}


def test_params_json_is_told_from_config_json():
    assert params_json.is_one(NEMO) and params_json.is_one(LLAMA31)
    assert not params_json.is_one({**NEMO, "model_type": "mistral"})
    assert not params_json.is_one({"hidden_size": 4096, "num_attention_heads": 32})
    assert not params_json.is_one({})


def test_a_file_is_read_through_the_common_door(tmp_path):
    (tmp_path / "params.json").write_text(json.dumps(NEMO))
    assert read(tmp_path) == params_json.read(NEMO) == read(tmp_path / "params.json")


def test_a_mistral_without_scaling():
    spec = params_json.read({**NEMO, "max_seq_len": 131072})
    rope = spec.main
    assert (rope.head_dim, rope.rotary, rope.base, rope.pairing, rope.scaling) == (128, 128, 1e6, "interleaved", None)
    assert (spec.served, spec.trained, len(spec.layers)) == (131072, 131072, 40)
    for pair, frequency in {0: 1.0, 32: 1e-3, 63: 1e6 ** (-126 / 128)}.items():
        assert math.isclose(rope.spectrum().frequencies[pair], frequency, rel_tol=1e-12)
    assert spec.sources["base"] == "rope_theta" and spec.sources["served"] == "max_seq_len"
    assert params_json.read({name: value for name, value in NEMO.items() if name != "head_dim"}).main.head_dim == 160


def test_it_is_its_config_json_but_for_the_permuted_weights():
    config = {
        "model_type": "mistral",
        "head_dim": 128,
        "num_hidden_layers": 40,
        "max_position_embeddings": 131072,
        "rope_theta": 1e6,
    }
    found = differences(params_json.read({**NEMO, "model_max_length": 131072}), read(config))
    assert [(d.what, d.a, d.b) for d in found] == [("pairing", "interleaved", "half")]


def test_yarn_has_its_bounds_and_no_temperature_where_scale_is_not_applied():
    spec = params_json.read(MINISTRAL)
    assert spec.main.scaling == YaRN(16.0, 16384, 32.0, 1.0, attention_factor=1.0)
    assert (spec.trained, spec.served, spec.scaled) == (16384, 262144, 262144)
    # c(r) = 64 ln(16384 / (2 pi r)) / ln(1e6) = 20.4 and 36.4 for 32 and 1 turns: the ramp falls from pair 20 to pair
    # 37
    kept = 1 - (32 - 20) / (37 - 20)
    spectrum = spec.main.spectrum()
    assert spectrum.frequencies[0] == 1.0 and spectrum.temperature == 1.0
    assert math.isclose(spectrum.frequencies[32], 1e-3 * (kept + (1 - kept) / 16), rel_tol=1e-12)
    assert math.isclose(spectrum.frequencies[63], 1e6 ** (-126 / 128) / 16, rel_tol=1e-12)
    assert any("llama_4_scaling" in note for note in spec.notes)


def test_alpha_is_the_slow_bound_and_beta_the_fast_one():
    scaling = params_json.read({**NEMO, "yarn": {**YARN, "alpha": 2.0, "beta": 16.0, "apply_scale": True}}).main.scaling
    assert scaling == YaRN(16.0, 16384, beta_fast=16.0, beta_slow=2.0)
    assert math.isclose(scaling.m, 1 + 0.1 * math.log(16), rel_tol=1e-12)


def test_what_yarn_leaves_out_is_said():
    spec = params_json.read({**NEMO, "yarn": {"factor": 4.0, "original_max_position_embeddings": 8192}})
    assert spec.main.scaling == YaRN(4.0, 8192)
    assert [sum(f"yarn.{name}" in note for note in spec.notes) for name in ("alpha", "beta", "apply_scale")] == [
        1,
        1,
        1,
    ]


def test_latent_attention_turns_its_own_part_of_the_head():
    spec = params_json.read({**MINISTRAL, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128})
    assert (spec.main.head_dim, spec.main.rotary, spec.sources["head_dim"]) == (64, 64, "qk_rope_head_dim")
    assert any("softmax" in note for note in spec.notes)


def test_meta_s_scaling_is_that_of_llama_3_1():
    spec = params_json.read(SCALED)
    assert spec.main.scaling == Llama3(8.0, 8192, 1.0, 4.0) and spec.main.pairing == "interleaved"
    assert (spec.trained, spec.model) == (8192, "llama")
    assert "Meta's code" in spec.sources["factor"] and any("32" in note for note in spec.notes)
    llama3 = {
        "rope_type": "llama3",
        "factor": 8.0,
        "original_max_position_embeddings": 8192,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    }
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "max_position_embeddings": 131072,
    }
    found = differences(spec, read({**config, "rope_theta": 5e5, "rope_scaling": llama3}))
    assert [(d.what, d.a, d.b) for d in found] == [("pairing", "interleaved", "half")]
    assert math.isclose(spec.main.spectrum().frequencies[63], 500000.0 ** (-126 / 128) / 8, rel_tol=1e-12)


def test_meta_s_own_factors_are_used_where_they_stand():
    spec = params_json.read({**SCALED, "rope_scaling_factor": 32.0, "high_freq_factor": 8.0})
    assert spec.main.scaling == Llama3(32.0, 8192, 1.0, 8.0) and "factor" not in spec.sources
    off = params_json.read({**LLAMA31, "use_scaled_rope": False, "rope_scaling_factor": 32.0})
    assert off.main.scaling is None and any("no effect" in note for note in off.notes)


def test_other_parts_of_the_file_are_passed_over():
    other = {
        "vision_encoder": {"rope_theta": 1e4, "dim": 1},
        "quantization": {"x": 1},
        "moe": {"num_experts": 8},
        "sliding_window": 4096,
        "yarn": None,
    }
    spec = params_json.read({**NEMO, **other})
    assert spec == params_json.read(NEMO) and any("4096" in note for note in spec.notes)


WRONG = [
    ({"rope_theta": None}, "add it"),
    ({"rope_theta": "1e6"}, "rope_theta must be a finite number"),
    ({"rope_theta": 0.5}, "above 1"),
    ({"rope_wobble": 1}, "unknown key rope_wobble"),
    ({"yarn_type": "x"}, "unknown key yarn_type"),
    ({"yarn": {**YARN, "gamma": 1}}, "unknown key yarn.gamma"),
    ({"yarn": {"factor": 4.0}}, "yarn.original_max_position_embeddings"),
    ({"yarn": {"original_max_position_embeddings": 4096}}, "yarn.factor"),
    ({"yarn": {**YARN, "factor": 0.25}}, "inverse of 4"),
    ({"yarn": {**YARN, "alpha": 64.0}}, "beta_slow <= beta_fast"),
    ({"yarn": {**YARN, "apply_scale": 1}}, "true or false"),
    ({"yarn": [1]}, "yarn must be a mapping"),
    ({"yarn": YARN, "use_scaled_rope": True}, "keep one"),
    ({"use_scaled_rope": "yes"}, "true or false"),
    ({"use_scaled_rope": True, "high_freq_factor": 0.5}, "low_freq_factor <= high_freq_factor"),
    ({"head_dim": None, "n_heads": 33}, "the head size is not known"),
    ({"head_dim": 127}, "rotary size"),
    ({"max_position_embeddings": 8192, "model_max_length": 4096}, "contradictory keys"),
    ({"n_layers": -1}, "n_layers"),
]


@pytest.mark.parametrize(("keys", "words"), WRONG, ids=[words for _, words in WRONG])
def test_what_can_t_be_read_for_certain_is_refused(keys, words):
    with pytest.raises(ConfigError) as caught:
        params_json.read({**NEMO, **keys})
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("keys", [{"rope_wobble": 1}, {"yarn": {**YARN, "gamma": 1}}])
def test_unknown_keys_can_be_passed_over(keys):
    spec = params_json.read({**NEMO, **keys}, allow_unknown=True)
    assert any("passed over" in note for note in spec.notes)


VALUES = st.one_of(
    st.integers(), st.floats(), st.booleans(), st.text(max_size=5), st.none(), st.lists(st.integers(), max_size=2)
)
PARTS = st.dictionaries(st.sampled_from([*YARN, "gamma"]), VALUES)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted({*MINISTRAL, *SCALED, *params_json.KNOWN})), st.one_of(VALUES, PARTS)))
def test_whatever_the_keys_hold_gives_a_spec_or_one_sentence(keys):
    try:
        params_json.read({**MINISTRAL, **keys})
    except ConfigError as error:
        assert "\n" not in str(error)
