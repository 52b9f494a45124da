"""`milepost diagnose`: its output, and bad input: one sentence, exit code 2, nothing written, the model's folder
untouched.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from tiny_models import SMALL, build, transformers
from typer.testing import CliRunner

from milepost.checkpoints import diagnose
from milepost.cli import app
from milepost.lab import checkpoint
from milepost.lab.model import Decoder, Shape

runner = CliRunner()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A lab model, a GPT-2 with 512 positions, a BERT, a T5, and texts."""
    folder = tmp_path_factory.mktemp("home")
    torch.manual_seed(0)
    checkpoint.save(Decoder(Shape(256, 2, 16, 2, 32), "rope").eval(), folder / "rope")
    checkpoint.save(Decoder(Shape(256, 2, 16, 2, 32), "learned").eval(), folder / "learned")
    build("gpt2").save_pretrained(folder / "gpt2")
    build("t5").save_pretrained(folder / "t5")
    small = {
        name: value
        for name, value in SMALL.items()
        if name not in ("num_key_value_heads", "bos_token_id", "eos_token_id")
    }
    transformers.BertForMaskedLM(transformers.BertConfig(**small)).save_pretrained(folder / "bert")
    np.save(folder / "ids.npy", np.random.default_rng(0).integers(0, 64, (4, 1200)))
    (folder / "text.txt").write_text("the quick brown fox " * 100)
    (folder / "short.txt").write_text("the quick brown fox")
    return folder


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def run(home, model, *words, text="ids.npy", lengths="32,64"):
    return runner.invoke(app, ["diagnose", str(home / model), "--text", str(home / text), "--lengths", lengths, *words])


def test_the_verdict_is_the_last_word_and_a_folder_is_written_whole(home, tmp_path):
    done = run(home, "rope", "--windows", "3", "--out", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["diagnosis.json", "report.html", "report.md"]
    data = json.loads((tmp_path / "out" / "diagnosis.json").read_text())
    said = " ".join(done.stdout.split())
    assert (
        said.endswith(" ".join(data["verdict"][:2]))
        and all(one in said for one in data["verdict"])
        and "open" in done.stderr
        and "loss by position" in done.stderr
    )
    page = (tmp_path / "out" / "report.md").read_text()
    assert page.index(data["verdict"][0]) < page.index("## Loss by position") < page.index("## Retrieval")


def test_json_is_alone_on_standard_output(home):
    done = run(home, "rope", "--windows", "2", "--json")
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert data["trained_length"] == 32 and [row["length"] for row in data["loss_by_length"]] == [32, 64]
    assert "intervals are of 2 windows only, and too narrow to be sure of: give text for 6 or more" in data["notes"]


def test_weights_are_loaded_as_was_asked(home):
    done = run(home, "rope", "--dtype", "bfloat16", "--windows", "2", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["protocol"]["dtype"] == "bfloat16"


WRONG = [
    (
        "gpt2",
        {"lengths": "256,1k"},
        (),
        "has a table of 512 learned positions, so that a text of 1024 tokens can't be read: ask for lengths up to 512",
    ),
    ("learned", {"lengths": "32,64"}, (), "has a table of 32 learned positions"),
    ("rope", {"lengths": "2k"}, (), "too short: 2 windows of 2048 tokens without overlap need 4098 tokens"),
    ("rope", {"text": "short.txt"}, (), "too short"),
    ("rope", {"text": "nothing.txt"}, (), "nothing.txt"),
    ("rope", {"lengths": "many"}, (), "lengths are numbers such as 4096 or 4k"),
    ("rope", {"lengths": "8,64"}, (), "at least 16, such as 1024,2048; got [8, 64]"),
    ("rope", {}, ("--windows", "1"), "at least 2 windows of text, got 1"),
    ("gpt2", {"text": "text.txt"}, (), "has no tokenizer"),
    ("bert", {}, (), "needs a causal language model"),
    ("t5", {}, (), "needs a causal language model"),
    ("nowhere", {}, (), "nowhere"),
]


@pytest.mark.parametrize(("model", "how", "words", "said"), WRONG, ids=[f"{one[0]} {one[3][:24]}" for one in WRONG])
def test_bad_input_is_one_sentence_and_leaves_all_as_it_was(home, tmp_path, model, how, words, said):
    before = files(home)
    done = run(home, model, *words, "--out", str(tmp_path / "out"), **how)
    assert done.exit_code == 2, done.output
    told = [line for line in done.stderr.splitlines() if line.startswith("milepost:")]
    assert len(told) == 1 and said in told[0] and "Traceback" not in done.output and done.stdout == ""
    assert not (tmp_path / "out").exists() and files(home) == before and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["full", "rope/inside"])
def test_a_folder_that_holds_something_or_is_the_model_s_is_refused_before_anything_is_run(home, tmp_path, place):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    out = tmp_path / "full" if place == "full" else home / place
    before = files(home)
    done = run(home, "rope", "--out", str(out))
    assert done.exit_code == 2 and "OUT (" in done.stderr and "loading" not in done.stderr
    assert (tmp_path / "full" / "mine.txt").read_text() == "mine" and files(home) == before


def test_lengths_are_whole_numbers(home):
    for lengths in ([], [32.0, 64], [True, 64], [-4]):
        with pytest.raises(ValueError, match="lengths are numbers of tokens"):
            diagnose(home / "rope", home / "ids.npy", lengths)


def test_help_has_an_example_and_needs_no_torch():
    import subprocess
    import sys

    code = (
        "import sys; from milepost.cli import app; app(['diagnose', '--help'], standalone_mode=False); "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "Example" in done.stdout and "--lengths" in done.stdout
