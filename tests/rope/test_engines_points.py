"""Twenty points in which statements about engines were wrong once: each against what the engine was measured to do.

The numbers come from the measured files, `make engines`; what milepost says of the same config stands beside them.
"""

from __future__ import annotations

import json
import math
from importlib import resources
from typing import Any

import pytest

from milepost.encodings.mrope import MRoPE
from milepost.rope import ConfigError, as_read_by, export, read
from milepost.rope.engines import measured
from milepost.rope.engines.written import Refused
from milepost.scaling import YaRN

CONFIGS = measured.configs()
NEWEST = {"vllm": "0.32.0", "sglang": "0.5.23", "mlx-lm": "0.32.2", "transformers": "5.22.2"}
M4 = 0.1 * math.log(4) + 1


def turned(engine: str, name: str, version: str = "") -> dict[str, Any]:
    """The first rotation that an engine made of a config, with its table for short texts."""
    held = measured.load(engine, version or NEWEST[engine])
    rope = held.cases[name]["ropes"][0]
    return {**rope, "w": held.tables[rope["tables"][""]], "lengths": sorted(map(int, filter(None, rope["tables"])))}


def stopped(engine: str, name: str, version: str = "") -> str:
    return str(measured.load(engine, version or NEWEST[engine]).cases[name]["stops"])


def run(engine: str, name: str, method: str = "yarn", version: str = "") -> bool:
    """Whether an export was run by the engine; test_measured holds that it turned as the spec says."""
    return "ropes" in measured.load(engine, version or NEWEST[engine]).exports[f"{name} | {method}"]


def refusal(engine: str, name: str, method: str = "yarn") -> str:
    """Why an export is refused."""
    spec = read(CONFIGS[name])
    with pytest.raises(Refused) as caught:
        export(spec if method == "as it is" else spec.extended(4 * (spec.trained or 0), method), engine)  # type: ignore[arg-type]
    return str(caught.value)


def m_of(engine: str, name: str, **how: Any) -> float:
    return as_read_by(engine, CONFIGS[name], **how).main.temperature() ** 0.5


@pytest.mark.parametrize(("version", "m"), [("0.32.0", 0.8), ("0.30.0", 0.8), ("0.29.0", M4)])
def test_1_vllm_reads_attention_factor_from_0_30_on(version: str, m: float) -> None:
    name = "llama yarn attention_factor 0.8"
    assert turned("vllm", name, version)["m"] == pytest.approx(m, rel=2e-6)
    assert m_of("vllm", name, version=version) == pytest.approx(m, rel=1e-12)
    text = export(read(CONFIGS[name]), "vllm", version=version).text
    assert ('"attention_factor": 0.8' in text) == (version != "0.29.0")
    assert ('"attn_factor"' in text) == (version == "0.29.0")


MINISTRAL = ("golden ministral-3-3b", "golden devstral-small-2-24b")


def test_1_ministral_and_devstral_in_vllm() -> None:
    for name in MINISTRAL:
        assert turned("vllm", name)["m"] == m_of("vllm", name) == 1.0


@pytest.mark.parametrize("version", ["0.32.0", "0.30.0", "0.29.0"])
def test_vllm_makes_far_queries_of_ministral_sharper_when_it_is_told_where_it_looks(version: str) -> None:
    """Of config.json it reads nothing; with what export prints the query is multiplied as transformers does it."""
    for name in MINISTRAL:
        own = dict(read(CONFIGS[name]).temperatures)["all"].at(measured.FAR)
        assert turned("vllm", name, version)["queries"] == 1 and own > 1.15
        assert not as_read_by(f"vllm@{version}", CONFIGS[name]).temperatures
        (rope,) = measured.load("vllm", version).exports[f"{name} | as it is"]["ropes"]
        assert rope["queries"] == pytest.approx(own, rel=1e-6)


def test_sglang_has_one_length_for_the_queries_of_all_ministrals() -> None:
    """Ministral's own, 16384, for Devstral too, whose own is 8192."""
    for name in MINISTRAL:
        ((_, tau),) = as_read_by("sglang", CONFIGS[name]).temperatures
        assert tau.n == 16384
        assert turned("sglang", name)["queries"] == pytest.approx(tau.at(measured.FAR), rel=1e-6)


def test_2_vllm_serves_phi_3_with_the_short_factors_unless_a_length_is_said() -> None:
    name = "golden phi-3.5-mini"
    config = CONFIGS[name]
    short = as_read_by("vllm", config)
    assert short.served == 4096
    assert turned("vllm", name)["w"][-1] == pytest.approx(short.main.spectrum(2).frequencies[-1], rel=2e-6)
    long = as_read_by("vllm", config, served=131072)
    ratio = long.main.spectrum(2).frequencies[-1] / short.main.spectrum(2).frequencies[-1]
    factors = config["rope_scaling"]
    assert ratio == pytest.approx(factors["short_factor"][-1] / factors["long_factor"][-1], rel=1e-9) and ratio < 0.05


def test_3_vllm_s_dynamic_goes_by_max_position_embeddings() -> None:
    name = "llama dynamic max_trained_positions"
    for served in (None, 8192):
        spec = as_read_by("vllm", CONFIGS[name], served=served)
        assert spec.main.spectrum(2).frequencies[1] == pytest.approx(turned("vllm", name)["w"][1], rel=2e-6)


def test_4_the_ramp_of_m_rope_with_yarn_in_vllm() -> None:
    """Four times too far in Qwen2.5-VL; not in Qwen3-VL and Qwen3.5, whose exports are run."""
    name = "qwen2_5_vl yarn"
    w, plain = turned("vllm", name)["w"], read(CONFIGS[name]).main.plain().frequencies
    assert w[20] == pytest.approx(plain[20], rel=2e-6) and w[21] < plain[21] * (1 - 1e-3)
    assert as_read_by("vllm", CONFIGS[name]).main.spectrum().frequencies[21] == pytest.approx(w[21], rel=2e-6)
    assert "pairs 20 to 37 would be blended, not 13 to 31" in refusal("vllm", name)
    assert run("vllm", "golden qwen3-vl-8b") and run("vllm", "golden qwen3.5-9b")


@pytest.mark.parametrize(
    "family", ["olmo", "olmo2", "olmo3", "gpt_neox", "phi", "starcoder2", "smollm3", "hunyuan_v1_dense"]
)
def test_5_families_that_vllm_hands_to_transformers(family: str) -> None:
    """Their dynamic follows the text, where vLLM's own classes have one base."""
    dynamic = {"rope_type": "dynamic", "factor": 2.0}
    config = {**CONFIGS[f"{family} default flat"], "rope_scaling": dynamic}
    scaling = as_read_by("vllm", config).main.scaling
    assert scaling is not None and scaling.length_dependent
    assert as_read_by("vllm", {**config, "model_type": "llama"}).main.scaling is None
    assert measured.load("vllm", "0.32.0").families[family]["yarn flat"] == "read"


@pytest.mark.parametrize("name", ["cohere2 default flat", "exaone4 default flat", "smollm3 default flat"])
def test_6_overrides_of_kinds_of_layers_do_not_stop_vllm(name: str) -> None:
    assert all(run("vllm", name, method) for method in ("as it is", "yarn", "linear", "llama3", "ntk"))


def test_6_gpt_oss_llama_4_and_qwen_3_5_in_vllm() -> None:
    for name in ("golden gpt-oss-20b", "tests llama-4", "golden qwen3.5-9b"):
        assert run("vllm", name, "as it is"), name
    assert '"beta_fast": 32.0' in export(read(CONFIGS["golden gpt-oss-20b"]), "vllm").text
    config = CONFIGS["gpt_oss yarn flat"]
    plain = {key: value for key, value in config["rope_scaling"].items() if not key.startswith("beta_")}
    with pytest.raises(ConfigError, match="stops at rope type yarn without beta_fast and beta_slow in its gpt_oss"):
        as_read_by("vllm", {**config, "rope_scaling": plain})


def test_7_overrides_that_reach_the_text_model_of_vllm() -> None:
    """Qwen2-VL's go into text_config, Omni's are refused, and merged ones leave no key of the model's own."""
    assert run("vllm", "tests qwen-2-vl", "ntk") and run("vllm", "golden qwen2-vl-7b", "as it is")
    assert "overrides do not reach the text model of qwen2_5_omni_text" in refusal("vllm", "tests qwen-25-omni", "ntk")
    assert all(run("vllm", name) and run("vllm", name, "as it is") for name in MINISTRAL)
    text = export(read(CONFIGS["golden llama-3.1-8b"]).extended(32768, "yarn"), "vllm").text
    assert all(f'"{key}": ' in text for key in ("attention_factor", "beta_fast", "beta_slow", "truncate"))


def test_8_vllm_refuses_lengths_above_max_position_embeddings_with_yarn() -> None:
    held = json.loads((resources.files(measured) / "vllm-served.json").read_text(encoding="utf-8"))
    answer = held["0.32.0"]["llama yarn, 4096 positions"]
    assert max(answer["taken"]) == 4096 and min(answer["refused"]) == 4097
    assert max(held["0.29.0"]["llama yarn, 4096 positions"]["taken"]) == 16384
    with pytest.raises(ConfigError, match=r"vLLM refuses --max-model-len 16384 with this config"):
        as_read_by("vllm", answer["config"], served=16384)
    assert as_read_by("vllm@0.29.0", answer["config"], served=16384).served == 16384


@pytest.mark.parametrize("name", ["golden yarn-llama-2-7b-64k", "golden qwen2.5-7b-yarn", "golden gpt-oss-20b"])
def test_9_merged_overrides_of_sglang_name_every_key(name: str) -> None:
    """mscale and attn_factor, truncate and both betas are written, also where they are the defaults."""
    assert run("sglang", name, "as it is")
    text = export(read(CONFIGS[name]), "sglang").text
    keys = ("mscale", "mscale_all_dim", "attn_factor", "truncate", "beta_fast", "beta_slow")
    assert all(f'"{key}": ' in text for key in keys)


@pytest.mark.parametrize(
    "family", ["gemma", "gemma2", "phi", "stablelm", "mixtral", "gptj", "starcoder2", "olmo", "baichuan", "persimmon"]
)
def test_10_families_that_sglang_passes_no_scaling_on_in(family: str) -> None:
    outcome = measured.load("sglang", "0.5.23").families[family]["yarn flat"]
    assert outcome.startswith("unscaled")
    spec = as_read_by("sglang", CONFIGS[f"{family} yarn flat"])
    assert spec.main.scaling is None and any("is dropped, silently" in note for note in spec.notes)
    assert f"passes no scaling on in its {family}" in refusal("sglang", f"{family} default flat")


def test_11_sglang_s_olmo_3_smollm_3_and_qwen_3_vl() -> None:
    spec = as_read_by("sglang", CONFIGS["olmo3 default nested"])
    assert spec.main.base == 10000 and "does not read the base of rope_parameters" in spec.notes[0]
    assert turned("sglang", "olmo3 default nested")["w"][1] == pytest.approx(10000 ** (-1 / 64), rel=2e-6)
    assert run("sglang", "smollm3 default flat")
    assert "overrides do not reach the text model of qwen3_vl_text" in refusal("sglang", "golden qwen3-vl-8b")


def test_12_sglang_keeps_float32() -> None:
    assert any("SGLang keeps cos and sin in float32 on GPUs" in note
               for note in export(read(CONFIGS["llama default flat"]), "sglang").notes)  # fmt: skip


def test_13_mlx_lm_reads_no_rope_parameters_in_many_classes() -> None:
    """The base is the class's own, 10000 for most; some classes stop, for they want rope_theta beside."""
    families = measured.load("mlx-lm", "0.32.2").families
    own = {family: said.get("default nested", "") for family, said in families.items()}
    others = {family: float(said.split()[-1]) for family, said in own.items() if said.startswith("base ")}
    assert len(others) >= 18 and others["llama"] == others["mistral"] == 10000 and others["qwen2"] == 1e6
    for family, base in others.items():
        spec = as_read_by("mlx-lm", CONFIGS[f"{family} default nested"])
        assert spec.main.base == base
        assert any("does not read the base of rope_parameters" in note for note in spec.notes), family


@pytest.mark.parametrize("family", ["cohere", "gemma2", "glm4", "gptj", "gpt_neox", "mixtral", "phi", "stablelm"])
def test_14_mlx_lm_drops_a_scaling_silently(family: str) -> None:
    assert measured.load("mlx-lm", "0.32.2").families[family]["yarn flat"].startswith("unscaled")
    assert f"passes no scaling on in its {family}" in refusal("mlx-lm", f"{family} default flat")


def test_14_mlx_lm_s_own_spellings() -> None:
    assert "llama_4_scaling_beta) stands in it" in refusal("mlx-lm", "golden ministral-3-3b")
    for family in ("phi3", "internlm2"):
        assert "ValueError" in stopped("mlx-lm", f"{family} yarn flat")
        assert f"stops at rope type yarn in its {family}" in refusal("mlx-lm", f"{family} default flat")


def test_16_what_transformers_stops_at() -> None:
    for name, words in (
        ("llama yarn without factor", "stops at rope type yarn without factor"),
        ("phi3 su by type", "has no rope type su"),
        ("phi3 yarn flat", "stops at rope type yarn in its phi3"),
        ("phi3 linear flat", "stops at rope type linear in its phi3"),
    ):
        assert stopped("transformers", name)
        with pytest.raises(ConfigError, match=words):
            as_read_by("transformers", CONFIGS[name])
    assert all(run("transformers", "falcon default flat", method) for method in ("as it is", "yarn", "linear"))


def test_17_torchtitan_s_release_has_max_seq_len() -> None:
    text = export(read(CONFIGS["llama yarn flat"]), "torchtitan").text
    assert "max_seq_len=16384" in text and "max_context_length" not in text
    exports = measured.load("torchtitan", "0.3.0").exports.values()
    assert sum("ropes" in case for case in exports) > 200 and not any("stops" in case for case in exports)


@pytest.mark.parametrize("engine", ["transformers", "sglang", "vllm"])
def test_18_gemma_4_is_exported_as_it_is(engine: str) -> None:
    name = "golden gemma-4-12b"
    spec = read(CONFIGS[name])
    assert {rope.head_dim for rope in spec.ropes().values()} == {256, 512}
    assert run(engine, name, "as it is") and export(spec, engine).text


@pytest.mark.parametrize("version", ["0.32.0", "0.30.0", "0.29.0"])
def test_18_another_scaling_of_gemma_4_overrides_the_share_that_turns_in_vllm(version: str) -> None:
    """Its own full_attention turns a quarter of its channels; a key that is left out would stay."""
    spec = read(CONFIGS["golden gemma-4-12b"])
    text = export(spec.extended(4 * (spec.trained or 0), "yarn"), "vllm", version=version).text
    assert '"full_attention": {"partial_rotary_factor": 1.0, "rope_type": "yarn"' in text
    held = measured.load("vllm", version).exports["golden gemma-4-12b | yarn"]
    assert held["ropes"][held["layers"][-1]]["rotary"] == 512


@pytest.mark.parametrize("engine", NEWEST)
def test_19_longchat_s_ratio_is_read_by_none(engine: str) -> None:
    spec = as_read_by(engine, CONFIGS["tests longchat"])
    assert spec.main.scaling is None and any("does not read rope_condense_ratio" in note for note in spec.notes)
    assert turned(engine, "tests longchat")["w"][1] == pytest.approx(10000 ** (-1 / 64), rel=2e-6)


def test_19_nomic_s_factor() -> None:
    for engine in ("transformers", "sglang"):
        spec = as_read_by(engine, CONFIGS["tests nomic"])
        assert spec.main.scaling is None and any("does not read rotary_scaling_factor" in note for note in spec.notes)
        assert turned(engine, "tests nomic")["lengths"] == []


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_20_a_whole_number_as_the_factor_of_linear(engine: str) -> None:
    assert stopped(engine, "llama linear integer factor") == "TypeError: 'int' object is not iterable"
    with pytest.raises(ConfigError, match=r"stops at linear with a whole number .* write factor = 4.0"):
        as_read_by(engine, CONFIGS["llama linear integer factor"])
    spec = as_read_by(engine, CONFIGS["llama yarn integer factor"])
    assert spec.main.scaling is not None and isinstance(spec.main.scaling, YaRN)
    assert turned(engine, "llama yarn integer factor")["m"] == pytest.approx(M4, rel=2e-6)


ROPE_TYPES = json.loads((resources.files(measured) / "vllm-rope-types.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("version", ["0.32.0", "0.30.0", "0.29.0"])
def test_telechat_3_s_yarn_in_vllm(version: str) -> None:
    """yarn with m = 0.07 ln s + 1."""
    held = ROPE_TYPES[version]["telechat3-yarn"]
    config = {
        "model_type": "llama",
        "head_dim": 128,
        "max_position_embeddings": 16384,
        "rope_parameters": held["given"],
    }
    spec = as_read_by(f"vllm@{version}", config)
    assert held["m"] == pytest.approx(0.07 * math.log(4) + 1, rel=2e-6)
    assert spec.main.temperature() ** 0.5 == pytest.approx(held["m"], rel=2e-6)
    assert held["w"] == pytest.approx(list(spec.main.spectrum().frequencies), rel=2e-6) and held["error"] < 1


def test_bailing_s_m_rope_in_vllm() -> None:
    """Rows and columns in turn over the fast pairs, frames at the end: order="tail", in interleaved pairs."""
    held = ROPE_TYPES["0.32.0"]["bailing_mrope"]
    encoding = MRoPE(64, base=6e6, sections=(8, 12, 12), order="tail", pairing="interleaved")
    assert tuple(held["axes"]) == encoding.axis_of_pair
    config = {"model_type": "bailing_moe_v3_vl", "text_config": {
        "model_type": "bailing_hybrid", "hidden_size": 256, "num_attention_heads": 2, "num_hidden_layers": 1,
        "layer_types": ["full_attention"], "qk_rope_head_dim": 64, "max_position_embeddings": 131072,
        "rope_theta": 6e6, "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]}}}  # fmt: skip
    rope = as_read_by("vllm", config).main
    assert rope.sections == (8, 12, 12) and rope.pairing == held["pairing"] == "interleaved"
    assert held["w"] == pytest.approx(list(rope.spectrum().frequencies), rel=2e-6) and held["m"] == 1.0
