"""Weights that do not fit into memory: they stay in their file, and the losses are those of the whole model."""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

import pytest
import torch
from gguf_llama import write_llama
from small_server import serving
from typer.testing import CliRunner

from milepost.checkpoints.model.load import load
from milepost.cli import app
from milepost.rope import ConfigError
from milepost.served.verification import weights
from milepost.served.verification.candidates import rotations
from milepost.served.verification.weights import free_memory, load_weights


@pytest.fixture(scope="module")
def narrow(small_model, small_folder, tmp_path_factory):
    """The small model in a folder of bfloat16, and how many bytes it takes in float32."""
    folder = tmp_path_factory.mktemp("narrow") / "model"
    copy.deepcopy(small_model).to(torch.bfloat16).save_pretrained(folder)  # the model itself is every test's
    for file in small_folder.glob("tokenizer*"):
        (folder / file.name).write_bytes(file.read_bytes())
    return folder, 4 * sum(p.numel() for p in small_model.parameters())


def test_what_fits_is_loaded_whole(narrow):
    folder, _ = narrow
    loaded, note = load_weights(str(folder))
    assert note is None and {p.dtype for p in loaded.model.parameters()} == {torch.float32}
    assert free_memory("cpu") > 1 << 20


def test_what_does_not_fit_stays_in_its_file_and_loses_the_same(narrow, windows, monkeypatch):
    folder, need = narrow
    monkeypatch.setattr(weights, "free_memory", lambda device: need // 2)
    loaded, note = load_weights(str(folder))
    assert f"take {need / 1e9:.3g} GB as float32, and {need // 2 / 1e9:.3g} GB of memory are free" in note
    whole, ids = load(folder), torch.from_numpy(windows[:2])
    seen = set()
    for name, part in loaded.model.named_modules():
        if "proj" in name:
            part.register_forward_pre_hook(lambda module, _: seen.add(module.weight.dtype))
    assert torch.equal(loaded.losses(ids), whole.losses(ids)), "widening is exact"
    assert seen == {torch.float32} and {p.dtype for p in loaded.model.parameters()} == {torch.bfloat16}
    for rotation in rotations(whole.spec, 2, whole.trained)[1:4]:
        with loaded.turned(rotation.encodings), whole.turned(rotation.encodings):
            at = [5, 100, 400]
            assert torch.equal(loaded.chosen_losses(ids, at), whole.chosen_losses(ids, at))
    if sys.platform == "linux":
        assert all(_is_mapped(p, folder) for n, p in loaded.model.named_parameters() if "proj" in n)
        assert not any(_is_mapped(p, folder) for n, p in whole.model.named_parameters() if "proj" in n)


def _is_mapped(value, folder):
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(number, 16) for number in line.split()[0].split("-"))
        if start <= value.data_ptr() < end:
            return str(folder) in line
    return False


def test_what_can_t_be_run_in_turn_is_refused_with_the_numbers(narrow, small_model, tmp_path, monkeypatch):
    folder, need = narrow
    write_llama(small_model, tmp_path / "model.gguf")
    monkeypatch.setattr(weights, "free_memory", lambda device: need // 2)
    with pytest.raises(ConfigError, match="GB of memory are free: a GGUF file is unpacked as a whole, and the losses"):
        load_weights(str(tmp_path / "model.gguf"))
    monkeypatch.setattr(weights, "free_memory", lambda device: 1000)
    with pytest.raises(ConfigError, match="not even its largest tensor fits"):
        load_weights(str(folder))


@pytest.mark.slow
def test_verify_says_that_weights_stay_in_their_file(narrow, small_text, monkeypatch):
    folder, need = narrow
    served = load(folder).model
    monkeypatch.setattr(weights, "free_memory", lambda device: need // 2)
    with serving(served, "vllm") as server:
        words = ["verify", server.url, "--against", folder, "--text", small_text, "--length", 448, "--only", "rotation"]
        done = CliRunner().invoke(app, [*map(str, words), "--json"])
    assert done.exit_code == 0, done.output[-2000:]
    data = json.loads(done.stdout)
    assert data["same"] == ["as the config says"] and any("they stay in their file" in note for note in data["notes"])
    assert [check["name"] for check in data["checks"]] == ["rotation"]
    assert "not asked for: truncation and repeats" in data["notes"]
