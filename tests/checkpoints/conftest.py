"""A lab model that was really trained, in its own form and as a checkpoint of transformers; and the text to try it
on.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
import torch
from from_lab import TRAINED, byte_tokenizer, to_neox

from milepost.lab import checkpoint, corpus
from milepost.lab.model import Decoder, Shape
from milepost.lab.train import Recipe, from_text, train


@pytest.fixture(scope="session")
def trained_rope(tmp_path_factory) -> Path:
    """A small decoder with rope, trained on 32 bytes at a time."""
    torch.set_num_threads(1)
    text = corpus.read(None, "bytes", longest=4 * TRAINED, trained=TRAINED)
    recipe = Recipe(250, 32, TRAINED, seed=0)
    model = Decoder(Shape(256, 2, 64, 4, TRAINED), "rope").start(0)
    folder = tmp_path_factory.mktemp("trained")
    train(model, from_text(text.train, recipe), recipe, state=folder / "state.pt")
    return checkpoint.save(model, folder / "model", seed=0, steps=250, data="text")


@pytest.fixture(scope="session")
def trained_neox(trained_rope, tmp_path_factory) -> Path:
    """The same weights in Hugging Face form, with a tokenizer of bytes."""
    return byte_tokenizer(to_neox(checkpoint.load(trained_rope), tmp_path_factory.mktemp("neox") / "model"))


@pytest.fixture(scope="session")
def some_text() -> Path:
    """Files that have the trained model's own kind of text."""
    return Path(sysconfig.get_paths()["stdlib"]) / "asyncio"
