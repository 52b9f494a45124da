"""A small Llama in a folder, with a tokenizer of words and a text that it wrote itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from small_server import SERVED, VOCABULARY, build, write_text


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
