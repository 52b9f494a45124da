"""The dialects against what the engines were measured to do, for every config and version; needs no engine.

A test fails when code and measurement part. Then either the code is wrong, or it says something new of an engine, which
has to be measured: `make engines`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from functools import cache
from importlib import resources
from pathlib import Path

import gguf
import pytest

from milepost.rope import ENGINES, ConfigError, as_read_by, export, find_engine, read
from milepost.rope.engines import measured
from milepost.rope.engines.written import Refused
from milepost.scaling import LongRoPE
from tools.engines_docs import OUT, outcome, page

RUNS = [(engine, version) for engine in ENGINES for version in measured.versions(engine)]
"""Every engine in every version that was measured."""
READERS = [(engine, version) for engine, version in RUNS if ENGINES[engine].reads]


ALL = measured.defects()["all"]
own = cache(lambda name: read(measured.configs()[name]))
"""What a config means, read once."""


def defects_of(engine: str, version: str) -> list[str]:
    """The configs that a defect is named for."""
    return [name for key in ("all", engine, f"{engine}@{version}") for name in measured.defects().get(key, {})]


@pytest.mark.parametrize(("engine", "version"), READERS)
def test_readings_are_what_was_measured(engine: str, version: str) -> None:
    """Equal, or both stop; else the defect is named, and nothing is named that is none."""
    named = defects_of(engine, version)
    outcomes = {name: outcome(engine, version, name) for name in measured.load(engine, version).cases}
    parted = {n: o for n, o in outcomes.items() if o[0] in ("different", "engine stops", "milepost refuses")}
    assert {name: o for name, o in parted.items() if name not in named} == {}
    counts = Counter(word for word, _ in outcomes.values())
    fewer = engine in ("exllamav3", "onnxruntime-genai")  # they have classes for half of the families
    assert counts["equal"] > (120 if fewer else 200) and counts["not measured"] < (135 if fewer else 40), counts


def test_every_config_was_measured_by_every_engine() -> None:
    for engine, version in READERS:
        assert set(measured.load(engine, version).cases) == set(measured.configs())
    assert len(measured.configs()) >= 271


LACKS = ("no model class", "llama.cpp's converter has no ", "transformers 4.57.1, which it pins, has no ")
"""How reasons begin for which a config is not measured: what the engine lacks, not what the small config does."""


@pytest.mark.parametrize(("engine", "version"), RUNS)
def test_what_is_not_measured_has_no_class_in_the_engine(engine: str, version: str) -> None:
    held = measured.load(engine, version)
    reasons = {
        name: case["not_measured"] for name, case in (held.cases | held.exports).items() if "not_measured" in case
    }
    assert {name: why for name, why in reasons.items() if not why.startswith(LACKS)} == {}


def test_defects_are_about_configs_that_are_there() -> None:
    for engine, reasons in measured.defects().items():
        assert engine == "all" or engine.partition("@")[0] in ENGINES
        assert set(reasons) <= set(measured.configs())


@pytest.mark.parametrize(("engine", "version"), [run for run in RUNS if measured.load(*run).exports])
def test_exports_were_run_by_the_engine(engine: str, version: str) -> None:
    """What export writes today is what the engine was run with, and the engine turned as the spec says."""
    held = measured.load(engine, version)
    wrong = {}
    for key, case in held.exports.items():
        name, method = key.split(" | ")
        spec = own(name)
        spec = spec if method == "as it is" else spec.extended(4 * (spec.trained or 0), method)  # type: ignore[arg-type]
        try:
            text = hashlib.sha256(export(spec, engine, version=version).text.encode()).hexdigest()[:16]
        except Refused:
            if "refused" not in case:
                wrong[key] = "refused today, and measured"
            continue
        if "refused" in case or text != case["text"]:
            wrong[key] = "says something else than what was measured: make engines"
        elif "stops" in case:
            wrong[key] = case["stops"]
        elif "ropes" in case:
            apart = measured.apart_exported(held, case, spec)
            wrong |= {key: apart[0]} if apart else {}
    assert wrong == {}


@pytest.mark.parametrize(("engine", "version"), RUNS)
def test_every_version_was_run_with_exports(engine: str, version: str) -> None:
    """More than two hundred, of which the engine has a model for most."""
    exports = measured.load(engine, version).exports.values()
    ran = [case for case in exports if "refused" not in case]
    fewer = engine in ("exllamav3", "onnxruntime-genai")  # they have classes for half of the families
    assert len(ran) > 200
    assert sum("ropes" in case for case in ran) > (0.5 if fewer else 0.8) * len(ran)


@pytest.mark.parametrize(("engine", "version"), RUNS)
def test_cosines_and_sines_are_those_of_the_frequencies(engine: str, version: str) -> None:
    """At 0, 1, 255 to 257 and around the trained length, in units of what float32 angles explain.

    Three times that where an engine multiplies its way from pair to pair. In vLLM longrope's second table stands
    behind the first, so that positions beyond the length that is served are in it; transformers 4 begins with the long
    factors at another length. Other rotations that change with the text's length are defects that are named.
    """
    held = measured.load(engine, version)
    for name, case in (held.cases | held.exports).items():
        config = name.partition(" | ")[0]
        if config in ALL or (engine in ("vllm", "transformers-v4") and isinstance(own(config).main.scaling, LongRoPE)):
            continue
        if config in defects_of(engine, version):
            continue
        for rope in case.get("ropes", []):
            assert rope["error"] < (3 if engine in measured.STEP else 1), name


def test_the_page_is_what_the_files_say() -> None:
    assert OUT.read_text(encoding="utf-8") == page()


def test_what_could_not_be_run_is_of_an_engine() -> None:
    assert {name.partition("@")[0] for name in measured.not_run()} <= set(ENGINES)


def test_sglang_by_its_version() -> None:
    """0.5.9 reads neither rope_parameters nor mscale; 0.5.23 reads both, and overrides are spelled for each."""
    nested = measured.configs()["llama yarn nested"]
    assert as_read_by("sglang", nested).main.base == 300000
    assert as_read_by("sglang@0.5.9", nested).main.base == 10000
    scales = measured.configs()["llama yarn mscale 1 mscale_all_dim 1"]
    assert as_read_by("sglang", scales).main.spectrum().temperature == pytest.approx(1, rel=1e-12)
    assert as_read_by("sglang@0.5.9", scales).main.spectrum().temperature == pytest.approx(1.2965, rel=1e-4)
    with pytest.raises(Refused, match=r"SGLang 0.5.23 passes no scaling on in its gemma2"):
        export(read(measured.configs()["gemma2 yarn flat"]), "sglang")
    assert "rope_parameters" in export(read(measured.configs()["llama yarn flat"]), "sglang").text
    assert "rope_scaling" in export(read(measured.configs()["llama yarn flat"]), "sglang@0.5.9").text


def test_the_dropped_scaling_is_said_with_the_version() -> None:
    config = measured.configs()["gemma2 yarn flat"]
    (note,) = [n for n in as_read_by("mlx-lm@0.32", config).notes if "silently" in n]
    assert note.startswith("mlx-lm 0.32.2 passes no scaling on in its gemma2: yarn(")
    with pytest.raises(Refused, match=r"mlx-lm 0.32.2 passes no scaling on in its gemma2"):
        export(read(config), "mlx-lm")
    nested = as_read_by("mlx-lm@0.32", measured.configs()["llama yarn nested"])
    assert nested.main.base == 10000 and nested.main.scaling is None
    assert find_engine("mlx-lm").evidence() == "measured with mlx-lm 0.32.2"


def test_llama_cpp_runs_a_real_model_as_its_flags_are_read() -> None:
    """Log-probabilities of SmolLM2 against an oracle that was given milepost's frequencies, and servers that were asked.

    The sum of 30 layers in float32 is off by some 1e-4; a server's cache is in float16, which has 2^-11 of each number.
    """
    held = json.loads((resources.files(measured) / "llama.cpp-logits.json").read_text(encoding="utf-8"))
    for build, cases in held["builds"].items():
        assert len(cases) >= 9, build
        for flags, case in cases.items():
            assert case["largest"] < 5e-4, (build, flags)
            if "none" not in flags.split("--rope-freq-base")[0] and flags:
                assert case["effect"] > 100 * case["largest"], (build, flags)
            if "server" in case:
                assert case["server"] < 5e-3, (build, flags)
                assert case["server_effect"] > 100 * case["server"], (build, flags)


@pytest.mark.parametrize("version", ["0.32.0", "0.30.0", "0.29.0"])
def test_vllm_takes_the_lengths_that_are_said(version: str) -> None:
    """--max-model-len up to max_position_embeddings, with linear and dynamic up to that times their factor, no more.

    Up to 0.29 a yarn multiplies its trained length by its factor.
    """
    held = json.loads((resources.files(measured) / "vllm-served.json").read_text(encoding="utf-8"))[version]
    assert held["llama yarn, 4096 positions"]["refused"][0] == (16385 if version == "0.29.0" else 4097)
    for name, answer in held.items():
        for length in answer["taken"]:
            assert as_read_by("vllm", answer["config"], served=length, version=version).served == length, name
        for length in answer["refused"]:
            with pytest.raises(ConfigError, match=f"refuses --max-model-len {length} "):
                as_read_by("vllm", answer["config"], served=length, version=version)
        assert as_read_by("vllm", answer["config"], version=version).served == answer["by default"], name


@pytest.mark.parametrize("build", ["11549", "8929"])
def test_losses_of_real_conversions_are_named(build: str) -> None:
    """Files of llama.cpp's own converter lose what it is known to lose; losses that were planted are all named."""
    held = json.loads((resources.files(measured) / "llama.cpp-pairs.json").read_text(encoding="utf-8"))[build]
    clean = [name for name, said in held.items() if not said["as it is"]]
    assert len(held) >= 12 and len(clean) >= 6
    assert any("the base 300000: the file says none" in line for line in held["gemma2 default flat"]["as it is"])
    assert any(line.startswith("m = 0.8000") for line in held["llama yarn attention_factor 0.8"]["as it is"])
    words = {"base taken out": "the base", "factors taken out": "not in the file", "rows of q not permuted": "attn_q"}
    for loss, expected in words.items():
        planted = [said[loss] for said in held.values() if loss in said]
        assert planted and all(any(expected in line for line in said) for said in planted), loss


def test_falcon_in_llama_cpp() -> None:
    """Its converter writes nothing about rotation, and stops without num_kv_heads; export says so."""
    plain = {"model_type": "falcon", "hidden_size": 256, "num_attention_heads": 2, "alibi": False, "rope_theta": 3e5,
             "max_position_embeddings": 2048, "num_hidden_layers": 2}  # fmt: skip
    with pytest.raises(ConfigError, match="stops at falcon without num_kv_heads"):
        as_read_by("llama.cpp", plain)
    spec = as_read_by("llama.cpp", {**plain, "num_kv_heads": 1})
    assert spec.main.base == 10000 and "neither base nor scaling of Falcon" in spec.notes[0]
    written = export(read(plain), "llama.cpp")
    assert "--rope-freq-base 300000" in written.text and "write num_kv_heads = 1" in written.notes[0]


def test_pairs_that_stand_still_in_llama_cpp() -> None:
    """Qwen3-VL deals 24, 20 and 20 pairs in turn: 61 and 62 are beyond their axes. Qwen3.5's 11, 11 and 10 are not."""
    config = measured.configs()["golden qwen3-vl-8b"]
    (note,) = [n for n in as_read_by("llama.cpp", config).notes if "fourth axis" in n]
    behind = 1e5 * 5e6 ** (-2 * 61 / 128)
    assert "pairs 61, 62" in note and f"{behind:.3g} radians" in note
    with pytest.raises(Refused, match="pairs 61, 62 of this M-RoPE"):
        export(read(config), "llama.cpp")
    assert not [n for n in as_read_by("llama.cpp", measured.configs()["golden qwen3.5-9b"]).notes if "axis" in n]


def test_phi_3_by_its_older_name_is_refused_where_the_engine_stops() -> None:
    spec = read(measured.configs()["golden phi-3-vision-128k"])
    for engine in ("vllm", "sglang", "vllm@0.29.0"):
        for longer in (spec, spec.extended(16384, "ntk")):
            with pytest.raises(Refused, match=r"stops at rope type su .* before any override arrives"):
                export(longer, engine)
    assert "--json-model-override-args" in export(spec, "sglang@0.5.9").text


def test_a_gguf_with_an_attention_factor_of_its_own(tmp_path: Path) -> None:
    """rope.scaling.attn_factor stays, also where llama.cpp is asked with a length: m = 0.9 * (0.1 ln 4 + 1)."""
    file = tmp_path / "model.gguf"
    out = gguf.GGUFWriter(file, "llama")
    out.add_context_length(16384)
    out.add_embedding_length(256)
    out.add_block_count(2)
    out.add_head_count(2)
    out.add_rope_freq_base(500000.0)
    out.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    out.add_rope_scaling_factor(4.0)
    out.add_rope_scaling_orig_ctx_len(4096)
    out.add_float32("llama.rope.scaling.attn_factor", 0.9)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    for spec in (read(file), as_read_by("llama.cpp", file), as_read_by("llama.cpp", file, served=8192)):
        assert spec.main.temperature() ** 0.5 == pytest.approx(0.9 * (0.1 * math.log(4) + 1), rel=1e-6)
