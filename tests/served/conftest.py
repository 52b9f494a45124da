"""A small Llama in a folder, with a tokenizer of words and a text that it wrote itself; and a lab model that was trained
on texts of 32 bytes, and fails beyond.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest
import torch
from small_server import SERVED, VOCABULARY, build, write_text

sys.path.append(str(Path(__file__).parents[1] / "checkpoints"))  # from_lab
from from_lab import TRAINED, byte_tokenizer, to_neox

from milepost.lab import corpus
from milepost.lab.model import Decoder, Shape
from milepost.lab.train import Recipe, from_text, train


@pytest.fixture(scope="session", autouse=True)
def references_of_their_own(tmp_path_factory):
    """What is kept of candidates is kept in a folder of this run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def small_model():
    torch.set_num_threads(1)
    return build()


@pytest.fixture(scope="session")
def small_folder(small_model, tmp_path_factory) -> Path:
    """The model and its tokenizer as transformers saves them."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("small") / "model"
    small_model.save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"w{n}": n for n in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def small_words(small_folder):
    """The tokenizer alone."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(small_folder)


@pytest.fixture(scope="session")
def small_text(small_model, tmp_path_factory) -> Path:
    """Eight texts as long as the model is served for, as token ids."""
    path = tmp_path_factory.mktemp("text") / "text.npy"
    np.save(path, write_text(small_model, 8, SERVED).numpy())
    return path


@pytest.fixture(scope="session")
def windows(small_text):
    """The same as rows of tokens."""
    return np.load(small_text)


@pytest.fixture(scope="session")
def trained_folder(tmp_path_factory) -> Path:
    """A small decoder with rope, trained on 32 bytes at a time, in Hugging Face form with a tokenizer of bytes."""
    torch.set_num_threads(1)
    text = corpus.read(None, "bytes", longest=4 * TRAINED, trained=TRAINED)
    recipe = Recipe(250, 32, TRAINED, seed=0)
    model = Decoder(Shape(256, 2, 64, 4, TRAINED), "rope").start(0)
    folder = tmp_path_factory.mktemp("trained")
    train(model, from_text(text.train, recipe), recipe, state=folder / "state.pt")
    return byte_tokenizer(to_neox(model, folder / "model"))


@pytest.fixture(scope="session")
def trained_model(trained_folder):
    """The same in memory."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(trained_folder).eval()


@pytest.fixture(scope="session")
def trained_words(trained_folder):
    """Its tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(trained_folder)


@pytest.fixture(scope="session")
def code_text() -> Path:
    """Files that have the trained model's own kind of text."""
    return Path(sysconfig.get_paths()["stdlib"]) / "asyncio"
