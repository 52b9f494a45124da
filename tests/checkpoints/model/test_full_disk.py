"""A full disk while a model is tuned: room is counted before, the last whole checkpoint is kept, and resuming ends with
the same bits."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_models import build

from milepost.checkpoints import extend, migrate
from milepost.checkpoints.files.source import read_source
from milepost.checkpoints.model.tune import KEPT, checkpoint_size, room_to_tune
from milepost.rope.config.files import load

HOW: dict[str, Any] = {"target_length": 128, "method": "yarn", "tune": 6, "rate": 3e-3}
FULL = """
import json, resource, sys
from milepost.cli import app
from milepost.checkpoints.model import tune
room = int(sys.argv[1])
after = tune._progress
def limited(base, tuning, tell, before):
    def say(text):
        tell(text)
        if text.startswith(("tuning: step 3 ", "recovering: step 3 ")):
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    return after(base, tuning, say, before)
tune._progress = limited
app(sys.argv[2:])
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("full")
    build("llama", max_position_embeddings=64).save_pretrained(home / "llama")
    build("gpt2").save_pretrained(home / "gpt2")
    rng = np.random.default_rng(0)
    np.save(home / "book.npy", 3 + np.cumsum(rng.integers(0, 4, 12000)) % 50)
    return home


def full_after_three_steps(words: list[str], room: int) -> str:
    """Run a command in a process that can write no file larger than ``room`` from its third step on."""
    ran = subprocess.run(
        [sys.executable, "-c", FULL, str(room), *words], capture_output=True, text=True, check=False, timeout=300
    )
    assert ran.returncode == 2 and "Traceback" not in ran.stderr, ran.stderr
    return ran.stderr.strip().splitlines()[-1]


@pytest.mark.slow
def test_a_disk_that_is_full_while_a_checkpoint_is_saved_costs_nothing_but_that_checkpoint(home, tmp_path):
    """0.1 said "unexpected pos 567104 vs 566992", and left half of a checkpoint."""
    size = (home / "llama" / "model.safetensors").stat().st_size
    words = ["extend", str(home / "llama"), "--target-length", "128", "--method", "yarn", "--tune", "6", "--rate"]
    words += ["0.003", "--text", str(home / "book.npy"), "--out", str(tmp_path / "out")]
    said = full_after_three_steps(words, size + size // 2)  # the weights can be written, the optimizer can't
    assert "checkpoint-3 can't be saved in" in said and "GB are free there" in said
    assert said.endswith("go on with --resume") and "unexpected pos" not in said.split("saved in")[0]
    state = tmp_path / ".out.unfinished" / "state"
    assert sorted(path.name for path in state.iterdir()) == ["checkpoint-1", "checkpoint-2"]
    assert all((path / "whole").is_file() for path in state.iterdir())
    extend(home / "llama", out=tmp_path / "out", text=home / "book.npy", resume=True, **HOW)
    extend(home / "llama", out=tmp_path / "unbroken", text=home / "book.npy", **HOW)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("out", "unbroken"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_the_same_for_a_migration(home, tmp_path):
    size = (home / "gpt2" / "model.safetensors").stat().st_size
    words = ["migrate", str(home / "gpt2"), "--to", "rope", "--steps", "6", "--text", str(home / "book.npy")]
    said = full_after_three_steps([*words, "--out", str(tmp_path / "out")], size + size // 2)
    assert "checkpoint-3 can't be saved in" in said and said.endswith("go on with --resume")
    assert (tmp_path / ".out.unfinished" / "state" / "checkpoint-2" / "whole").is_file()
    how = {"to": "rope", "text": home / "book.npy", "steps": 6}
    migrate(home / "gpt2", out=tmp_path / "out", resume=True, **how)
    migrate(home / "gpt2", out=tmp_path / "unbroken", **how)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("out", "unbroken"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_room_is_counted_for_checkpoints_with_their_optimizer(home, tmp_path):
    folder = home / "llama"
    source = read_source(folder, folder, load(folder / "config.json"))
    numbers = sum(tensor.numel() for tensor in load_file(folder / "model.safetensors").values())
    assert checkpoint_size(source, lora=False) == 12 * numbers
    assert room_to_tune(source, tmp_path, lora=False) == (KEPT + 1) * 12 * numbers
    (tmp_path / "checkpoint-1").mkdir()
    (tmp_path / "checkpoint-1" / "optimizer.pt").write_bytes(bytes(8 * numbers))  # what is there takes no more room
    assert room_to_tune(source, tmp_path, lora=False) == (KEPT + 1) * 12 * numbers - 8 * numbers


@pytest.mark.parametrize("command", ["extend", "migrate"])
def test_a_disk_with_room_for_the_model_and_not_for_its_training_is_refused_before(
    home, tmp_path, monkeypatch, command
):
    name = "llama" if command == "extend" else "gpt2"
    size = sum(file.stat().st_size for file in (home / name).iterdir())
    monkeypatch.setattr(
        "milepost.measure.folder.shutil.disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 4 * size)
    )
    with pytest.raises(ValueError, match=r"needs .* GB, and .* GB are free there"):
        if command == "extend":
            extend(home / name, out=tmp_path / "out", text=home / "book.npy", **HOW)
        else:
            migrate(home / name, to="rope", text=home / "book.npy", steps=6, out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_between_two_checkpoints_is_seen_before_the_next_is_written(home, tmp_path, monkeypatch):
    room = [10**12]
    monkeypatch.setattr(
        "milepost.measure.folder.shutil.disk_usage", lambda path: shutil._ntuple_diskusage(10**12, 0, room[0])
    )

    def tell(text: str) -> None:
        if text.startswith("tuning: step 2 "):
            room[0] = 1000

    with pytest.raises(OSError, match=r"checkpoint-2 can't be saved in .* needs 0\.\d+ GB, and 0\.0000 GB are free"):
        extend(home / "llama", out=tmp_path / "out", text=home / "book.npy", tell=tell, **HOW)
    state = tmp_path / ".out.unfinished" / "state"
    assert [path.name for path in state.iterdir()] == ["checkpoint-1"]
    assert json.loads((tmp_path / ".out.unfinished" / "plan.json").read_text())["target"] == 128
