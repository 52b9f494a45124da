"""`transformers serve` itself, with a small model in a folder: it tells no log-likelihoods, and that is said."""

from __future__ import annotations

import json

import numpy as np
import pytest
from started import environment, process
from typer.testing import CliRunner

from milepost.cli import app
from milepost.served import connect
from milepost.served.servers.client import ServerError

pytestmark = pytest.mark.served


def _run(*words, code):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output[-2000:]
    return done


@pytest.fixture(scope="module")
def subject(small_folder):
    serve = [environment("transformers") / "transformers", "serve", small_folder, "--host", "127.0.0.1"]
    with process([*serve, "--port", "{port}"], tokenizer=small_folder) as connected:
        yield connected


def test_what_it_tells_is_found_by_asking(subject, small_folder, windows):
    assert subject.family == "transformers serve" and subject.server.model == str(small_folder)
    assert not subject.server.can.ids and not subject.server.can.losses
    answer = subject.server.ask(windows[0, :40].tolist(), steps=4)
    assert answer.counted == 40 and len(answer.steps) == 4
    with pytest.raises(ServerError, match="tells no log-likelihoods"):
        subject.losses_at(windows, [5])
    with pytest.raises(ServerError, match="pinned to"):
        connect(subject.name, tokenizer=small_folder, model="another")


def test_it_goes_on_as_the_model_does(subject, small_model, windows):
    """Greedy tokens of the same weights here: what is read back from its text is what it generated."""
    import torch

    ids = torch.from_numpy(windows[:1, :100])
    with torch.no_grad():
        own = small_model.generate(ids, max_new_tokens=8, do_sample=False)[0, 100:].tolist()
    steps = [step.token for step in subject.server.greedy(windows[0, :100].tolist(), 8)]
    assert steps == own


def test_losses_are_refused_and_truncation_is_checked(subject, small_folder, small_text):
    how = ("--text", small_text, "--tokenizer", small_folder)
    for words in (
        ("diagnose", subject.name, "--lengths", "64,128"),
        ("verify", subject.name, "--length", "200", "--against", small_folder),
        ("compare", subject.name, small_folder, "--length", "128"),
        ("recommend", subject.name, subject.name, "--target-length", "128", "--trained-length", "64"),
    ):
        done = _run(*words, *how, code=2)
        assert "tells no log-likelihoods, so that losses can't be measured" in " ".join(done.output.split())
    data = json.loads(_run("verify", subject.name, "--length", "200", *how, "--json", code=0).stdout)
    verdicts = {check["name"]: check["verdict"] for check in data["checks"]}
    assert verdicts["tokens counted"] == "PASS" and verdicts["start of the text"] == "PASS"
    assert {name for name, verdict in verdicts.items() if verdict == "BLIND"} == {
        "prefill and decode", "prefix cache", "alone and in a batch", "history",
    }  # fmt: skip
    assert not data["candidates"] and data["failed"] == []


def test_another_tokenizer_is_found_before_anything_is_measured(subject, small_text):
    done = _run("diagnose", subject.name, "--text", small_text, "--tokenizer", "bytes", "--lengths", "64", code=2)
    assert "it has another tokenizer" in done.output


def test_text_needs_a_tokenizer(subject, tmp_path):
    np.save(tmp_path / "text.npy", np.arange(3, 60).repeat(4))
    done = _run("verify", subject.name, "--text", tmp_path / "text.npy", "--length", "100", code=2)
    assert "give the model's tokenizer (--tokenizer)" in " ".join(done.output.split())
