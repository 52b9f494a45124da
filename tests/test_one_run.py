"""One lock for every command that writes a folder: the second run for the same --out gets a sentence, at once."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from milepost.cli import app
from milepost.cli.served import journal
from milepost.measure.folder import one_run

COMMANDS = {
    "inspect": ["llama"],
    "verify": ["llama"],
    "diagnose": ["llama", "--text", "book.npy", "--lengths", "16"],
    "recommend": ["llama", "--text", "book.npy", "--target-length", "32"],
    "extend": ["llama", "--target-length", "32", "--method", "yarn"],
    "migrate": ["gpt2", "--to", "rope", "--text", "book.npy", "--steps", "1"],
    "resize": ["bert", "--length", "48"],
    "convert-layout": ["llama", "--to", "interleaved"],
    "claims": ["rope-sign"],
    "bench all": [],
    "compare": ["run", "run2"],
    "lab": ["--profile", "tiny", "--encodings", "rope", "--seeds", "1"],
}
PLACES = {
    "claims": "milepost.claims.judge.judge", "bench all": "milepost.bench.everything.bench_everything",
    "lab": "milepost.lab.sweep.driver.prepare",
}  # fmt: skip
"""Where long work begins."""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    from transformers import BertConfig, BertModel

    from tools.attack.seeds import checkpoint, lab_results

    folder = tmp_path_factory.mktemp("home")
    checkpoint(folder / "llama", "llama", max_position_embeddings=16)
    checkpoint(folder / "gpt2", "gpt2")
    sizes = {"vocab_size": 32, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertModel(BertConfig(**sizes, intermediate_size=32, max_position_embeddings=24)).save_pretrained(folder / "bert")
    np.save(folder / "book.npy", np.arange(6000) % 50)
    for name in ("run", "run2"):
        (folder / name).mkdir()
        (folder / name / "results.json").write_text(json.dumps(lab_results()))
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_a_second_run_for_the_same_folder_is_refused(command, home, monkeypatch):
    monkeypatch.chdir(home)
    if command in PLACES:
        monkeypatch.setattr(PLACES[command], lambda *_, **__: pytest.fail("it began"))
    with one_run("out"):
        ran = CliRunner().invoke(app, [*command.split(), *COMMANDS[command], "--out", "out"])
        said = " ".join(ran.stderr.split())
        assert ran.exit_code == 2 and "another run is writing to" in said and "wait until it ends" in said, ran.output
        assert not Path("out").exists() and Path(".out.lock").exists()
    assert not [path for path in home.iterdir() if path.name.startswith(".out")]


def test_every_command_with_a_folder_is_tried():
    """Those whose --out is a file write it whole: `show`, `spec`, `parity`."""
    import typer

    def walk(group, *words):
        for name, made in getattr(group, "commands", {}).items():
            yield from walk(made, *words, name)
        if any("--out" in option.opts for option in group.params):
            yield " ".join(words)

    assert set(walk(typer.main.get_command(app))) - {"show", "spec", "parity"} == set(COMMANDS)


def test_readings_of_a_run_that_has_not_ended_are_not_offered(tmp_path):
    out = tmp_path / "out"
    (tmp_path / "out.readings.jsonl").touch()
    with pytest.raises(ValueError, match="an ended run measured"), journal(out, False):
        pass
    with one_run(out), pytest.raises(ValueError, match="another run is writing"), journal(out, False):
        pass
