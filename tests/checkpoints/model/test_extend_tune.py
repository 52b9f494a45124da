"""Tuning an extended model: killed and gone on with, bit by bit the same; on one half of the text, measured on the
other; in the source's precision."""

from __future__ import annotations

import importlib.util
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from launched import launch
from safetensors.torch import load_file, save_file
from tiny_models import build
from typer.testing import CliRunner

from milepost.checkpoints import extend
from milepost.checkpoints.extension.losses import ExtensionLosses
from milepost.checkpoints.extension.plan import plan_extension
from milepost.checkpoints.extension.source import open_source
from milepost.checkpoints.model.load import load
from milepost.checkpoints.model.tune import Tuning, has_peft
from milepost.cli import app

pytestmark = pytest.mark.slow

L = 64
STEPS = 8
HOW: dict[str, Any] = {"target_length": 2 * L, "method": "yarn", "tune": STEPS, "rate": 3e-3}


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tune") / "model"
    build("llama", max_position_embeddings=L, attention_dropout=0.1, initializer_range=0.05).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def book(model: Path) -> Path:
    """Tokens of which the next is easily said: two more than the last, with some noise."""
    rng = np.random.default_rng(0)
    steps = np.where(rng.random(12000) < 0.9, 2, rng.integers(0, 61, 12000))
    np.save(model.parent / "book.npy", 3 + np.cumsum(steps) % 61)
    return model.parent / "book.npy"


KILLED = """
import json, os, signal, sys
from milepost.checkpoints import extend
def tell(text):
    if text.startswith(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
extend(sys.argv[1], out=sys.argv[2], text=sys.argv[3], tell=tell, **json.loads(sys.argv[5]))
"""


def killed(model: Path, book: Path, out: Path, when: str) -> None:
    words = [sys.executable, "-c", KILLED, str(model), str(out), str(book), when, json.dumps(HOW)]
    done = subprocess.run(words, capture_output=True, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_a_tune_that_is_killed_goes_on_and_ends_with_the_same_bits(model, book, tmp_path):
    """With dropout in it, so that the random numbers have to go on as well."""
    before = files(model)
    torch_threads = torch.get_num_threads()
    killed(model, book, tmp_path / "killed", "tuning: step 5")
    assert not (tmp_path / "killed").exists() and (tmp_path / ".killed.unfinished").is_dir() and files(model) == before
    state = tmp_path / ".killed.unfinished" / "state"
    assert sorted(p.name for p in state.iterdir()) == ["checkpoint-3", "checkpoint-4"]
    shutil.copytree(state / "checkpoint-3", state / "checkpoint-5")  # as if it was killed while it saved the next
    (state / "checkpoint-5" / "whole").unlink()
    (state / "checkpoint-5" / "model.safetensors").write_bytes(b"half")

    with pytest.raises(ValueError, match="holds a training that did not end: resume it"):
        extend(model, out=tmp_path / "killed", text=book, **HOW)
    for other, words in (
        ({"rate": 1e-3}, "its tuning is"),
        ({"tune": STEPS + 1}, "its tuning is"),
        ({"target_length": 2 * L + 2}, "its factor is"),
    ):
        with pytest.raises(ValueError, match=f"is of another training: {words}"):
            extend(model, out=tmp_path / "killed", text=book, resume=True, **{**HOW, **other})

    said: list[str] = []
    resumed = extend(model, out=tmp_path / "killed", text=book, resume=True, tell=said.append, **HOW)
    assert "going on from step 4 of 8" in said and not any(text.startswith("tuning: step 4 ") for text in said)
    whole = extend(model, out=tmp_path / "whole", text=book, **HOW)
    assert torch.get_num_threads() == torch_threads
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("killed", "whole"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert [row["loss"] for row in resumed.tuned["loss"]] == [row["loss"] for row in whole.tuned["loss"]] and len(
        whole.tuned["loss"]
    ) == STEPS
    assert {p.name for p in tmp_path.iterdir()} == {"killed", "whole"} and files(model) == before


def stopping_at(words: str, said: list[str]) -> Any:
    """A ``tell`` that ends the run where it would say ``words``; what was said is kept in ``said``."""

    def tell(text: str) -> None:
        said.append(text)
        if text.startswith(words):
            raise KeyboardInterrupt

    return tell


def test_a_tune_that_ended_before_the_kill_is_not_trained_any_further(model, book, tmp_path):
    """Each resume after the last checkpoint would train one step more."""
    whole = extend(model, out=tmp_path / "whole", text=book, **HOW)
    said: list[str] = []
    for resume in (False, True, True):
        with pytest.raises(KeyboardInterrupt):
            tell = stopping_at("measuring the loss after", said)
            extend(model, out=tmp_path / "killed", text=book, resume=resume, tell=tell, **HOW)
    resumed = extend(model, out=tmp_path / "killed", text=book, resume=True, tell=said.append, **HOW)
    steps = [int(text.split()[2]) for text in said if text.startswith("tuning: step ")]
    assert steps == list(range(1, STEPS + 1)) and not any(" -" in text for text in said if text.endswith(" left"))
    assert said.count(f"going on from step {STEPS} of {STEPS}") == 3
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("killed", "whole"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert resumed.tuned["loss"] == whole.tuned["loss"] and resumed.losses == whole.losses


def test_tuning_teaches_and_says_how(model, book, tmp_path):
    untuned = extend(model, out=tmp_path / "untuned", text=book, target_length=2 * L, method="yarn")
    done = extend(model, out=tmp_path / "tuned", text=book, **{**HOW, "tune": 30, "tune_length": 96, "seed": 3})
    for row in done.losses:
        assert row["difference"]["high"] < -0.1, row
    assert done.ok and done.weights == "tuned" and untuned.weights == "copied"
    assert json.loads((tmp_path / "tuned" / "config.json").read_text()) == json.loads(
        (tmp_path / "untuned" / "config.json").read_text()
    )
    told = json.loads((tmp_path / "tuned" / "milepost.json").read_text())
    tuned = told["tuned"]
    assert (tuned["steps"], tuned["length"], tuned["seed"], tuned["warm_up"], tuned["mixed_precision"]) == (
        30,
        96,
        3,
        3,
        None,
    )
    assert tuned["text"]["sha256"] and tuned["text"]["source"] != tuned["measured_on"]["source"]
    assert tuned["windows"] == 6000 // 96 and tuned["times_read"] == pytest.approx(30 / (6000 // 96), abs=1e-3)
    assert (
        [row["length"] for row in told["losses"]] == [L, 2 * L]
        and told["losses"][0]["before"]
        and told["losses"][0]["after"]
    )


def test_without_peft_all_weights_are_tuned_and_the_sidecar_says_so(model, book, tmp_path):
    extend(model, out=tmp_path / "out", text=book, **{**HOW, "tune": 2})
    told = json.loads((tmp_path / "out" / "milepost.json").read_text())
    assert has_peft() == (importlib.util.find_spec("peft") is not None)
    if not has_peft():
        assert told["tuned"]["lora"] is None
        old, new = load_file(model / "model.safetensors"), load_file(tmp_path / "out" / "model.safetensors")
        assert old.keys() == new.keys() and not any(torch.equal(old[name], new[name]) for name in old)


def test_the_text_that_is_tuned_on_is_not_the_text_that_is_measured_on(model, tmp_path):
    np.save(tmp_path / "halves.npy", np.concatenate([np.full(4000, 5), np.full(4000, 50)]))
    made = plan_extension(open_source(model, 2 * L), "yarn")
    found = ExtensionLosses(load(model), made, tmp_path / "halves.npy", Tuning(3, 2 * L), False)
    assert {int(token) for row in found.training for token in row["input_ids"]} == {5} and set(
        np.unique(found.windows)
    ) == {50}
    assert all(row["input_ids"].shape == (2 * L,) for row in found.training) and len(found.training) == 4000 // (2 * L)


def test_tuned_weights_have_the_source_s_precision_and_one_file(model, book, tmp_path):
    source = tmp_path / "model"
    shutil.copytree(model, source)
    save_file(
        {k: v.bfloat16() for k, v in load_file(source / "model.safetensors").items()},
        source / "model.safetensors",
        {"format": "pt"},
    )
    extend(source, out=tmp_path / "out", text=book, dtype="bfloat16", **{**HOW, "tune": 1})
    assert {tensor.dtype for tensor in load_file(tmp_path / "out" / "model.safetensors").values()} == {torch.bfloat16}


def test_a_sharded_source_leaves_no_index_behind(model, book, tmp_path):
    build("llama", max_position_embeddings=L).save_pretrained(tmp_path / "model", max_shard_size="100KB")
    assert (tmp_path / "model" / "model.safetensors.index.json").is_file()
    done = extend(tmp_path / "model", out=tmp_path / "out", text=book, **{**HOW, "tune": 1})
    assert done.ok and sorted(p.name for p in (tmp_path / "out").glob("model*")) == ["model.safetensors"]


def test_the_command_tells_loss_and_time_left(model, book, tmp_path):
    words = [
        "--target-length",
        "128",
        "--method",
        "yarn",
        "--text",
        str(book),
        "--tune",
        "2",
        "--rate",
        "0.001",
        "--resume",
        "--json",
    ]
    ran = CliRunner().invoke(app, ["extend", str(model), "--out", str(tmp_path / "out"), *words])
    assert ran.exit_code == 0, ran.output
    assert (
        "tuning: step 2 of 2, loss " in ran.stderr
        and "s left" in ran.stderr
        and "there is no training to resume" in ran.stderr
    )
    assert json.loads(ran.stdout)["tuned"]["rate"] == 0.001


def test_two_processes_tune_together_and_the_first_of_them_writes(model, book, tmp_path):
    words = ["--target-length", "128", "--method", "yarn", "--text", str(book), "--tune", str(STEPS), "--rate", "0.003"]
    launch("-m", "milepost.cli", "extend", str(model), "--out", str(tmp_path / "both"), *words)
    told = json.loads((tmp_path / "both" / "milepost.json").read_text())
    alone = extend(model, out=tmp_path / "alone", text=book, **HOW)
    assert told["tuned"]["windows_a_step"] == 2 == 2 * alone.tuned["windows_a_step"]
    assert {p.name for p in tmp_path.iterdir()} == {"both", "alone"}
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("alone", "both"))
    assert one.keys() == two.keys() and any(not torch.equal(one[name], two[name]) for name in one)  # of other windows


def test_a_tune_that_fails_before_its_first_checkpoint_leaves_nothing(model, book, tmp_path, monkeypatch):
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("milepost.measure.folder.shutil.copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        extend(model, out=tmp_path / "out", text=book, **HOW)
    assert list(tmp_path.iterdir()) == []
