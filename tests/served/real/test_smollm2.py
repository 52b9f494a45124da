"""llama.cpp's server with a real model in 4 bits: its flags are told apart at 4096 tokens, with every candidate that
`verify` has. One text of Moby Dick for each number in MILEPOST_SERVED_TEXTS (default 1).

The candidates' losses are kept in .served/cache, so that a second run costs what the server costs.
"""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import torch
from smollm2 import fetch_model, fetch_text
from started import ENVIRONMENTS
from typer.testing import CliRunner

from milepost.checkpoints.model.load import load
from milepost.cli import app
from milepost.served.verification.candidates import CONFIG
from milepost.served.verification.race import candidates_of, run_race

pytestmark = pytest.mark.served
LENGTH = 4096
FLAGS = {
    CONFIG: (),
    "YaRN, factor 4": ("--rope-scaling", "yarn", "--rope-scale", 4),
    "linear, factor 2": ("--rope-scaling", "linear", "--rope-scale", 2),
    "base 10000": ("--rope-freq-base", 10000),
}
TEXTS = [int(n) for n in os.environ.get("MILEPOST_SERVED_TEXTS", "1").split(",")]


@pytest.fixture(scope="module", autouse=True)
def kept_references():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(ENVIRONMENTS / "cache"))
        yield


@pytest.fixture(scope="module")
def weights():
    torch.set_num_threads(1)
    return load(fetch_model())


@pytest.fixture(scope="module")
def book(weights):
    return np.asarray(weights.tokenizer.encode(fetch_text().read_text(encoding="utf-8")), np.int64)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", FLAGS)
def test_flags_are_told_apart(name, text, weights, book, llama_cpp, tmp_path):
    start = 1000 + 29000 * text
    with llama_cpp(fetch_model(), "-c", LENGTH + 256, *FLAGS[name]) as subject:
        found, best = run_race(subject, weights, book[None, start : start + LENGTH + 1], lambda what, share: None)
    assert found.same == (name,) and best.name == name and found.fits, found.rows
    assert len(found.rows) == len(candidates_of(weights)[0]) == 12 and found.targets == 240
    line = {
        "text": text,
        "flags": name,
        "same": found.same,
        "rows": [(r["candidate"], r["distance"]) for r in found.rows],
    }
    with (ENVIRONMENTS / "told_apart.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def test_the_command_names_the_flags_and_finds_a_cut(weights, llama_cpp, tmp_path):
    """All of `milepost verify`, on a server that serves fewer tokens (-c) than it is asked for."""
    np.save(tmp_path / "ids.npy", np.asarray(weights.tokenizer.encode(fetch_text().read_text(encoding="utf-8")))[:1400])
    with llama_cpp(fetch_model(), "-c", 512, *FLAGS["YaRN, factor 4"]) as subject:
        words = ["verify", subject.name, "--against", fetch_model(), "--text", tmp_path / "ids.npy"]
        words += ["--length", "640", "--windows", "1", "--json"]
        done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 1, done.output[-2000:]
    data = json.loads(done.stdout)
    assert data["same"] == ["YaRN, factor 4"] and data["failed"] == ["rotation", "served length"], data["checks"]
    sentence = next(check["sentence"] for check in data["checks"] if check["name"] == "served length")
    assert "it serves 512 tokens, texts of 641 were asked for, and it refuses them (400)" in sentence
