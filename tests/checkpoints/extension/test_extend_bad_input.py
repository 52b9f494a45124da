"""extend and what can't be extended: one sentence, the right exit code, the source bit by bit as it was, and nothing
half-written.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import build, transformers
from typer.testing import CliRunner

from milepost.checkpoints import extend
from milepost.checkpoints.extension.source import open_source
from milepost.cli import app
from milepost.rope import ConfigError
from milepost.rope.engines.written import Refused

runner = CliRunner()
TARGET = 2048


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good") / "model"
    build("llama").save_pretrained(folder)  # trained for 512
    return folder


@pytest.fixture
def model(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "model"))


def change(folder: Path, **config: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))


def packed(folder: Path) -> None:
    path = folder / "model.safetensors"
    save_file(
        load_file(path) | {"model.layers.0.self_attn.q_proj.qweight": torch.zeros(4, 4, dtype=torch.int32)},
        path,
        {"format": "pt"},
    )


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def index(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}})
    )


def lab(folder: Path) -> None:
    (folder / "config.json").rename(folder / "model.json")


def own_code(folder: Path) -> None:
    change(
        folder,
        model_type="own",
        architectures=["OwnForCausalLM"],
        auto_map={"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"},
    )


BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no config": (lambda f: (f / "config.json").unlink(), "has no config.json"),
    "config cut": (lambda f: (f / "config.json").write_text('{"model_type": "lla'), "is not whole JSON"),
    "config a list": (lambda f: (f / "config.json").write_text("[]"), "must hold a JSON object"),
    "rope type unknown": (lambda f: change(f, rope_parameters={"rope_type": "spiral", "rope_theta": 1e4}), "spiral"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has no weights (model.safetensors"),
    "weights cut": (cut, "is not a whole safetensors file"),
    "a shard missing": (index, "names 1 files that are not there"),
    "pickle": (lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"), "pytorch_model.bin"),
    "GPTQ": (
        lambda f: change(f, quantization_config={"quant_method": "gptq", "bits": 4}),
        "quantised (quantization_config: gptq)",
    ),
    "AWQ": (
        lambda f: change(f, quantization_config={"quant_method": "awq", "bits": 4}),
        "quantised (quantization_config: awq)",
    ),
    "bitsandbytes": (
        lambda f: change(f, quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True}),
        "quantised",
    ),
    "quantised tensors": (packed, "quantised tensors"),
    "remote code": (own_code, "asks for code of its own"),
    "unknown type": (
        lambda f: change(f, model_type="own", architectures=["OwnForCausalLM"]),
        "transformers has no model of type",
    ),
    "no trained length": (lambda f: change(f, max_position_embeddings=None), "does not say its trained length"),
    "serves more already": (
        lambda f: change(f, max_position_embeddings=4096),
        "serves 4096 tokens already (trained for 4096)",
    ),
    "scaled to more already": (
        lambda f: change(f, rope_parameters={"rope_type": "linear", "rope_theta": 5e4, "factor": 8.0}),
        "serves 4096 tokens already (trained for 512, scaled to 4096): a target length of 2048 is not above that",
    ),
    "a lab model": (lab, "is of the lab"),
    "GGUF": (lambda f: (f / "config.json").rename(f / "model.gguf"), "takes a scaling as flags: `milepost export"),
    "a layer missing": (
        lambda f: save_file(
            {k: v for k, v in load_file(f / "model.safetensors").items() if "layers.1" not in k},
            f / "model.safetensors",
            {"format": "pt"},
        ),
        "is it the whole model?",
    ),
}


@pytest.mark.parametrize("what", sorted(BAD))
def test_bad_input_is_refused_in_one_sentence_and_left_alone(what, model, tmp_path):
    spoil, words = BAD[what]
    spoil(model)
    before = files(model)
    ran = runner.invoke(
        app, ["extend", str(model), "--target-length", str(TARGET), "--method", "yarn", "--out", str(tmp_path / "out")]
    )
    assert ran.exit_code == 2, ran.output
    said = [line for line in ran.stderr.splitlines() if line.startswith("milepost: ")]
    assert len(said) == 1 and words in said[0], ran.stderr
    assert ran.stdout == "" and "Traceback" not in ran.stderr
    assert files(model) == before and [p.name for p in tmp_path.iterdir()] == ["model"]


def test_an_out_that_is_taken_is_left_as_it_is(model, tmp_path):
    before = files(model)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("a file")
    for out, words in (
        (tmp_path / "taken", "is there already, and not an empty folder"),
        (tmp_path / "file", "is there already, and not an empty folder"),
        (model, "is the source folder, or inside of it"),
        (model / "inside" / "of it", "is the source folder, or inside of it"),
        (tmp_path, "is there already, and not an empty folder"),
    ):
        ran = runner.invoke(app, ["extend", str(model), "--target-length", "2k", "--method", "yarn", "--out", str(out)])
        assert ran.exit_code == 2 and words in ran.stderr, ran.output
    assert files(model) == before and files(tmp_path / "taken") == {"mine.txt": b"mine"}
    (tmp_path / "empty").mkdir()
    assert extend(model, target_length=TARGET, method="yarn", out=tmp_path / "empty").ok


@pytest.mark.parametrize(
    "words, said",
    [
        (["--target-length", "0"], "lengths are numbers such as 4096 or 4k"),
        (["--target-length", "512", "--method", "yarn"], "serves 512 tokens already"),
        (["--target-length", "2k,4k"], "is one length"),
        (["--target-length", "2k"], "method auto measures every method on a text of yours"),
        (["--target-length", "2k", "--method", "yarn", "--tune", "3"], "--tune trains on a text of yours"),
        (["--target-length", "2k", "--method", "yarn", "--resume"], "--resume goes on with tuning"),
        (["--target-length", "2k", "--method", "yarn", "--tune-length", "1k"], "--tune-length is for tuning"),
        (["--target-length", "2k", "--method", "yarn", "--device", "abacus"], "can't be used here"),
        (["--target-length", "2k", "--method", "yarn", "--text", "nowhere.txt"], "nowhere.txt"),
        (
            ["--target-length", "2k", "--method", "yarn", "--text", "TEXT"],
            "is too short: 2 windows of 2048 tokens without overlap need 4098 tokens",
        ),
        (["--target-length", "2k", "--method", "yarn", "--text", "TEXT", "--tune", "0"], "at least 1 step"),
        (
            ["--target-length", "2k", "--method", "yarn", "--text", "TEXT", "--tune", "3", "--link"],
            "leave one of them out",
        ),
        (
            ["--target-length", "2k", "--method", "yarn", "--text", "TEXT", "--tune", "3", "--tune-length", "4k"],
            "is longer than the target length 2048",
        ),
    ],
)
def test_words_that_do_not_go_together(words, said, model, tmp_path):
    np.save(tmp_path / "text.npy", np.arange(3000) % 64)
    before = files(tmp_path)
    given = [str(tmp_path / "text.npy") if word == "TEXT" else word for word in words]
    ran = runner.invoke(app, ["extend", str(model), *given, "--out", str(tmp_path / "out")])
    assert ran.exit_code == 2 and said in ran.stderr, ran.output
    assert ran.stdout == "" and files(tmp_path) == before


def test_other_bad_words_in_python(model, tmp_path):
    for given, words in (
        ({"target_length": True}, "number of tokens"),
        ({"target_length": 2048, "method": "spiral"}, "unknown method 'spiral'; there are auto, base"),
        ({"target_length": 2048, "dtype": "int4"}, "dtype is one of"),
        ({"target_length": 2048, "factor": float("inf")}, "factor inf"),
        ({"target_length": 2048, "method": "auto", "text": "t", "factor": 4.0}, "auto chooses the factor too"),
    ):
        with pytest.raises(ConfigError, match=words):
            extend(model, **{"method": "yarn", "out": tmp_path / "out", **given})
    with pytest.raises(ConfigError, match="is a file: extend writes a whole checkpoint"):
        extend(model / "config.json", target_length=2048, method="yarn", out=tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


NOTHING_TO_STRETCH = {
    "gpt2": "learned table of 512 positions, and position 512 has no row: 2048 tokens need new rows and training",
    "opt": "learned table of 512 positions",
    "bloom": "ALiBi, which goes on in a straight line",
    "mpt": "nothing to set but the served length (max_seq_len = 2048)",
    "falcon, alibi": "nothing to set but the served length (max_position_embeddings = 2048)",
    "t5": "distances of about 128 and more share the last bucket",
    "gptj": "reads no scaling from its config",
}


@pytest.mark.parametrize("name", sorted(NOTHING_TO_STRETCH))
def test_a_model_with_nothing_to_stretch_is_refused_with_exit_1(name, tmp_path):
    build(name).save_pretrained(tmp_path / "model")
    before = files(tmp_path)
    ran = runner.invoke(
        app,
        [
            "extend",
            str(tmp_path / "model"),
            "--target-length",
            "2k",
            "--method",
            "yarn",
            "--out",
            str(tmp_path / "out"),
            "--json",
        ],
    )
    assert ran.exit_code == 1 and NOTHING_TO_STRETCH[name] in ran.stderr, ran.output
    assert ran.stderr.count("\n") == 1 and NOTHING_TO_STRETCH[name] in json.loads(ran.stdout)["refused"]
    assert files(tmp_path) == before


def test_a_bert_has_a_table_too(tmp_path):
    config = transformers.AutoConfig.for_model(
        "bert", vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    transformers.AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path / "model")
    with pytest.raises(Refused, match="learned table of 512 positions"):
        open_source(tmp_path / "model", TARGET)


# -- nothing half-written --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["generation_config.json", "model.safetensors"])
def test_a_full_disk_leaves_nothing(name, model, tmp_path, monkeypatch):
    real = shutil.copyfile

    def full(source: Path, copy: Path, **more: Any) -> Any:
        if Path(source).name == name:
            Path(copy).write_bytes(b"half")
            raise OSError(28, "No space left on device")
        return real(source, copy, **more)

    before = files(model)
    monkeypatch.setattr("milepost.measure.folder.shutil.copyfile", full)
    ran = runner.invoke(
        app,
        ["extend", str(model), "--target-length", "2k", "--method", "yarn", "--out", str(tmp_path / "deep" / "out")],
    )
    assert ran.exit_code == 2 and "No space left on device" in ran.stderr
    assert files(model) == before and [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_disk_that_is_too_small_is_seen_before_anything_is_written(model, tmp_path, monkeypatch):
    monkeypatch.setattr("milepost.measure.folder.shutil.disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 0))
    with pytest.raises(ValueError, match=r"needs 0\.000\d GB, and 0\.0000 GB are free there"):
        extend(model, target_length=TARGET, method="yarn", out=tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


KILLED = """
import os, signal, sys
from milepost.checkpoints import extend
def tell(text):
    if text.startswith(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
extend(sys.argv[1], target_length=2048, method="yarn", out=sys.argv[2], tell=tell)
"""


@pytest.mark.slow
def test_a_run_that_is_killed_leaves_no_half_of_a_folder(model, tmp_path):
    """In the middle of verify: the folder is whole by then, but nobody has looked at it."""
    before = files(model)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(model), str(tmp_path / "out"), "checking layouts"],
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert files(model) == before and not (tmp_path / "out").exists()
    assert all(p.name in (".out.unfinished", ".out.lock") for p in tmp_path.iterdir() if p != model)
    assert extend(model, target_length=TARGET, method="yarn", out=tmp_path / "out").ok
