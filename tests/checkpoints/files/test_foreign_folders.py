"""Folders of strangers: links that lead out of them, and configs that are no ordinary files or have no end."""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner

from milepost.checkpoints.files.source import check_links, files_of
from milepost.cli import app
from milepost.rope.config.files import load, parse
from milepost.rope.config.keys import ConfigError


@pytest.fixture
def folder(tmp_path):
    here = tmp_path / "model"
    here.mkdir()
    (here / "config.json").write_text("{}")
    (here / "tokenizer.json").write_text("{}")
    return here


@pytest.mark.parametrize("name", ["merges.txt", "deep/vocab.json", "model.safetensors"])
def test_a_link_out_of_the_folder_is_refused(folder, name):
    secret = folder.parent / "secret.txt"
    secret.write_text("a key")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).symlink_to(secret)
    with pytest.raises(ConfigError, match=rf"{name} is a link to .*secret.txt, which is outside of .*remove the link"):
        files_of(folder)


def test_links_inside_of_the_folder_and_of_the_hubs_cache_are_followed(folder, tmp_path):
    (folder / "again.json").symlink_to("tokenizer.json")
    check_links(folder)
    home = tmp_path / "models--a--b"
    blobs, snapshot = home / "blobs", home / "snapshots" / "abc"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "123").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/123")
    check_links(snapshot)
    (snapshot / "out.json").symlink_to(folder / "config.json")
    with pytest.raises(ConfigError, match=r"out\.json is a link"):
        check_links(snapshot)


@pytest.mark.parametrize("command", ["extend", "convert-layout"])
def test_commands_copy_nothing_from_elsewhere(folder, command):
    (folder.parent / "secret.txt").write_text("a key")
    (folder / "merges.txt").symlink_to(folder.parent / "secret.txt")
    config = {
        "model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 32,
        "intermediate_size": 64, "max_position_embeddings": 128, "architectures": ["LlamaForCausalLM"],
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"model.embed_tokens.weight": np.zeros((32, 64), np.float32)}, folder / "model.safetensors")
    out = folder.parent / "out"
    words = {
        "extend": ["--target-length", "256", "--method", "yarn"],
        "convert-layout": ["--to", "interleaved"],
    }[command]
    done = CliRunner().invoke(app, [command, str(folder), *words, "--out", str(out)])
    assert done.exit_code == 2 and "is a link to" in done.stderr and not out.exists()


def test_a_device_or_a_pipe_is_no_config(folder):
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="no ordinary file"):
        load(folder / "config.json")
    os.mkfifo(folder / "pipe.json")
    with pytest.raises(ConfigError, match="no ordinary file"):
        load(folder / "pipe.json")


def test_a_repeated_key_among_very_many_is_found_at_once():
    text = "{" + ", ".join(f'"key{n}": {n}' for n in range(60000)) + ', "key59999": 1}'
    with pytest.raises(ConfigError, match="has the key 'key59999' twice"):
        parse(text, "config.json")  # each key is looked up once; counting each among all others took a minute
