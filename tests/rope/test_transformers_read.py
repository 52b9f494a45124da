"""Reading configs of transformers: real ones, of version 4 and 5 and before, against transformers' own tables; every
value with its source."""

from __future__ import annotations

import copy
import importlib
import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from milepost.rope import ConfigError, RopeSpec, export, open_config
from milepost.rope.engines.parity import differences
from milepost.rope.engines.written import Refused
from milepost.scaling import NTK, Dynamic, Linear, LongRoPE, YaRN

real: Any = importlib.import_module("real_configs")
REAL: dict[str, dict[str, Any]] = real.REAL
transformers = importlib.import_module("transformers")
CONFIGS = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
ROPE_INIT = importlib.import_module("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS
transformers.logging.set_verbosity_error()

CLOSE = 1e-6
"""transformers computes frequencies in float32."""
TYPES = sorted(name for name, config in REAL.items() if config["model_type"] in CONFIGS)
V5 = sorted(set(TYPES) - {"GPT_J", "NOMIC", "LONGCHAT"})
"""Those whose code reads all that their configs say: GPT-J has no rope_parameters, the others' code came with the
checkpoint."""


def read(config: dict[str, Any], **changes: Any) -> RopeSpec:
    return RopeSpec.from_config({**config, **changes})


def theirs(name: str) -> Any:
    """The config that transformers makes of a real one: the text model's."""
    config = copy.deepcopy(REAL[name])
    made = CONFIGS[config["model_type"]].from_dict(config)
    if hasattr(made, "thinker_config"):
        made = made.thinker_config
    return made.get_text_config()


@pytest.mark.parametrize("name", V5)
def test_a_real_config_means_the_table_that_transformers_makes(name: str) -> None:
    config = theirs(name)
    module = importlib.import_module(type(config).__module__.replace("configuration_", "modeling_"))
    made = next(
        c for n, c in vars(module).items() if n.endswith("RotaryEmbedding") and "Vision" not in n and "Audio" not in n
    )
    rotary = made(config)
    spec = read(REAL[name])
    tables = {
        n.removesuffix("inv_freq").rstrip("_"): t
        for n, t in rotary.named_buffers()
        if n.endswith("inv_freq") and "original" not in n
    }
    for kind, table in tables.items():
        rope = dict(spec.kinds)[kind] if kind else spec.main
        assert rope is not None
        ours = rope.spectrum(1)
        assert torch.allclose(ours.tensor(), table.double(), rtol=CLOSE, atol=0)
        factor = getattr(rotary, f"{kind}_attention_scaling" if kind else "attention_scaling")
        assert math.isclose(ours.temperature, factor**2, rel_tol=CLOSE)


@pytest.mark.parametrize("name", V5)
def test_version_4_and_version_5_of_a_config_are_one_spec(name: str) -> None:
    """What transformers 5 saves of a config of version 4 reads as the config itself."""
    saved = theirs(name).to_dict()
    assert "rope_parameters" in saved
    a, b = read(REAL[name]), read(saved)
    assert differences(a, b) == []
    assert (a.trained, a.served) == (b.trained, b.served)
    assert [a.layer(n) is None for n in range(len(a.layers))] == [b.layer(n) is None for n in range(len(b.layers))]


@pytest.mark.parametrize("name", sorted(REAL))
@pytest.mark.parametrize("version", [4, 5])
def test_what_is_read_can_be_written_and_read_again(name: str, version: int) -> None:
    spec = read(REAL[name])
    written = export(spec, "transformers" if version == 5 else "transformers-v4")
    keys = json.loads(written.text)
    if name == "FALCON":  # its class stops at head_dim: the head size stays in the model's own keys
        assert "head_dim" not in keys and any("the head size, 64, is hidden_size over" in n for n in written.notes)
        keys |= {key: real.FALCON[key] for key in ("hidden_size", "num_attention_heads")}
    again = RopeSpec.from_config(keys)
    assert differences(spec, again) == []
    assert again.layers == spec.layers and again.served in (spec.served, spec.trained)


def test_the_written_config_of_a_kind_is_what_transformers_reads() -> None:
    """SmolLM3's layers are said in no_rope_layers, not in layer_types, where transformers has no such word."""
    written = export(read(real.SMOLLM_3), "transformers").config
    assert written["no_rope_layers"] == [1, 1, 1, 0] * 9 and "layer_types" not in written
    config = CONFIGS["smollm3"](**{k: v for k, v in written.items() if k != "model_type"})
    assert config.no_rope_layers == [1, 1, 1, 0] * 9 and config.rope_parameters["rope_theta"] == 5e6
    gemma = export(read(real.GEMMA_3), "transformers").config
    assert set(gemma["rope_parameters"]) == {"full_attention", "sliding_attention"}
    spec = read(real.GEMMA_3)
    with pytest.raises(
        Refused, match=r"rotation in full_attention layers: none \(the spec\), rotary \(transformers v4\)"
    ):
        export(replace(spec, kinds=(("full_attention", None), ("sliding_attention", spec.main))), "transformers-v4")


# --------------------------------------------------------------------------------------------------- older names


def test_gpt_neox_has_its_own_names_for_base_and_share() -> None:
    spec = read(real.PYTHIA)
    assert (spec.main.base, spec.main.rotary, spec.main.head_dim) == (10000.0, 64, 256)
    assert (spec.sources["base"], spec.sources["rotary"]) == ("rotary_emb_base", "rotary_pct")


def test_gpt_j_turns_neighbours_in_rotary_dim_channels() -> None:
    spec = read(real.GPT_J)
    assert (spec.main.pairing, spec.main.rotary, spec.trained, spec.sources["served"]) == (
        "interleaved",
        64,
        2048,
        "n_positions",
    )
    assert read(real.GPT_J, rotary_dim=None).main.rotary == 256  # null: the whole head, as its code has it
    without = {key: value for key, value in real.GPT_J.items() if key != "rotary_dim"}
    assert read(without).main.rotary == 64 and "default of its model type" in read(without).sources["rotary"]


def test_falcon_with_alibi_is_refused() -> None:
    with pytest.raises(ConfigError, match="alibi is true: this model has ALiBi, no rotary positions"):
        read(real.FALCON, alibi=True)


def test_su_is_longrope_and_its_trained_length_may_stand_outside() -> None:
    spec = read(real.PHI_3_128K)
    scaling = spec.main.scaling
    assert isinstance(scaling, LongRoPE) and (scaling.trained, scaling.factor) == (4096, 32.0)
    assert spec.sources["trained"] == "original_max_position_embeddings"
    su = {
        **real.PHI_3_128K,
        "rope_scaling": {**real.PHI_3_128K["rope_scaling"], "type": "su"},
    }  # its first revision; transformers 5.22 can't read it
    assert differences(read(su), spec) == []
    assert math.isclose(scaling.m, math.sqrt(1 + math.log(32) / math.log(4096)))
    with pytest.raises(
        ConfigError,
        match=r"contradictory keys: rope_scaling.original_max_position_embeddings = 8192, "
        r"original_max_position_embeddings = 4096",
    ):
        read(
            real.PHI_3_128K, rope_scaling={**real.PHI_3_128K["rope_scaling"], "original_max_position_embeddings": 8192}
        )


def test_mrope_is_default_with_sections_flat_or_nested() -> None:
    flat = read(real.QWEN_2_VL)
    assert flat.main.sections == (16, 24, 24) and flat.main.scaling is None and not flat.main.sections_interleaved
    inner = {
        **{k: v for k, v in real.QWEN_2_VL.items() if k not in ("model_type", "vision_config")},
        "model_type": "qwen2_vl_text",
    }
    assert differences(flat, read({"model_type": "qwen2_vl", "text_config": inner})) == []
    unnamed = {k: v for k, v in inner.items() if k != "model_type"}
    nested = read({"model_type": "qwen2_vl", "text_config": unnamed})
    assert nested.model == "qwen2_vl_text" and differences(flat, nested) == []
    assert read(real.QWEN_3_VL).main.sections_interleaved
    assert read(real.QWEN_25_OMNI).sources["base"] == "thinker_config.text_config.rope_theta"


def test_what_stands_outside_and_inside_of_the_text_config_must_agree() -> None:
    inner = {k: v for k, v in real.QWEN_2_VL.items() if k != "vision_config"}
    both = {**inner, "text_config": inner}
    assert differences(read(both), read(inner)) == []
    with pytest.raises(
        ConfigError, match=r"contradictory keys: rope_theta = 10000.0, text_config.rope_theta = 1000000.0"
    ):
        read(both, rope_theta=10000.0)


def test_gemma_3_scales_only_its_full_layers() -> None:
    spec = read(real.GEMMA_3)
    kinds = dict(spec.kinds)
    full, sliding = kinds["full_attention"], kinds["sliding_attention"]
    assert full is not None and sliding is not None
    assert (full.base, full.scaling, sliding.base, sliding.scaling) == (1e6, Linear(8.0), 1e4, None)
    assert [n for n, kind in enumerate(spec.layers) if kind == "full_attention"] == [5, 11, 17, 23, 29]
    assert spec.sources["sliding_attention.base"] == "text_config.rope_local_base_freq"


def test_modernbert_scales_both_kinds_and_begins_with_a_full_layer() -> None:
    spec = read(real.MODERNBERT, rope_scaling={"rope_type": "linear", "factor": 2.0})
    assert [rope.scaling for rope in spec.ropes().values()] == [Linear(2.0), Linear(2.0)]
    assert {kind: rope.base for kind, rope in spec.ropes().items()} == {
        "full_attention": 160000.0,
        "sliding_attention": 10000.0,
    }
    assert spec.layers[:4] == ("full_attention", "sliding_attention", "sliding_attention", "full_attention")


def test_layers_that_do_not_turn() -> None:
    assert [n for n in range(8) if read(real.COMMAND_R7B).layer(n) is None] == [3, 7]
    assert [n for n in range(8) if read(real.LLAMA_4).layer(n) is None] == [3, 7]
    assert [n for n in range(8) if read(real.EXAONE_4).layer(n) is None] == [3, 7]
    plain = read(real.EXAONE_4, sliding_window=None, layer_types=["full_attention"] * 8)
    assert all(plain.layer(n) is not None for n in range(8))  # EXAONE-4.0-1.2B
    with pytest.raises(ConfigError, match="turns only where position_embedding_type is 'rope', got 'nope'"):
        read({"model_type": "granitemoehybrid", "head_dim": 64, "position_embedding_type": "nope", "rope_theta": 10000})


def test_layers_without_attention_do_not_turn_and_the_others_do() -> None:
    spec = read(
        {
            "model_type": "qwen3_next",
            "head_dim": 256,
            "num_hidden_layers": 8,
            "rope_theta": 1e7,
            "max_position_embeddings": 262144,
        }
    )
    assert [spec.layer(n) is not None for n in range(8)] == [False, False, False, True] * 2
    rope = spec.layer(3)
    assert rope is not None and rope.rotary == 64
    listed = read(
        {
            "model_type": "qwen2",
            "head_dim": 128,
            "num_hidden_layers": 4,
            "layer_types": ["full_attention"] * 4,
            "rope_theta": 1e6,
        }
    )
    assert all(listed.layer(n) is not None for n in range(4)) and listed.layers == ("all",) * 4


def test_deepseek_turns_a_part_of_its_own_and_scales_its_softmax() -> None:
    rope = read(real.DEEPSEEK_V3).main
    assert (rope.head_dim, rope.rotary, rope.pairing) == (64, 64, "interleaved")
    assert math.isclose(rope.softmax, (0.1 * math.log(40) + 1) ** 2) and rope.spectrum().temperature == 1.0
    assert read(real.DEEPSEEK_V3, rope_interleave=False).main.pairing == "half"


def test_gpt_oss_does_not_truncate_and_yarn_llama_says_that_it_is_finetuned() -> None:
    oss = read(real.GPT_OSS).main.scaling
    assert isinstance(oss, YaRN) and oss.truncate is False
    assert read(real.YARN_LLAMA_2).main.scaling == YaRN(32.0, 4096)


def test_scalings_that_stood_outside_of_any_dictionary() -> None:
    assert read(real.LONGCHAT).main.scaling == Linear(8.0)
    nomic = read(real.NOMIC)
    assert nomic.main.scaling == Dynamic(2048, 2.0) and (nomic.trained, nomic.served, nomic.main.base) == (
        2048,
        8192,
        1000.0,
    )
    assert nomic.sources["trained"] == "max_trained_positions" and any("Nomic" in note for note in nomic.notes)
    assert read(real.NOMIC, rotary_scaling_factor=None).main.scaling is None
    with pytest.raises(
        ConfigError,
        match=r"contradictory keys: rope_condense_ratio = 8 is a scaling, and so is .*linear\(factor=4.0\)",
    ):
        read(real.LONGCHAT, rope_scaling={"type": "linear", "factor": 4.0})


def test_hunyuan_calls_a_fixed_base_dynamic() -> None:
    spec = read(real.HUNYUAN)
    assert spec.main.scaling == NTK(1000.0)
    with pytest.raises(ConfigError, match=r"rope_scaling.alpha = 1000.0 is a fixed base"):
        read({**real.LLAMA_2, "rope_scaling": {"type": "dynamic", "factor": 1.0, "alpha": 1000.0}})


def test_attn_factor_is_passed_over_as_transformers_does_and_kept_for_others() -> None:
    config = {**real.YARN_LLAMA_2, "rope_scaling": {**real.YARN_LLAMA_2["rope_scaling"], "attn_factor": 0.5}}
    assert read(config).main.scaling == YaRN(32.0, 4096)
    assert open_config(config).parsed.spec.main.scaling == YaRN(32.0, 4096, attn_factor=0.5)
    assert any("attn_factor = 0.5 is vLLM's and SGLang's key" in note for note in read(config).notes)


def test_truncate_inside_of_a_kind_is_not_seen_by_transformers() -> None:
    yarn = {
        "rope_type": "yarn",
        "rope_theta": 5e5,
        "factor": 8.0,
        "original_max_position_embeddings": 8192,
        "truncate": False,
    }
    nested = {"full_attention": yarn, "sliding_attention": {"rope_type": "default", "rope_theta": 5e5}}
    config = {k: v for k, v in real.OLMO_3.items() if k not in ("rope_scaling", "rope_theta")} | {
        "rope_parameters": nested
    }
    assert read(config).main.scaling == YaRN(8.0, 8192)
    assert open_config(config).parsed.spec.main.scaling == YaRN(8.0, 8192, truncate=False)
    assert any("does not see truncate = false of full_attention" in note for note in read(config).notes)


# ------------------------------------------------------------------------------------------------------- sources


def test_a_base_that_is_not_there_is_the_model_types_and_said_so() -> None:
    spec = read(real.LLAMA_2)
    assert (
        spec.main.base == 10000.0 and spec.sources["base"] == "not in the config: the default of its model type (10000)"
    )
    mixtral = read({**real.LLAMA_2, "model_type": "mixtral"})
    assert mixtral.main.base == 1e6 and "(1e+06)" in mixtral.sources["base"]
    with pytest.raises(ConfigError, match="the base is not known: the config has no rope_theta"):
        read({**real.LLAMA_2, "model_type": "a_new_one"})
    assert read({**real.LLAMA_2, "model_type": "a_new_one", "rope_theta": 77.0}).main.base == 77.0


@pytest.mark.parametrize("name", sorted(REAL))
def test_every_value_has_a_source_that_is_there(name: str) -> None:
    """A key of the config, the whole head, the model type's own: nothing else."""
    spec = read(REAL[name])
    for kind in spec.ropes():
        label = "" if kind == "all" else f"{kind}."
        assert {"base", "rotary"} <= {key.removeprefix(label) for key in spec.sources if key.startswith(label)}
        assert (label + "scaling" in spec.sources) == (spec.ropes()[kind].scaling is not None)
    for source in spec.sources.values():
        words = ("the whole head", "the model type's code", "not in the config: the default of its model type")
        assert source.startswith(words) or all(found(REAL[name], key) for key in source.split(" / ")), source


def found(config: Any, path: str) -> bool:
    for step in path.split("."):
        if step not in config:
            return False
        config = config[step]
    return True


def test_a_model_type_that_is_not_known_is_noted_with_its_pairing() -> None:
    spec = read({**real.LLAMA_2, "model_type": "a_new_one", "rope_theta": 1e4})
    assert any("'a_new_one' is not one that milepost knows" in note for note in spec.notes)
    assert "assumed" in spec.sources["pairing"] and any("half is assumed" in note for note in spec.notes)


def test_a_scaling_that_the_model_type_has_without_a_word_is_said() -> None:
    bare = {k: v for k, v in real.GPT_OSS.items() if k != "rope_scaling"}
    assert differences(read(bare), read(real.GPT_OSS)) == []
    assert any("the config has no rope_parameters: those of its model type are" in note for note in read(bare).notes)


# -------------------------------------------------------------------------------- lengths and factors (S10, S16)


def test_an_explicit_yarn_factor_wins_and_a_mismatch_is_reported() -> None:
    spec = read(real.QWEN_25_YARN)
    assert spec.main.scaling == YaRN(4.0, 32768) and spec.scaled == 131072
    assert any("makes 131072 tokens of 32768; max_position_embeddings = 32768 is fewer" in note for note in spec.notes)


def test_more_served_than_the_factor_makes_is_an_error() -> None:
    config = {**real.QWEN_25_YARN, "max_position_embeddings": 262144}
    with pytest.raises(
        ConfigError,
        match=r"rope_scaling.factor = 4 times original_max_position_embeddings = 32768 is less than "
        r"max_position_embeddings = 262144",
    ):
        read(config)
    relaxed = RopeSpec.from_config(config, allow_unknown=True)
    assert relaxed.main.scaling == YaRN(4.0, 32768) and any(
        "the explicit factor is used" in note for note in relaxed.notes
    )


def test_a_yarn_factor_that_is_not_there_is_the_ratio_of_lengths_and_said() -> None:
    spec = read({**real.YARN_LLAMA_2, "rope_scaling": {"type": "yarn", "original_max_position_embeddings": 4096}})
    assert spec.main.scaling == YaRN(32.0, 4096)
    assert any(
        "max_position_embeddings / original_max_position_embeddings = 131072 / 4096 = 32" in note for note in spec.notes
    )


def test_dynamic_has_no_original_length() -> None:
    """transformers' own documentation gives it one; its code starts from max_position_embeddings."""
    scaling = {"rope_type": "dynamic", "factor": 4.0, "original_max_position_embeddings": 2048}
    with pytest.raises(
        ConfigError,
        match=r"original_max_position_embeddings = 2048 has no meaning for rope type "
        r"dynamic.*max_position_embeddings = 4096",
    ):
        read(real.LLAMA_2, rope_scaling=scaling)
    relaxed = RopeSpec.from_config({**real.LLAMA_2, "rope_scaling": scaling}, allow_unknown=True)
    assert relaxed.main.scaling == Dynamic(4096, 4.0) and any("has no meaning" in note for note in relaxed.notes)
    same = read(real.LLAMA_2, rope_scaling={**scaling, "original_max_position_embeddings": 4096})
    assert same.main.scaling == Dynamic(4096, 4.0) and any("so nothing changes" in note for note in same.notes)
    with pytest.raises(
        ConfigError, match=r"original_max_position_embeddings = 2048 has no meaning for rope type dynamic"
    ):
        read(real.LLAMA_2, rope_scaling={"rope_type": "dynamic", "factor": 4.0}, original_max_position_embeddings=2048)


def test_dynamic_is_transformers_at_every_length() -> None:
    config = CONFIGS["llama"](
        hidden_size=256,
        num_attention_heads=4,
        max_position_embeddings=512,
        rope_parameters={"rope_type": "dynamic", "factor": 2.0},
    )
    rope = read(config.to_dict()).main
    for length in (1, 512, 513, 1000, 2048):
        table, _ = ROPE_INIT["dynamic"](config, None, seq_len=length)
        assert torch.allclose(rope.spectrum(length).tensor(), table.double(), rtol=CLOSE, atol=0)


def test_longrope_is_transformers_on_both_sides_of_the_trained_length() -> None:
    config = theirs("PHI_3_128K")
    rope = read(real.PHI_3_128K).main
    for length in (1, 4096, 4097, 131072):
        table, factor = ROPE_INIT["longrope"](config, None, seq_len=length)
        assert torch.allclose(rope.spectrum(length).tensor(), table.double(), rtol=CLOSE, atol=0)
        assert math.isclose(rope.spectrum(length).temperature, factor**2, rel_tol=CLOSE)


# ------------------------------------------------------------------------------------------ without transformers

ALONE = """
import sys
sys.modules["transformers"] = None
sys.modules["huggingface_hub"] = None
from milepost.rope import RopeSpec
spec = RopeSpec.from_config(sys.argv[1])
print(spec.main.scaling)
"""


def test_reading_needs_no_transformers(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(real.LLAMA_31))
    done = subprocess.run([sys.executable, "-c", ALONE, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "llama3()\n"
