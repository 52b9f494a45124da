"""What each engine makes of the same words, against numbers worked out by hand: the defects that users meet, and the
refusals.

D10 to D13 are what vLLM and llama.cpp do differently; S1, S3, S4, S9, S12 are known faults of scalings in engines.
"""

import importlib
import json
import math
import shlex
from dataclasses import replace
from typing import Any

import pytest

from milepost.rope import ENGINES, ConfigError, RopeSpec, as_read_by, export, find_engine, open_config, read
from milepost.rope.engines.parity import differences
from milepost.rope.engines.written import Refused
from milepost.scaling import NTK, Dynamic, Hybrid, LargerBase, Linear, Llama3, LongRoPE, Proportional, Staged, YaRN

QWEN: dict[str, Any] = {
    "model_type": "qwen2",
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "num_hidden_layers": 28,
}
M = 0.1 * math.log(4) + 1


def yarn(**more: Any) -> dict[str, Any]:
    """Qwen2.5 with yarn, s = 4."""
    return {
        **QWEN,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 1e6,
            "factor": 4.0,
            "original_max_position_embeddings": 32768,
            **more,
        },
    }


def spelled_for(engine: str, config: dict[str, Any]) -> dict[str, Any]:
    """The config in a spelling that reaches the engine's Qwen2: that of mlx-lm does not read rope_parameters."""
    if engine != "mlx-lm":
        return config
    rope = dict(config["rope_parameters"])
    rest = {key: value for key, value in config.items() if key != "rope_parameters"}
    return {**rest, "rope_theta": rope.pop("rope_theta"), "rope_scaling": rope}


def llama(served: int = 4096, **scaling: Any) -> dict[str, Any]:
    """Llama 2 with a scaling."""
    return {
        "model_type": "llama",
        "head_dim": 128,
        "max_position_embeddings": served,
        "rope_theta": 10000.0,
        "rope_scaling": scaling or None,
    }


def spec_of(scaling: Any, *, served: int = 131072, **rope: Any) -> RopeSpec:
    """Qwen2.5 with any scaling."""
    plain = read({**QWEN, "max_position_embeddings": 32768, "rope_theta": 1e6})
    return replace(plain, kinds=(("all", replace(plain.main, scaling=scaling, **rope)),), served=served)


def said(spec: RopeSpec, engine: str) -> str:
    """The sentence of a refusal."""
    with pytest.raises(Refused) as caught:
        export(spec, engine)
    return str(caught.value)


EFFECTIVE: list[tuple[dict[str, Any], dict[str, float]]] = [
    ({}, {"transformers": M, "vllm": M, "vllm@0.29": M, "sglang": M, "llama.cpp": M, "mlx-lm": M}),
    (
        {"attention_factor": 1.0},
        {"transformers": 1.0, "vllm": 1.0, "vllm@0.29": M, "sglang": M, "llama.cpp": M, "mlx-lm": M},
    ),
    (
        {"mscale": 1.0, "mscale_all_dim": 1.0},
        {"transformers": 1.0, "vllm": 1.0, "vllm@0.29": M, "sglang": 1.0, "llama.cpp": M, "mlx-lm": 1.0},
    ),
    (
        {"attn_factor": 0.5},
        {"transformers": M, "vllm": M, "vllm@0.29": M / 2, "sglang": M / 2, "llama.cpp": M, "mlx-lm": M},
    ),
    (
        {"mscale": 2.0},
        {"transformers": M, "vllm": M, "vllm@0.29": M, "sglang": M, "llama.cpp": M, "mlx-lm": 2 * M - 1},
    ),
    (
        {"mscale": 2, "mscale_all_dim": 1},
        {
            "transformers": (2 * M - 1) / M,
            "vllm": (2 * M - 1) / M,
            "vllm@0.29": M,
            "sglang": (2 * M - 1) / M,
            "llama.cpp": M,
            "mlx-lm": (2 * M - 1) / M,
        },
    ),
    (
        {"mscale": 0.0, "mscale_all_dim": 0.0},
        {"transformers": M, "vllm": M, "vllm@0.29": M, "sglang": 1.0, "llama.cpp": M, "mlx-lm": 1.0},
    ),
]


@pytest.mark.parametrize("engine", ["transformers", "vllm", "vllm@0.29", "sglang", "llama.cpp", "mlx-lm"])
@pytest.mark.parametrize(("keys", "expected"), EFFECTIVE)
def test_effective_attention_factor(keys: dict[str, Any], expected: dict[str, float], engine: str) -> None:
    """S9: what multiplies logits, once and never squared twice."""
    rope = as_read_by(engine, spelled_for(engine, yarn(**keys))).main
    assert rope.temperature() == pytest.approx(expected[engine] ** 2, rel=1e-12)
    assert rope.softmax == 1


@pytest.mark.parametrize(
    ("engine", "honoured"),
    [("transformers", True), ("vllm", True), ("sglang", True), ("llama.cpp", False), ("mlx-lm", False)],
)
def test_truncate(engine: str, honoured: bool) -> None:
    """The bounds are 23.5959 and 39.6509 as they come, 23 and 40 truncated."""
    spec = as_read_by(engine, spelled_for(engine, yarn(truncate=False)))
    low, high = (
        64 * math.log(32768 / (2 * math.pi * turns)) / math.log(1e6) if honoured else whole
        for turns, whole in ((32, 23), (1, 40))
    )
    kept = 1 - (31 - low) / (high - low)
    plain = 1e6 ** (-62 / 128)
    assert spec.main.spectrum().frequencies[31] == pytest.approx(plain * (kept + (1 - kept) / 4), rel=1e-12)
    assert any("truncate" in note for note in spec.notes) is not honoured


@pytest.mark.parametrize("engine", ["vllm@0.29", "sglang", "mlx-lm"])
def test_d10_is_said_with_the_numbers(engine: str) -> None:
    notes = as_read_by(engine, spelled_for(engine, yarn(attention_factor=1.0))).notes
    assert (
        "attention_factor = 1 is not read: m = 1.1386, logits x 1.2965 (transformers: m = 1.0000, logits x 1.0000)"
        in notes
    )


def test_vllm_says_what_it_does_not_read() -> None:
    assert (
        "mscale = 1 and mscale_all_dim = 1 are not read: m = 1.1386, logits x 1.2965"
        in as_read_by("vllm@0.29", yarn(mscale=1, mscale_all_dim=1)).notes[0]
    )
    assert (
        "attn_factor = 0.5 multiplies the default: m = 0.5693, logits x 0.3241"
        in as_read_by("vllm@0.29", yarn(attn_factor=0.5)).notes[0]
    )
    assert as_read_by("vllm", yarn()).notes == as_read_by("vllm@0.29", yarn()).notes == ()


@pytest.mark.parametrize("engine", ["transformers", "vllm", "sglang", "mlx-lm"])
def test_yarn_frequencies(engine: str) -> None:
    """First, middle and last pair: kept, blended by (32 - 23) / (40 - 23), divided."""
    w = as_read_by(engine, spelled_for(engine, yarn())).main.spectrum().frequencies
    kept = 1 - 9 / 17
    assert w[0] == 1.0
    assert w[32] == pytest.approx(1e-3 * (kept + (1 - kept) / 4), rel=1e-12)
    assert w[63] == pytest.approx(1e6 ** (-126 / 128) / 4, rel=1e-12)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_deepseek(engine: str) -> None:
    """m = g(0.707) / g(0.707) = 1, and the softmax scale x g(0.707)^2, g = 0.1 * 0.707 * ln 40 + 1 = 1.2608."""
    scaling = {
        "type": "yarn",
        "factor": 40,
        "original_max_position_embeddings": 4096,
        "mscale": 0.707,
        "mscale_all_dim": 0.707,
    }
    config = {
        "model_type": "deepseek_v2",
        "qk_rope_head_dim": 64,
        "max_position_embeddings": 163840,
        "rope_theta": 10000,
        "rope_scaling": scaling,
    }
    rope = as_read_by(engine, config).main
    assert rope.spectrum().temperature == 1.0
    assert rope.temperature() == pytest.approx((0.0707 * math.log(40) + 1) ** 2, rel=1e-12)
    named = {**config, "model_type": "llama", "head_dim": 64, "rope_scaling": {**scaling, "type": "deepseek_yarn"}}
    assert as_read_by(engine, named).main.temperature() == 1.0
    alone = {**config, "rope_scaling": {**scaling, "mscale": None, "mscale_all_dim": None}}
    assert as_read_by(engine, alone).main.temperature() == pytest.approx((0.1 * math.log(40) + 1) ** 2, rel=1e-12)


def test_d11_mrope_with_yarn() -> None:
    """The ramp moves from pairs 23 .. 40 to pairs 30 .. 47; SGLang leaves it."""
    config = {**yarn(mrope_section=[16, 24, 24]), "model_type": "qwen2_5_vl_text"}
    spec = as_read_by("vllm", config)
    assert any("pairs 30 to 47 instead of 23 to 40" in note for note in spec.notes)
    w, plain = spec.main.spectrum().frequencies, spec.main.plain().frequencies
    assert w[30] == plain[30] and w[47] == pytest.approx(plain[47] / 4, rel=1e-12)
    assert w[31] == pytest.approx(plain[31] * (1 - 0.75 / 17), rel=1e-12)
    assert as_read_by("sglang", config).main.spectrum().frequencies == read(config).main.spectrum().frequencies
    assert "pairs 30 to 47 would be blended, not 23 to 40" in said(read(config), "vllm")
    assert export(read(config), "sglang").config["rope_parameters"]["mrope_section"] == [16, 24, 24]


def test_d12_dynamic_of_vllm() -> None:
    """Without max_trained_positions nothing happens; with it, one base, that of max_position_embeddings (S3's numbers).

    The length that is served changes nothing.
    """
    silent = as_read_by("vllm", llama(type="dynamic", factor=2.0))
    assert silent.main.scaling is None
    assert any("the base stays 10000" in note and "30527.73" in note for note in silent.notes)
    for longest, base in ((4097, 10004.960), (8192, 30527.737), (16384, 72195.860)):
        spec = as_read_by("vllm", llama(longest, type="dynamic", factor=2.0, max_trained_positions=4096), served=4096)
        assert not spec.main.scaling.length_dependent  # type: ignore[union-attr]
        assert spec.main.spectrum().base == pytest.approx(base, abs=1e-3)
        assert spec.main.spectrum().frequencies[63] == pytest.approx(base ** (-126 / 128), rel=1e-6)


def test_s4_dynamic_below_the_trained_length() -> None:
    spec = as_read_by("vllm", llama(2048, type="dynamic", factor=2.0, max_trained_positions=2048), served=512)
    assert spec.main.spectrum().base == 10000


def test_dynamic_of_sglang() -> None:
    """base * (s^2 - s + 1)^(d/(d-2)) = 10000 * 3^(128/126), for all texts."""
    spec = as_read_by("sglang", llama(type="dynamic", factor=2.0))
    assert spec.main.spectrum().base == pytest.approx(10000 * 3 ** (128 / 126), rel=1e-12)
    assert spec.main.scaling == Dynamic(4096, 2.0, length=8192)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_alpha(engine: str) -> None:
    """Hunyuan's: base * 1000^(d/(d-2)); its other keys are not read."""
    spec = as_read_by(
        engine,
        llama(
            32768, type="dynamic", alpha=1000.0, factor=1.0, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0
        ),
    )
    assert spec.main.spectrum().base == pytest.approx(10000 * 1000 ** (128 / 126), rel=1e-12)
    assert spec.main.temperature() == 1


def test_alpha_of_mlx_is_hunyuans() -> None:
    config = {**llama(32768, type="dynamic", alpha=1000.0, factor=1.0), "model_type": "hunyuan_v1_dense"}
    assert as_read_by("mlx-lm", config).main.spectrum().base == pytest.approx(10000 * 1000 ** (128 / 126), rel=1e-12)


@pytest.mark.parametrize("engine", ["sglang", "exllamav3", "onnxruntime-genai", "megatron", "torchtitan"])
def test_a_temperature_in_the_dictionary_that_is_written_anew_is_not_dropped(engine: str) -> None:
    """llama_4_scaling_beta stands in rope_parameters, which an override replaces whole."""
    given = {
        "rope_type": "default",
        "rope_theta": 1e6,
        "llama_4_scaling_beta": 0.1,
        "original_max_position_embeddings": 16384,
    }
    config = {
        "model_type": "ministral3", "hidden_size": 1024, "num_attention_heads": 8, "head_dim": 128,
        "num_hidden_layers": 2, "max_position_embeddings": 16384, "rope_parameters": given,
    }  # fmt: skip
    spec = read(config)
    assert [tau.form for _, tau in spec.temperatures] == ["mistral"]
    with pytest.raises(Refused, match=r"according to their position.* drop"):
        export(spec, engine)
    export(replace(spec, temperatures=()), engine)
    assert "--rope-freq-base 1000000" in export(spec, "llama.cpp").text  # the GGUF file holds it
    written = export(spec, "vllm").text  # where vLLM looks for it
    assert '"llama_4_scaling": {"beta": 0.1, "original_max_position_embeddings": 16384}' in written


TELECHAT3 = {
    "model_type": "telechat3", "hidden_size": 1024, "num_attention_heads": 8, "num_hidden_layers": 4,
    "max_position_embeddings": 32768, "rope_theta": 1e6,
    "rope_scaling": {"type": "telechat3-yarn", "factor": 4.0, "original_max_position_embeddings": 8192},
}  # fmt: skip


def test_telechat3s_yarn_has_an_m_of_its_own_and_mlx_lm_reads_another() -> None:
    """vLLM makes m = 0.07 ln s + 1 of the name; mlx-lm 0.32.2 reads it as any yarn, 0.1 ln s + 1."""
    own, plain = 0.07 * math.log(4) + 1, 0.1 * math.log(4) + 1
    assert RopeSpec.from_config(TELECHAT3).main.temperature() == pytest.approx(own**2, rel=1e-14)
    for version in ("0.32.0", "0.30.0", "0.29.0"):
        assert as_read_by(f"vllm@{version}", TELECHAT3).main.temperature() == pytest.approx(own**2, rel=1e-14)
    shorter = {**TELECHAT3, "max_position_embeddings": 16384}  # twice: to 0.29 that is s
    assert as_read_by("vllm@0.29.0", shorter).main.temperature() == pytest.approx((0.07 * math.log(2) + 1) ** 2)
    assert as_read_by("vllm@0.30.0", shorter).main.temperature() == pytest.approx(own**2, rel=1e-14)
    mlx = as_read_by("mlx-lm@0.32.2", TELECHAT3)
    assert mlx.main.temperature() == pytest.approx(plain**2, rel=1e-14)
    assert any("m = 1.1386, logits x 1.2965 (its own code: m = 1.0970, logits x 1.2035)" in note for note in mlx.notes)
    given = {**TELECHAT3, "rope_scaling": {**TELECHAT3["rope_scaling"], "attention_factor": 1.5}}
    assert RopeSpec.from_config(given).main.temperature() == 1.5**2
    for engine in ("mlx-lm@0.29.1", "sglang@0.5.23", "transformers@5.22.2"):
        with pytest.raises(ConfigError, match=r"telechat3-yarn, (which is )?of TeleChat3's own code"):
            as_read_by(engine, TELECHAT3)


def test_hunyuan_vls_own_names() -> None:
    """HunyuanOCR's config: xdrope is a fixed base by alpha, and its four sections are M-RoPE's under an older name."""
    config = {
        "model_type": "hunyuan_vl", "text_config": {
            "model_type": "hunyuan_vl_text", "hidden_size": 1024, "num_attention_heads": 16, "head_dim": 128,
            "num_key_value_heads": 8, "num_hidden_layers": 4, "max_position_embeddings": 32768, "rope_theta": 10000.0,
            "rope_scaling": {"alpha": 1000.0, "factor": 1.0, "type": "xdrope", "xdrope_section": [16, 16, 16, 16]},
        },
    }  # fmt: skip
    spec = RopeSpec.from_config(config)
    assert spec.main.sections == (16, 16, 16, 16)
    assert spec.main.spectrum().base == pytest.approx(10000.0 * 1000 ** (128 / 126), rel=1e-12)
    assert as_read_by("transformers@5.22.2", config).main.spectrum() == spec.main.spectrum()
    given = config["text_config"]["rope_scaling"]
    modern = {**{k: v for k, v in given.items() if k != "xdrope_section"}, "type": "dynamic", "mrope_section": [16] * 4}
    text = {**config["text_config"], "rope_scaling": modern}
    assert differences(RopeSpec.from_config({**config, "text_config": text}), spec) == []
    text = {**config["text_config"], "rope_scaling": {**given, "mrope_section": [24, 20, 20]}}
    with pytest.raises(ConfigError, match=r"contradictory keys: .*mrope_section.*xdrope_section.*keep one"):
        RopeSpec.from_config({**config, "text_config": text})
    with pytest.raises(ConfigError, match="not known to read rope type xdrope, of HunYuan-VL's own code"):
        as_read_by("mlx-lm", config)


def test_a_model_type_with_a_yarn_of_its_own() -> None:
    """gpt-oss without a dictionary: engines take transformers' default, and do not ask for the factor."""
    config = {"model_type": "gpt_oss", "head_dim": 64, "max_position_embeddings": 131072}
    assert (
        as_read_by("vllm", config).main.scaling
        == as_read_by("sglang", config).main.scaling
        == YaRN(32.0, 4096, truncate=False)
    )


def test_ntk_of_vllm_is_sus() -> None:
    """theta * s and w / s^(2/d): pair 0 is slowed by s^(2/d), the last one by s."""
    w = as_read_by("vllm", llama(rope_type="ntk", factor=4.0)).main.spectrum().frequencies
    for i in (0, 32, 63):
        assert w[i] == pytest.approx(10000 ** (-2 * i / 128) * 4 ** (-2 * (i + 1) / 128), rel=1e-12)
    for engine in ("sglang", "mlx-lm"):
        with pytest.raises(ConfigError, match=r"no rope type ntk; a larger base says it: rope_theta = 40889\.94"):
            as_read_by(engine, llama(rope_type="ntk", factor=4.0))


LONG = tuple(1.0 + i for i in range(48))
PHI: dict[str, Any] = {
    "model_type": "phi3",
    "head_dim": 96,
    "max_position_embeddings": 131072,
    "original_max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": list(LONG)},
}


def test_s12_longrope() -> None:
    """4096 served: short; 4097: long, for texts of all lengths. m = sqrt(1 + ln 32 / ln 4096)."""
    m = math.sqrt(1 + math.log(32) / math.log(4096))
    for served, factors in ((4096, [1.0] * 48), (4097, LONG)):
        rope = as_read_by("vllm", PHI, served=served).main
        assert rope.spectrum().frequencies[47] == pytest.approx(10000 ** (-94 / 96) / factors[47], rel=1e-12)
        assert rope.temperature() == pytest.approx(m * m, rel=1e-12)
    alone = as_read_by("vllm", PHI)  # without --max-model-len, vLLM serves the original length: the short factors
    assert alone.served == 4096 and alone.main.spectrum().frequencies[1] == pytest.approx(10000 ** (-2 / 96), rel=1e-12)
    gone = as_read_by("llama.cpp", PHI, served=4096)
    assert gone.main.spectrum().frequencies[47] == pytest.approx(10000 ** (-94 / 96), rel=1e-12)
    assert as_read_by("llama.cpp", PHI, served=4097).main.spectrum().frequencies[47] == pytest.approx(
        10000 ** (-94 / 96) / 48, rel=1e-12
    )
    text = as_read_by("sglang", PHI).main
    assert [text.spectrum(n).frequencies[47] * 48 for n in (4096, 4097)] == pytest.approx(
        [48 * 10000 ** (-94 / 96), 10000 ** (-94 / 96)], rel=1e-12
    )
    always = as_read_by("mlx-lm", PHI).main.spectrum()
    assert always.frequencies[47] == pytest.approx(
        10000 ** (-94 / 96) / 48, rel=1e-12
    ) and always.temperature == pytest.approx(m * m, rel=1e-12)


def test_longrope_scales_of_vllm() -> None:
    """short_mscale and long_mscale are read by vLLM and SGLang; attention_factor is not."""
    config = {**PHI, "rope_scaling": {**PHI["rope_scaling"], "short_mscale": 1.1, "long_mscale": 1.3}}
    assert as_read_by("vllm", config, served=8192).main.temperature() == pytest.approx(1.69, rel=1e-12)
    assert as_read_by("vllm", config).main.temperature() == pytest.approx(1.21, rel=1e-12)
    assert as_read_by("sglang", config).main.temperature(131072) == pytest.approx(1.69, rel=1e-12)
    one = as_read_by("vllm", {**PHI, "rope_scaling": {**PHI["rope_scaling"], "attention_factor": 1.0}})
    assert one.main.temperature() == pytest.approx(1 + math.log(32) / math.log(4096), rel=1e-12)
    assert any("(transformers: m = 1.0000" in note for note in one.notes)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_factor_of_proportional_is_not_read(engine: str) -> None:
    config = llama(rope_type="proportional", factor=2.0, partial_rotary_factor=0.25)
    assert as_read_by(engine, config).main.scaling == Proportional(0.25)
    assert "does not read factor = 2 of proportional" in said(read(config), engine)


@pytest.mark.parametrize(
    ("engine", "sentence"), [("vllm", "vLLM stops"), ("sglang", "SGLang stops"), ("mlx-lm", "mlx-lm stops")]
)
def test_yarn_without_factor(engine: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"{sentence} at rope type yarn without factor.*write factor = 4"):
        as_read_by(engine, spelled_for(engine, yarn(factor=None)))


def test_mlx_takes_4096_where_there_is_no_trained_length() -> None:
    spec = as_read_by("mlx-lm", {**llama(32768, type="yarn", factor=4.0), "original_max_position_embeddings": 8192})
    assert spec.main.scaling == YaRN(4.0, 4096)
    assert any("mlx-lm takes 4096 (transformers: 8192)" in note for note in spec.notes)


def test_mlx_pairing() -> None:
    assert as_read_by("mlx-lm", {**llama(), "rope_traditional": True}).main.pairing == "interleaved"
    assert export(spec_of(None, pairing="interleaved"), "mlx-lm").config["rope_traditional"] is True
    assert "rope_traditional" not in export(spec_of(None), "mlx-lm").config


def test_mlx_keys_for_m() -> None:
    """m = 1.3: mscale = 0.3 / 0.1386; below 1 it goes under the line."""
    over = export(spec_of(YaRN(4.0, 32768, attention_factor=1.3)), "mlx-lm").config["rope_scaling"]
    assert (
        over["mscale"] == pytest.approx(0.3 / (0.1 * math.log(4)), rel=1e-12)
        and "mscale_all_dim" not in over
        and "attention_factor" not in over
    )
    under = export(spec_of(YaRN(4.0, 32768, attention_factor=0.8)), "mlx-lm").config["rope_scaling"]
    assert (under["mscale"], under["mscale_all_dim"]) == (0.0, pytest.approx(0.25 / (0.1 * math.log(4)), rel=1e-12))


def test_vllm_key_for_m() -> None:
    """To 0.29 attn_factor = m / (0.1 ln s + 1), from 0.30 attention_factor = m; and the keys that a model may have."""
    for m in (1.0, M):
        spec = spec_of(YaRN(4.0, 32768, attention_factor=m))
        keys = export(spec, "vllm").config["rope_parameters"]
        assert keys["attention_factor"] == pytest.approx(m, rel=1e-12) and "attn_factor" not in keys
        older = export(spec, "vllm@0.29").config["rope_parameters"]
        assert older["attn_factor"] == pytest.approx(m / M, rel=1e-12) and "attention_factor" not in older
        assert (keys["beta_fast"], keys["beta_slow"], keys["truncate"]) == (32.0, 1.0, True)


SERVERS = {
    "vllm": "vllm serve MODEL --max-model-len 131072 --hf-overrides '{",
    "sglang": "python -m sglang.launch_server --model-path MODEL --context-length 131072 --json-model-override-args '{",
}


@pytest.mark.parametrize(("engine", "start"), SERVERS.items())
def test_commands_are_quoted_for_a_shell(engine: str, start: str) -> None:
    written = export(spec_of(YaRN(4.0, 32768)), engine)
    assert written.text.startswith(start)
    assert json.loads(shlex.split(written.text)[-1]) == {
        "rope_parameters": written.config["rope_parameters"],
        "max_position_embeddings": 131072,
    }
    assert any(("model's dtype" if engine == "vllm" else "float32 on GPUs") in note for note in written.notes)


FLAGS: list[tuple[str, Any, float]] = [
    ("", None, 1e6),
    ("-c 65536 -ngl 99 -m x.gguf", None, 1e6),
    ("--rope-scaling linear --rope-scale 4", Linear(4.0), 1e6),
    ("--rope-scale 4", Linear(4.0), 1e6),
    ("--rope-freq-scale 0.25", Linear(4.0), 1e6),
    ("--rope-freq-scale=0.25", Linear(4.0), 1e6),
    ("--rope_freq_scale 0.25 --rope-scale 4", Linear(4.0), 1e6),
    ("--rope-freq-base 5e6", None, 5e6),
    ("--rope-scaling none --rope-scale 4", None, 1e6),
    ("--rope-scaling yarn --rope-scale 4", YaRN(4.0, 32768), 1e6),
    ("--rope-scaling yarn --rope-scale 4 --yarn-orig-ctx 16384", YaRN(4.0, 16384), 1e6),
    (
        "--rope-scaling yarn --rope-scale 4 --yarn-ext-factor 1 --yarn-beta-fast 16 --yarn-beta-slow 2",
        YaRN(4.0, 32768, 16.0, 2.0),
        1e6,
    ),
    ("--rope-scaling yarn --rope-scale 4 --yarn-ext-factor 0", Linear(4.0), 1e6),
    ("-c 1024 -gan 1 -gaw 512", None, 1e6),
]


@pytest.mark.parametrize(("flags", "scaling", "base"), FLAGS)
def test_flags_of_llama_cpp(flags: str, scaling: Any, base: float) -> None:
    model = spec_of(None, served=32768)
    for given in (flags, shlex.split(flags), "llama-server " + flags):
        rope = as_read_by("llama.cpp", given, on=model).main
        assert (rope.scaling, rope.base) == (scaling, base)


def test_context_size_is_the_length_served() -> None:
    model = spec_of(None, served=32768)
    assert [
        as_read_by("llama.cpp", flags, on=model).served for flags in ("-c 65536", "--ctx-size 8192", "-c 0", "")
    ] == [
        65536,
        8192,
        32768,
        32768,
    ]


def test_d13_yarn_attn_factor_has_no_effect() -> None:
    spec = as_read_by("llama.cpp", "--rope-scaling yarn --rope-scale 4 --yarn-attn-factor 0.5", on=spec_of(None))
    assert spec.main.temperature() == pytest.approx(M * M, rel=1e-12)
    assert (
        "--yarn-attn-factor 0.5 has no effect with yarn, which overwrites it: m = 1.1386, logits x 1.2965" in spec.notes
    )


def test_flags_over_a_model_with_a_scaling() -> None:
    """Each flag replaces one number of the model's own yarn."""
    model = spec_of(YaRN(4.0, 32768))
    assert as_read_by("llama.cpp", "--rope-scale 8", on=model).main.scaling == YaRN(8.0, 32768)
    assert as_read_by("llama.cpp", "--yarn-orig-ctx 16384", on=model).main.scaling == YaRN(4.0, 16384)
    assert as_read_by("llama.cpp", "--rope-scaling linear", on=model).main.scaling == Linear(4.0)
    assert as_read_by("llama.cpp", "--rope-scaling none", on=model).main.scaling is None
    assert as_read_by("llama.cpp", "", on=spec_of(NTK(4.0))).main.base == pytest.approx(
        1e6 * 4 ** (128 / 126), rel=1e-12
    )


BAD: list[tuple[str, str]] = [
    (
        "--rope-freq-scale 2.0",
        r"would shrink the context; it is the inverse of --rope-scale: .* --rope-scale 2, or --rope-freq-scale 0\.5",
    ),
    ("--rope-freq-scale 0", "must be above 0"),
    ("--rope-scale 0.25", "would shrink the context: did you mean --rope-scale 4, or --rope-freq-scale 0.25"),
    (
        "--rope-scale 4 --rope-freq-scale 0.5",
        "contradictory flags: --rope-scale 4 and --rope-freq-scale 0.5, which is --rope-scale 2",
    ),
    ("--rope-scale 4 --rope-scale 2", "twice"),
    ("--rope-scaling dynamic", "none, linear or yarn, got 'dynamic'"),
    ("--rope-scalin yarn", "no flag '--rope-scalin'; did you mean --rope-scaling"),
    ("--yarn-orig-context 4096", "did you mean --yarn-orig-ctx"),
    ("--rope-scale", "needs a value"),
    ("--rope-scale four", "must be a finite number, got 'four'"),
    ("--rope-scale nan", "must be a finite number"),
    ("--rope-freq-base 1", "must be above 1"),
    ("--rope-freq-base 1e301", "at most 1e300"),
    ("--rope-freq-base 1e301 --rope-scaling yarn --rope-scale 4", "at most 1e300"),
    ("--rope-freq-scale 1e-320", "no scale that a model can have"),
    ("--yarn-orig-ctx 0.5 --rope-scaling yarn", "number of tokens"),
    ("--rope-scaling yarn --rope-scale 4 --yarn-ext-factor 0.5", "mixes yarn and linear"),
    ("--rope-scale 4 --yarn-attn-factor 0.5", r"multiplies cos and sin by 0\.5"),
    ("-gan 4 -gaw 2048", "--grp-attn-n 4 is self-extend"),
]


@pytest.mark.parametrize(("flags", "sentence"), BAD)
def test_bad_flags(flags: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        as_read_by("llama.cpp", flags, on=spec_of(None))


def test_flags_on_baked_factors() -> None:
    """llama3 is in the GGUF: flags on top would scale twice."""
    model = spec_of(Llama3(8.0, 8192))
    assert as_read_by("llama.cpp", "-c 131072", on=model).main.scaling == Llama3(8.0, 8192)
    with pytest.raises(ConfigError, match=r"--rope-scale 4\.0: the factors of Llama3 are baked into the GGUF and stay"):
        as_read_by("llama.cpp", "--rope-scale 4", on=model)


def test_sliding_layers_keep_their_base() -> None:
    gemma = read(
        {
            "model_type": "gemma3_text",
            "head_dim": 256,
            "max_position_embeddings": 32768,
            "num_hidden_layers": 12,
            "rope_theta": 1000000,
            "rope_local_base_freq": 10000,
        }
    )
    ropes = as_read_by("llama.cpp", "--rope-freq-base 5000000 --rope-scale 2", on=gemma).ropes()
    assert (ropes["sliding_attention"].base, ropes["sliding_attention"].scaling) == (10000, None)
    assert (ropes["full_attention"].base, ropes["full_attention"].scaling) == (5000000, Linear(2.0))


def test_llama_server() -> None:
    assert export(spec_of(YaRN(4.0, 32768)), "llama.cpp").text == (
        "llama-server -m MODEL.gguf -c 131072 --override-kv qwen2.context_length=int:131072 --rope-scaling yarn "
        "--rope-scale 4 --yarn-orig-ctx 32768 --rope-freq-base 1000000"
    )
    assert "--rope-scaling linear --rope-scale 2.5" in export(spec_of(Linear(2.5)), "llama.cpp").text
    assert export(spec_of(NTK(4.0)), "llama.cpp").text.endswith(
        f"--rope-scaling none --rope-freq-base {1e6 * 4 ** (128 / 126)!r}"
    )


def test_llama_server_serves_more_than_the_file_says() -> None:
    """-c alone is cut to the file's context_length (tests/served/real sees that on the running server)."""
    spec = spec_of(Linear(4.0))
    trained = replace(spec, served=spec.trained)
    assert spec.trained is not None and "--override-kv" not in export(trained, "llama.cpp").text
    longer = replace(spec, served=4 * spec.trained)
    for model, arch in (("mistral", "llama"), ("qwen3_moe", "qwen3moe"), ("qwen2", "qwen2")):
        written = export(replace(longer, model=model), "llama.cpp")
        assert f"-c {longer.served} --override-kv {arch}.context_length=int:{longer.served} " in written.text
        assert not any("ARCH" in note for note in written.notes)
    unknown = export(replace(longer, model="some_model"), "llama.cpp")
    assert "--override-kv ARCH.context_length" in unknown.text
    assert "put the file's general.architecture in place of ARCH" in " ".join(unknown.notes)


REFUSED: list[tuple[str, Any, str]] = [
    ("llama.cpp", Llama3(8.0, 8192), "its 64 factors (rope_freqs) are baked into the GGUF when it is converted"),
    ("llama.cpp", Proportional(0.25), "its 64 factors (rope_freqs) are baked"),
    ("llama.cpp", LongRoPE((1.0,) * 64, (2.0,) * 64, 32768, 4.0), "its lists of 64 factors are baked into the GGUF"),
    (
        "llama.cpp",
        Dynamic(32768, 2.0),
        "llama.cpp has no dynamic NTK; fix the length, dynamic(trained=32768, factor=2.0, length=131072)",
    ),
    ("llama.cpp", YaRN(4.0, 32768, truncate=False), "23.5959 and 39.6509 would become 23 and 40"),
    (
        "llama.cpp",
        YaRN(4.0, 32768, attention_factor=1.0),
        "has m = 0.1 ln(4) + 1 = 1.1386 whatever --yarn-attn-factor says, and this one has 1.0000",
    ),
    ("llama.cpp", Hybrid((8,), (None, Linear(2.0))), "llama.cpp has linear, yarn and a larger base"),
    (
        "vllm",
        Dynamic(32768, 2.0),
        "vLLM has one base for texts of all lengths, and dynamic(trained=32768, factor=2.0) has "
        "1000000 up to 32768 tokens and",
    ),
    ("sglang", Dynamic(32768, 2.0), "fix the length: dynamic(trained=32768, factor=2.0, length=131072)"),
    (
        "vllm",
        LongRoPE((1.0,) * 64, (2.0,) * 64, 32768, 4.0),
        "length=131072 for the long factors, length=32768 for the short ones",
    ),
    (
        "mlx-lm",
        LongRoPE((1.0,) * 64, (2.0,) * 64, 32768, 4.0),
        "the short one up to 32768 tokens and the long one beyond",
    ),
    ("mlx-lm", YaRN(4.0, 32768, preset="paper"), "needs m = 1.1386, logits x 1.2965"),
    ("mlx-lm", YaRN(4.0, 32768, truncate=False), "the bounds of yarn: 23.5959 and 39.6509 would become 23 and 40"),
    ("mlx-lm", YaRN(1.0, 32768, attention_factor=1.2), "has m = 1 for a factor of 1, and this yarn has m = 1.2000"),
    ("megatron", NTK(4.0), "--rotary-base is a whole number, and this base is 4088994.2"),
    ("megatron", Linear(2.5), "is a whole number, and the factor is 2.5"),
    (
        "megatron",
        Llama3(8.0, 16384),
        "llama3 with 1 and 4 turns over 8192 tokens, and this has 1 and 4 turns over 16384",
    ),
    ("megatron", Dynamic(32768, 2.0), "Megatron has no dynamic NTK"),
    ("megatron", LongRoPE((1.0,) * 64, (2.0,) * 64, 32768, 4.0), "no flags for LongRoPE"),
    ("torchtitan", Linear(4.0), "torchtitan has no Linear"),
    (
        "torchtitan",
        Llama3(8.0, 8192),
        "ComplexRoPE only, which turns neighbouring channels, and this model's pairs are halves",
    ),
    ("torchtitan", Dynamic(32768, 2.0), "torchtitan has one base for texts of all lengths"),
]


@pytest.mark.parametrize(("engine", "scaling", "sentence"), REFUSED)
def test_refusals_say_why(engine: str, scaling: Any, sentence: str) -> None:
    assert sentence in said(spec_of(scaling), engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_staged_is_never_exported(engine: str) -> None:
    """It is ours; no engine has it, and dynamic is another."""
    assert "staged(trained=32768, factor=2.0) is milepost's own" in said(spec_of(Staged(32768, 2.0)), engine)


def test_megatron() -> None:
    assert export(spec_of(YaRN(4.0, 32768, truncate=False, attention_factor=1.0)), "megatron").text == (
        "--position-embedding-type yarn --kv-channels 128 --max-position-embeddings 131072 "
        "--rotary-base 1000000 --rotary-scaling-factor 4.0 "
        "--yarn-original-max-position-embeddings 32768 --yarn-beta-fast 32.0 --yarn-beta-slow 1.0 "
        "--mscale 0.0 --mscale-all-dim 0.0 "
        "--no-yarn-correction-range-round-to-int"
    )
    assert export(spec_of(Llama3(8.0, 8192)), "megatron").text.endswith(
        "--rotary-base 1000000 --use-rope-scaling --rope-scaling-factor 8.0"
    )
    assert export(spec_of(Linear(4.0)), "megatron").text.endswith("--rotary-seq-len-interpolation-factor 4")
    assert export(spec_of(Linear(4.0)), "megatron").notes == (
        "pretrain_gpt.py passes --rotary-seq-len-interpolation-factor on since core_v0.18.0: before, it is passed over, "
        "silently",
    )
    assert export(spec_of(Llama3(8.0, 8192)), "megatron").notes == ()
    assert "before, the factor is 8, silently" in export(spec_of(Llama3(32.0, 8192)), "megatron").notes[0]
    assert "--rotary-base 5000000" in export(spec_of(LargerBase(5e6)), "megatron").text
    part = export(spec_of(None, pairing="interleaved", rotary=32), "megatron").text
    assert "--rotary-percent 0.25" in part and "--rotary-interleaved" in part
    axes = export(spec_of(None, sections=(16, 24, 24)), "megatron").text
    assert "--position-embedding-type mrope" in axes and "--mrope-section 16 24 24" in axes
    for scaling, more in ((YaRN(4.0, 32768), {"pairing": "interleaved"}), (YaRN(4.0, 32768), {"rotary": 64})):
        assert "Megatron's yarn turns the whole head in halves" in said(spec_of(scaling, **more), "megatron")


def test_megatron_layers_that_do_not_turn() -> None:
    config = {
        "model_type": "smollm3",
        "head_dim": 128,
        "max_position_embeddings": 65536,
        "num_hidden_layers": 8,
        "rope_theta": 5000000.0,
    }
    assert export(read(config), "megatron").text.endswith("--no-rope-freq 4")
    six = read({**config, "num_hidden_layers": 6})  # megatron-core wants a number that divides the layers
    assert export(six, "megatron").text.endswith("--no-rope-freq '[0,0,0,1,0,0]'")
    odd = read({**config, "no_rope_layers": [1, 0, 1, 1, 0, 1, 1, 1]})
    assert export(odd, "megatron").text.endswith("--no-rope-freq '[0,1,0,0,1,0,0,0]'")


def test_torchtitan() -> None:
    written = export(spec_of(YaRN(4.0, 32768, truncate=False)), "torchtitan")
    assert written.text == (
        "CosSinRoPE.Config(dim=128, max_seq_len=131072, theta=1000000.0, scaling='yarn', "
        "rope_factor=4.0, beta_fast=32.0, beta_slow=1.0, "
        "original_seq_len=32768, truncate=False)"
    )
    assert "multiply the model's softmax scale by 1.296477" in written.notes[0]
    assert export(spec_of(YaRN(4.0, 32768, attention_factor=1.0)), "torchtitan").notes == ()
    turned = export(spec_of(Llama3(8.0, 8192), pairing="interleaved"), "torchtitan").text
    assert turned.startswith(
        "ComplexRoPE.Config(dim=128, max_seq_len=131072, theta=1000000.0, scaling='llama', scaling_factor=8.0"
    )
    assert f"theta={1e6 * 4 ** (128 / 126)!r}" in export(spec_of(NTK(4.0)), "torchtitan").text
    assert "64 of 128 channels" in said(spec_of(None, rotary=64), "torchtitan")
    assert "does not say what is served" in said(replace(spec_of(None), served=None), "torchtitan")


def test_deepseek_where_no_flag_says_it() -> None:
    scaling = {
        "type": "yarn",
        "factor": 40,
        "original_max_position_embeddings": 4096,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    }
    spec = read(
        {
            "model_type": "deepseek_v3",
            "qk_rope_head_dim": 64,
            "max_position_embeddings": 163840,
            "rope_theta": 10000,
            "rope_scaling": scaling,
        }
    )
    assert "softmax scale by 1.8739" in said(spec, "llama.cpp")
    assert "softmax scale by 1.8739" in said(spec, "megatron")
    assert export(spec, "torchtitan").notes == (
        f"the rotation is pure: multiply the model's softmax scale by {(0.1 * math.log(40) + 1) ** 2:.6f}",
    )


def test_engines_by_name() -> None:
    assert list(ENGINES) == [
        "transformers",
        "transformers-v4",
        "vllm",
        "sglang",
        "llama.cpp",
        "mlx-lm",
        "megatron",
        "torchtitan",
        "exllamav3",
        "onnxruntime-genai",
    ]
    for wrong, right in (("VLLM", "vllm"), ("llama_cpp", "llama.cpp"), ("mlx_lm", "mlx-lm"), ("sglng", "sglang")):
        with pytest.raises(ValueError, match=f"there is no engine '{wrong}'; did you mean {right}"):
            export(spec_of(None), wrong)
    for engine in ("megatron", "torchtitan"):
        with pytest.raises(ValueError, match=f"{engine} has no config of its own to read: milepost only writes it"):
            as_read_by(engine, yarn())


@pytest.mark.parametrize("engine", ["transformers", "vllm", "sglang", "llama.cpp", "mlx-lm"])
@pytest.mark.parametrize(
    "config",
    [
        {},
        {**QWEN, "rope_scaling": {"type": "dynamic", "alpha": "big"}},
        yarn(factor=float("nan")),
        yarn(rope_type="yarm"),
    ],
)
def test_what_is_no_config(config: dict[str, Any], engine: str) -> None:
    with pytest.raises(ConfigError):
        as_read_by(engine, config)


def test_as_read_by_a_path(tmp_path: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps(yarn(attention_factor=1.0)), encoding="utf-8")
    for engine, m in (("transformers", 1.0), ("vllm", 1.0), ("vllm@0.29", M), ("llama.cpp", M)):
        assert as_read_by(engine, tmp_path).main.temperature() == pytest.approx(m * m, rel=1e-12)
        assert as_read_by(engine, str(tmp_path / "config.json")).main.temperature() == pytest.approx(m * m, rel=1e-12)
    with pytest.raises(ConfigError, match="a mapping, or a path"):
        as_read_by("vllm", ["--rope-scale", "4"])
    flags = as_read_by("llama.cpp", ["--rope-scale", "4"], on=spec_of(None), served=4096)
    assert flags.main.scaling == Linear(4.0) and flags.served == 4096


def test_flags_are_for_llama_cpp_and_a_model() -> None:
    """A config and on= together, or flags for another engine: one of them would be passed over."""
    for engine, config in (("vllm", yarn()), ("llama.cpp", yarn()), ("vllm", "--rope-scale 4")):
        with pytest.raises(ValueError, match=r"on= is the model that llama.cpp's flags are for"):
            as_read_by(engine, config, on=spec_of(None))


def test_a_config_is_opened_once_and_passed_on(tmp_path: Any) -> None:
    (tmp_path / "config.json").write_text(json.dumps(yarn(attention_factor=1.0, wobble=1)), encoding="utf-8")
    config = open_config(tmp_path)
    assert (config.format, config.file) == ("config.json", tmp_path / "config.json")
    (tmp_path / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"unknown key rope_parameters.wobble"):
        read(config)
    relaxed = open_config(config, allow_unknown=True)
    assert open_config(relaxed) is relaxed and relaxed.parsed is relaxed.parsed
    assert RopeSpec.from_config(relaxed).main.temperature() == 1.0
    assert as_read_by("vllm@0.29", relaxed).main.temperature() == pytest.approx(M * M, rel=1e-12)
    assert as_read_by("vllm", config, allow_unknown=True) == as_read_by("vllm", relaxed)


def test_versions() -> None:
    """A version is exact, or the beginning of one; another is refused with those that are known, nearest first."""
    assert find_engine("vllm@0.29").version == find_engine("vllm", "0.29.0").version == "0.29.0"
    assert find_engine("vllm").version == max(find_engine("vllm").versions, key=lambda v: [*map(int, v.split("."))])
    assert export(spec_of(None), "vllm@0.30").version == "0.30.0"
    older = export(spec_of(None), "transformers@4.57")
    assert older.version == "4.57.6" and older.text == export(spec_of(None), "transformers-v4").text
    with pytest.raises(
        ValueError, match=r"vLLM 0.31.0 was not measured; the nearest that were are 0.32.0, 0.30.0, 0.29.0"
    ):
        as_read_by("vllm", yarn(), version="0.31.0")
    for asked, near in {
        "1.0": "0.32.0, 0.30.0, 0.29.0",
        "0.1": "0.29.0, 0.30.0, 0.32.0",
        "x": "0.32.0, 0.30.0",
    }.items():
        with pytest.raises(ValueError, match=f"vLLM {asked} was not measured; the nearest that were are {near}"):
            as_read_by("vllm", yarn(), version=asked)
    with pytest.raises(ValueError, match=r"vllm@0.29 names version 0.29, and version='0.30' another"):
        as_read_by("vllm@0.29", yarn(), version="0.30")
    assert find_engine("vllm").evidence().startswith("measured with vLLM 0.")


def test_engines_that_read_config_json_refuse_other_formats() -> None:
    params = {"dim": 4096, "n_layers": 32, "n_heads": 32, "rope_theta": 1e6, "max_seq_len": 32768}
    assert open_config(params).format == "params.json"
    assert read(params).main.pairing == as_read_by("llama.cpp", params).main.pairing == "interleaved"
    for engine in ("transformers", "vllm", "sglang", "mlx-lm"):
        with pytest.raises(ConfigError, match=f"{engine} reads config.json, and this is a params.json file"):
            as_read_by(engine, params)


def test_the_old_name_of_the_package_names_the_new_one() -> None:
    with pytest.raises(ImportError, match=r"milepost\.dialects was renamed: import milepost\.rope instead"):
        importlib.import_module("milepost.dialects")
