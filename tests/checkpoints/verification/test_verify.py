"""verify on honest models, in every form that it is given them; what it says when nothing can be proved; and bad input,
which leaves all as it was."""

from __future__ import annotations

import dataclasses
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import HONEST, LONG, build, transformers
from typer.testing import CliRunner

from milepost.checkpoints import Verification, verify
from milepost.checkpoints.model.probe import Case, Check, judged
from milepost.checkpoints.verification.frequencies import follow
from milepost.cli import app
from milepost.rope import ConfigError

BIAS = ("falcon, alibi", "bloom", "mpt", "t5")
TABLE = ("gpt2", "opt")
runner = CliRunner()


def saved(name: str, folder: Path, **more: Any) -> Path:
    build(name, **more).save_pretrained(folder)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# -- no false alarm --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(HONEST))
def test_an_honest_model_passes_and_every_check_could_have_failed(name):
    done = verify(build(name))
    assert done.ok, [(c.name, c.sentence) for c in done.checks if c.verdict == "FAIL"]
    assert not [c for c in done.checks if c.verdict == "BLIND"], "a check proved nothing"
    verdicts = {c.name: c.verdict for c in done.checks}
    must = {"cached", "left-padded", "history", "reload"}
    if name in BIAS:
        must |= {
            f"bias, {when}, {kind}"
            for when in ("reading", "saying")
            for kind in (("sdpa",) if "falcon" in name else ("eager",))
        }
    elif name in TABLE:
        must |= {"positions under padding", "packed", "past the end"}
    else:
        must |= {
            "layers",
            "rotary size",
            "pairing",
            "frequencies",
            "temperature",
            "positions",
            "precision",
            "positions under padding",
            "packed",
        }
    assert {n for n in must if verdicts.get(n) != "PASS"} == set()
    for c in done.checks:
        if c.verdict == "PASS" and c.control is not None:
            assert c.control > 10 * c.allowed, c  # far from what is allowed
            assert c.measured <= c.allowed


@pytest.mark.parametrize("name", ["llama, yarn", "gemma3", "gpt_neox", "bloom", "gpt2"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_a_folder_loaded_in_other_precision_passes(name, dtype, tmp_path):
    done = verify(saved(name, tmp_path / "model"), dtype=dtype)
    assert done.ok, [(c.name, c.sentence) for c in done.checks if c.verdict == "FAIL"]
    assert done.provenance["protocol"]["dtype"] == dtype


def test_longrope_below_its_switch_is_as_asked():
    """And what happens at the switch is transformers' fault, with what Phi-3's own generate does about it."""
    done = verify(build("phi3", **LONG, original_max_position_embeddings=128))
    assert done.failed == ("cached past trained",)
    assert "its generate drops the cache there" in done["cached past trained"].sentence
    assert done["temperature"].verdict == "PASS" and "1.28" in done["temperature"].sentence  # 1 + ln 4 / ln 128


def test_a_model_is_held_to_another_config_if_one_is_given(tmp_path):
    model = build("llama")
    assert verify(model, config=saved("llama", tmp_path / "same")).ok
    done = verify(model, config=HONEST["llama, linear"])
    assert "frequencies" in done.failed


def test_a_model_of_one_head_is_measured_on_several_texts():
    """One head: a turn of one pair explains anything in one text; so several texts are read at once."""
    assert verify(build("llama", num_attention_heads=1, num_key_value_heads=1, hidden_size=32)).ok


# -- nothing is proved -----------------------------------------------------------------------------------------------


def test_a_model_without_queries_proves_nothing():
    model = build("llama")
    for layer in model.model.layers:
        torch.nn.init.zeros_(layer.self_attn.q_proj.weight)
        torch.nn.init.zeros_(layer.self_attn.k_proj.weight)
    done = verify(model)
    assert done["frequencies"].verdict == "BLIND" and "zero in every channel" in done["frequencies"].sentence
    assert (
        done["cached"].verdict == done["left-padded"].verdict == "BLIND"
        and "nothing is proved" in done["cached"].sentence
    )


def test_a_t5_without_a_bias_proves_nothing():
    model = build("t5")
    for part in (model.encoder, model.decoder):
        torch.nn.init.zeros_(part.block[0].layer[0].SelfAttention.relative_attention_bias.weight)
    done = verify(model)
    assert {c.verdict for c in done.checks if c.name.startswith("bias")} == {"BLIND"}
    assert done["cached"].verdict == "BLIND"


def test_a_check_is_judged_by_what_is_allowed_and_by_its_control():
    fine = Check("a", "PASS", "fine", 1.0, 2.0, 3.0)
    assert judged(fine, "wrong", "why").verdict == "PASS"
    assert judged(dataclasses.replace(fine, measured=2.5), "wrong", "why").sentence == "wrong"
    assert judged(dataclasses.replace(fine, measured=float("nan")), "wrong", "why").verdict == "FAIL"
    assert judged(dataclasses.replace(fine, control=2.0), "wrong", "why").verdict == "BLIND"


def test_frequencies_are_followed_through_many_turns():
    pos = torch.tensor([0, 1, 2, 4, 8, 16, 32, 64, 128, 256])
    w = torch.tensor([1.0, 0.37, 1e-3, 2.0], dtype=torch.float64)
    z = torch.polar(torch.ones(10, 4, dtype=torch.float64), pos[:, None] * w)
    assert torch.allclose(follow(z, pos, 256), w, rtol=1e-12)


def test_rounding_is_that_of_the_model_at_hand():
    case = Case(build("llama"), build("llama").config.to_dict())
    small = case.rounding
    half = build("llama").to(torch.bfloat16)
    assert 1e-7 < small < 1e-3 < Case(half, half.config.to_dict()).rounding < 5
    assert all(p.dtype == torch.float32 for p in case.model.parameters())


def test_rounding_of_a_model_too_large_for_float64_is_near_the_same(monkeypatch):
    model = build("llama")
    exact = Case(model, model.config.to_dict()).rounding
    monkeypatch.setattr("milepost.checkpoints.model.probe.WHOLE", 0)
    assert exact / 20 < Case(model, model.config.to_dict()).rounding < 20 * exact
    assert verify(model).ok


@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert"])
def test_a_model_that_does_not_generate_is_read_padded(kind):
    sizes = {
        k: v for k, v in HONEST["llama"].items() if k not in ("model_type", "rope_parameters", "num_key_value_heads")
    }
    config = transformers.AutoConfig.for_model(kind, **sizes)
    torch.manual_seed(0)
    done = verify(transformers.AutoModelForMaskedLM.from_config(config).eval())
    assert done.ok, [(c.name, c.sentence) for c in done.checks if c.verdict == "FAIL"]
    assert done["cached"].verdict == done["packed"].verdict == "NONE" and done["padded"].verdict == "PASS"


# -- data, pages, commands -------------------------------------------------------------------------------------------


def test_the_result_is_plain_data_and_a_page_in_a_notebook():
    done = verify(build("llama"))
    assert isinstance(done, Verification)
    with pytest.raises(dataclasses.FrozenInstanceError):
        done.model = "x"  # type: ignore[misc]
    data = json.loads(json.dumps(done.to_json(), allow_nan=False))
    assert (
        data["ok"]
        and data["failed"] == []
        and {"name", "verdict", "sentence", "measured", "allowed", "control", "unit"} <= set(data["checks"][0])
    )
    assert "frequencies" in done._repr_html_() and "<table" in done._repr_html_()
    with pytest.raises(KeyError, match="there is no check 'colour'"):
        done["colour"]


def test_the_command_writes_pages_and_exits_0(tmp_path):
    folder = saved("llama, yarn", tmp_path / "model")
    before = files(folder)
    ran = runner.invoke(app, ["verify", str(folder), "--out", str(tmp_path / "out"), "--json"])
    assert ran.exit_code == 0, ran.output
    data = json.loads(ran.stdout)
    assert data["ok"] and data["model_type"] == "llama"
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"report.html", "report.md", "verification.json"}
    page = (tmp_path / "out" / "report.html").read_text()
    assert "frequencies" in page and "default-src 'none'" in page
    assert "| PASS | frequencies |" in (tmp_path / "out" / "report.md").read_text()
    assert files(folder) == before


def test_the_command_exits_1_on_a_failure_with_a_table(tmp_path):
    folder = saved(
        "llama",
        tmp_path / "model",
        rope_parameters={"rope_type": "dynamic", "rope_theta": 50000.0, "factor": 2.0},
        max_position_embeddings=128,
    )
    ran = runner.invoke(app, ["verify", str(folder)], env={"COLUMNS": "200"})
    assert ran.exit_code == 1
    assert "cached past trained" in ran.stdout and "FAIL" in ran.stdout and "2 failed" in ran.stdout


def test_an_example_stands_in_the_help():
    shown = runner.invoke(app, ["verify", "--help"], env={"COLUMNS": "200"}).stdout
    assert "milepost verify path/to/model" in shown


# -- bad input -------------------------------------------------------------------------------------------------------


def change(folder: Path, **config: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def packed(folder: Path) -> None:
    path = folder / "model.safetensors"
    save_file(
        load_file(path) | {"model.layers.0.self_attn.q_proj.qweight": torch.zeros(4, 4, dtype=torch.int32)},
        path,
        {"format": "pt"},
    )


def header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 40) + b"{}")


def fewer(folder: Path) -> None:
    path = folder / "model.safetensors"
    save_file({k: v for k, v in load_file(path).items() if "layers.1" not in k}, path, {"format": "pt"})


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


BAD = {
    "no config": (lambda f: (f / "config.json").unlink(), "holds none of config.json"),
    "config cut": (lambda f: (f / "config.json").write_text('{"model_type": "lla'), "is not whole JSON"),
    "config a list": (lambda f: (f / "config.json").write_text("[]"), "must hold a JSON object"),
    "rope type unknown": (lambda f: change(f, rope_parameters={"rope_type": "spiral", "rope_theta": 1e4}), "spiral"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has no weights (model.safetensors"),
    "weights cut": (cut, "is not a whole safetensors file"),
    "header too long": (header, "is not a whole safetensors file"),
    "pickle": (pickled, "pytorch_model.bin"),
    "a layer missing": (fewer, "is it the whole model?"),
    "GPTQ config": (
        lambda f: change(f, quantization_config={"quant_method": "gptq", "bits": 4}),
        "quantised (quantization_config: gptq)",
    ),
    "AWQ config": (
        lambda f: change(f, quantization_config={"quant_method": "awq", "bits": 4}),
        "quantised (quantization_config: awq)",
    ),
    "bitsandbytes": (
        lambda f: change(f, quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}),
        "quantised",
    ),
    "quantised tensors": (packed, "quantised tensors"),
    "remote code": (
        lambda f: change(
            f,
            model_type="own",
            architectures=["OwnForCausalLM"],
            auto_map={"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"},
        ),
        "asks for code of its own",
    ),
    "unknown type": (
        lambda f: change(f, model_type="own", architectures=["OwnForCausalLM"]),
        "transformers has no model of type",
    ),
}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved("llama", tmp_path_factory.mktemp("good") / "model")


@pytest.mark.parametrize("what", sorted(BAD))
def test_bad_input_is_refused_in_one_sentence_and_left_alone(what, good, tmp_path):
    spoil, words = BAD[what]
    folder = tmp_path / "model"
    shutil.copytree(good, folder)
    spoil(folder)
    before = files(folder)
    ran = runner.invoke(app, ["verify", str(folder), "--out", str(tmp_path / "out")])
    assert ran.exit_code == 2, ran.output
    said = [line for line in ran.stderr.splitlines() if line.startswith("milepost: ")]
    assert len(said) == 1 and words in said[0], ran.stderr
    assert ran.stdout == "" and "Traceback" not in ran.stderr
    assert files(folder) == before and not (tmp_path / "out").exists()


def test_other_bad_words(good, tmp_path):
    for args, words in (
        ([str(tmp_path / "nowhere")], "there is no file or folder"),
        ([str(good / "config.json")], "is a file"),
        ([str(good), "--device", "abacus"], "can't be used here"),
        ([str(good), "--out", str(good)], "the source is never written to"),
    ):
        ran = runner.invoke(app, ["verify", *args])
        assert ran.exit_code == 2 and words in ran.stderr, ran.output
    assert runner.invoke(app, ["verify", str(good), "--dtype", "int4"]).exit_code == 2
    with pytest.raises(ConfigError, match="dtype is one of"):
        verify(good, dtype="int4")
    with pytest.raises(ConfigError, match="takes a model of transformers"):
        verify(torch.nn.Linear(2, 2))
    with torch.device("meta"):
        model = type(build("llama"))(build("llama").config)
    with pytest.raises(ConfigError, match="on the meta device"):
        verify(model)
