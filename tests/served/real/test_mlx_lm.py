"""mlx-lm's own server, with a small model in a folder that transformers wrote."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from small_server import SERVED, build, write_text
from started import environment, process
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from milepost.checkpoints.diagnosis.diagnose import diagnose
from milepost.checkpoints.model.load import load

pytestmark = pytest.mark.served
AT = [3, 63, 65, 127, 129, 131, 255, 257, 300]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """mlx-lm does not read rope_parameters for Llama: the base is its default, 10000, which this model has."""
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("mlx") / "model"
    model = build({"rope_type": "default", "rope_theta": 10000.0})
    model.save_pretrained(place)
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({**config, "rope_theta": 10000.0}))
    letters = [chr(n) for n in range(0x4E00, 0x4E00 + 64)]
    words = Tokenizer(models.WordLevel({letter: n for n, letter in enumerate(letters)}, unk_token=letters[0]))
    words.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    words.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(tokenizer_object=words, eos_token=letters[2]).save_pretrained(place)
    np.save(place.parent / "text.npy", write_text(model, 4, SERVED).numpy())
    return place


def test_losses_equal_those_of_the_same_weights_here(folder):
    """Targets outside of the ten likeliest too: a bias brings most of them in, and is taken out again."""
    windows = np.load(folder.parent / "text.npy")[:2]
    here = load(folder).losses(torch.from_numpy(windows)).numpy()[:, [p - 1 for p in AT]]
    words = [environment("mlx") / "mlx_lm.server", "--model", folder, "--port", "{port}", "--host", "127.0.0.1"]
    with process(words, tokenizer=folder) as subject:
        assert subject.family == "mlx-lm" and not subject.server.can.ids and not subject.server.can.repeats
        losses, outside = subject.losses_at(windows, AT)
        found = diagnose(subject, folder.parent / "text.npy", [64, 128], windows=2)
    assert outside.mean() < 0.05 and (losses <= here + 2e-3).all()
    assert np.abs(losses - here)[~outside].max() < 2e-3
    assert found.loss_by_length[-1]["loss"] is not None and not found.retrieval["cells"]
