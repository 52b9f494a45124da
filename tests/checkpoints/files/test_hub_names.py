"""A name that is no folder: it is said that the Hub will be asked before it is, and --offline never asks."""

import logging

import pytest
from typer.testing import CliRunner

from milepost.cli import app
from milepost.rope.config import files

ASKED = "there is no file or folder 'modle' here: asking the Hub for a model of that name (--offline never asks)"
COMMANDS = {
    "inspect": [], "verify": [], "spec": [], "export": ["--to", "vllm"],
    "diagnose": ["--text", "t", "--lengths", "1k"], "recommend": ["--target-length", "2k", "--text", "t"],
    "extend": ["--target-length", "2k", "--method", "yarn", "--out", "o"], "resize": ["--length", "9", "--out", "o"],
    "migrate": ["--to", "rope", "--text", "t", "--steps", "1", "--out", "o"],
}  # fmt: skip


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A Hub that has nothing, and what it was asked for: (name, whether only its cache was looked at, what was said)."""
    asked, said = [], []
    logger = logging.getLogger("milepost")
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logger.addHandler(handler)

    def download(name, *files, local_files_only=False, **how):
        asked.append((name, local_files_only, list(said)))
        raise OSError("no such name")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.chdir(tmp_path)
    files._say_that_the_hub_is_asked.cache_clear()
    yield asked
    logger.removeHandler(handler)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_mistyped_folder_says_that_the_hub_is_asked_before_it_is(hub, command):
    ran = CliRunner().invoke(app, [command, "modle", *COMMANDS[command]])
    assert ran.exit_code == 2 and hub and not hub[0][1]
    assert hub[0][2] == [ASKED]
    assert "there is no file or folder 'modle', and the Hub gave no config for that name" in ran.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_offline_never_asks(hub, command, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")  # restored afterwards: the option sets it
    ran = CliRunner().invoke(app, [command, "modle", *COMMANDS[command], "--offline"])
    assert ran.exit_code == 2 and all(local and not said for _, local, said in hub)
    assert "the Hub was not asked (--offline, or HF_HUB_OFFLINE)" in ran.stderr


def test_a_tokenizer_is_not_asked_for_either(hub, monkeypatch):
    from milepost.checkpoints.model.tokenizers import find_tokenizer

    seen = []

    def load(name, *, local_files_only, **how):
        seen.append(local_files_only)
        raise OSError("no")

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", load)
    for offline in ("", "1"):
        monkeypatch.setenv("HF_HUB_OFFLINE", offline)
        with pytest.raises(ValueError, match="no tokenizer can be loaded"):
            find_tokenizer("modle")
    assert seen == [False, True]
