"""verify on what is no folder of transformers: a GGUF file, and a lab model."""

import pytest
import tiny_models as tiny
import torch
from gguf_llama import write_llama
from typer.testing import CliRunner

from milepost.attention import KVCache
from milepost.checkpoints.model.load import load
from milepost.checkpoints.verification.verify import verify
from milepost.cli import app
from milepost.lab import checkpoint
from milepost.lab.model import Decoder, DecoderBlock, Shape
from milepost.testing import LAWS, check_encoding

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def llama():
    return tiny.build("llama", vocab_size=96)


def test_a_gguf_file_is_loaded_with_its_weights_and_verified(llama, tmp_path):
    file = write_llama(llama, tmp_path / "model.gguf")
    ids = torch.randint(3, 96, (1, 120), generator=torch.Generator().manual_seed(0))
    subject = load(file)
    with torch.no_grad():
        assert (subject(ids) - llama(input_ids=ids).logits).abs().max() < 1e-4
    assert subject.form == "gguf" and subject.trained == 512 and subject.encode("ab").tolist() == [64, 65]
    done = verify(file)
    assert done.ok and done["file"].verdict == "PASS" and done["frequencies"].verdict == "PASS"


def test_a_scaling_that_transformers_passes_over_in_a_gguf_file_is_found(llama, tmp_path):
    """5.22 reads rope.freq_base of a file, and none of its rope.scaling keys; it says nothing."""
    file = write_llama(llama, tmp_path / "model.gguf", ("yarn", 4.0, 128))
    done = verify(file)
    assert (
        done.failed == ("file",)
        and "transformers does not do what the file says: frequency of pair" in done["file"].sentence
    )
    with pytest.raises(
        ValueError, match="can't be measured in transformers: transformers does not do what the file says"
    ):
        load(file)
    assert CliRunner().invoke(app, ["verify", str(file), "--json"]).exit_code == 1


def test_a_cut_gguf_file_is_one_sentence(llama, tmp_path):
    file = write_llama(llama, tmp_path / "model.gguf")
    file.write_bytes(file.read_bytes()[:-4000])
    for command in (["verify", str(file)], ["diagnose", str(file), "--text", str(file), "--lengths", "64"]):
        ran = CliRunner().invoke(app, command)
        assert ran.exit_code == 2 and "milepost: " in ran.output and "Traceback" not in ran.output, ran.output


ENCODINGS = (
    "nope",
    "sinusoidal",
    "learned",
    "alibi",
    "t5",
    "rope",
    "shaw",
    "rope + alibi",
    "rope(scaling=dynamic(trained=32))",
)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_honest_lab_model_passes(encoding, tmp_path):
    model = Decoder(Shape(256, 2, 32, 2, 32), encoding).start(0)
    torch.manual_seed(0)
    for name, value in model.named_parameters():
        if ".enc." in name or "qkv" in name:
            torch.nn.init.normal_(value, std=0.5)
    done = verify(checkpoint.save(model, tmp_path / "model", seed=0, steps=0, data="text"))
    assert done.failed == (), [check for check in done.checks if check.verdict == "FAIL"]
    assert {"cached", "padded", "packed", "reload"} <= {check.name for check in done.checks}
    if encoding not in ("nope",):
        assert done["packed"].verdict == "PASS" and done["packed"].control > 10 * done["packed"].allowed


def test_planted_faults_of_a_lab_model_are_found(tmp_path, monkeypatch):
    folder = checkpoint.save(
        Decoder(Shape(256, 2, 32, 2, 32), "rope").start(0), tmp_path / "model", seed=0, steps=0, data="text"
    )
    quick = [law for law in LAWS if law.__name__ != "compiles"]  # faults are planted in the model
    monkeypatch.setattr("milepost.checkpoints.verification.lab.check_encoding", lambda enc: check_encoding(enc, quick))
    with monkeypatch.context() as patch:  # a cache that forgets its first key
        own = KVCache.decode
        patch.setattr(
            KVCache,
            "decode",
            lambda self, q, k, v, **how: own(self, q, k * (len(self) > 0 or k.shape[2] > 1) * 0.5, v, **how),
        )
        assert verify(folder)["cached"].verdict == "FAIL"
    with monkeypatch.context() as patch:  # positions that count padding
        run = DecoderBlock.forward

        def counting(self, x, at=None, **how):
            if at is not None and bool((at.segment < 0).any()):
                at = at.with_positions(torch.arange(at.length).expand(at.pos.shape))
            return run(self, x, at, **how)

        patch.setattr(DecoderBlock, "forward", counting)
        done = verify(folder)
        assert done.ok  # a rotation sees differences alone, which padding does not change
    table = checkpoint.save(
        Decoder(Shape(256, 2, 32, 2, 40), "learned").start(0), tmp_path / "table", seed=0, steps=0, data="text"
    )
    with monkeypatch.context() as patch:
        embedded = Decoder._embedded
        patch.setattr(
            Decoder,
            "_embedded",
            lambda self, ids, at, **how: embedded(
                self, ids, at.with_positions(torch.arange(at.length).expand(at.pos.shape)), **how
            ),
        )
        done = verify(table)
        assert {"padded", "packed"} <= set(done.failed)


def test_a_folder_of_several_lab_models_says_which(tmp_path):
    ran = CliRunner().invoke(app, ["verify", str(tmp_path)])
    assert ran.exit_code == 2 and "Traceback" not in ran.output
