"""llama.cpp's server with a real model in 4 bits: its flags are told apart by `milepost verify`, with every candidate that
it has, on one text of Moby Dick for each number in MILEPOST_SERVED_TEXTS (default 1), of MILEPOST_SERVED_LENGTH tokens
(default 1024; the table of docs/served.md has 4096).

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

from milepost.checkpoints.model.tokenizers import find_tokenizer
from milepost.cli import app
from milepost.served.verification.candidates import CONFIG

pytestmark = pytest.mark.served
LENGTH = int(os.environ.get("MILEPOST_SERVED_LENGTH", "1024"))
TEXTS = [int(n) for n in os.environ.get("MILEPOST_SERVED_TEXTS", "1").split(",")]
FLAGS = {
    CONFIG: (),
    "YaRN, factor 4": ("--rope-scaling", "yarn", "--rope-scale", 4),
    "linear, factor 2": ("--rope-scaling", "linear", "--rope-scale", 2),
    "base 10000": ("--rope-freq-base", 10000),
}


@pytest.fixture(scope="module", autouse=True)
def kept_references():
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(ENVIRONMENTS / "cache"))
        yield


@pytest.fixture(scope="module")
def book():
    words = find_tokenizer(fetch_model().parent, gguf_file=fetch_model().name)
    return np.asarray(words.encode(fetch_text().read_text(encoding="utf-8")), np.int64)


def _verified(subject, ids, length, only, folder):
    """The exit code and the result of the command."""
    np.save(folder / "ids.npy", ids)
    words = ["verify", subject.name, "--against", fetch_model(), "--text", folder / "ids.npy", "--length", length]
    done = CliRunner().invoke(app, [str(word) for word in (*words, "--windows", 1, "--only", only, "--json")])
    assert done.exit_code in (0, 1), done.output[-2000:]
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("name", FLAGS)
def test_flags_are_told_apart(name, text, book, llama_cpp, tmp_path):
    start = 1000 + 29000 * text
    with llama_cpp(fetch_model(), "-c", LENGTH + 256, *FLAGS[name]) as subject:
        code, data = _verified(subject, book[start : start + LENGTH + 1], LENGTH, "rotation", tmp_path)
    assert data["same"] == [name] and code == (0 if name == CONFIG else 1), data["checks"]
    assert len(data["candidates"]) == 12


def test_flags_are_named_on_a_server_that_serves_less_than_is_asked_for(book, llama_cpp, tmp_path):
    with llama_cpp(fetch_model(), "-c", 512, *FLAGS["YaRN, factor 4"]) as subject:
        code, data = _verified(subject, book[:1400], 640, "rotation,truncation", tmp_path)
    assert code == 1 and data["same"] == ["YaRN, factor 4"], data["checks"]
    assert data["failed"] == ["rotation", "served length"], data["checks"]
    sentence = next(check["sentence"] for check in data["checks"] if check["name"] == "served length")
    assert "it serves 512 tokens, texts of 641 were asked for, and it refuses them (400)" in sentence
