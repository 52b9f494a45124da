"""A diagnosis through a server: what holds is said to hold, a break is found where it is, and the cost is as planned."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from small_server import serving

from milepost.checkpoints.diagnosis import report
from milepost.checkpoints.diagnosis.diagnose import diagnose
from milepost.checkpoints.model.load import load
from milepost.checkpoints.model.text import read_text
from milepost.served import connect
from milepost.served.diagnosis import make_plan

LENGTHS = [32, 64, 256]
TRAINED = 32


@pytest.fixture(scope="module")
def own(trained_folder, code_text):
    """The diagnosis of the same weights in this process."""
    return diagnose(trained_folder, code_text, LENGTHS, windows=6)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["vllm", "sglang", "ollama"])
def test_a_break_is_found_where_it_is(form, trained_folder, trained_model, trained_words, code_text, own):
    """The wall that the same weights have in this process, up to a stretch."""
    with serving(trained_model, form, tokenizer=trained_words) as server:
        found = diagnose(connect(server.url, tokenizer=trained_folder, trained_length=TRAINED), code_text, LENGTHS)
    assert [row["length"] for row in found.loss_by_length] == LENGTHS
    assert found.loss_by_length[0]["change"] is None and found.loss_by_length[-1]["change_low"] > 0
    assert len(found.loss_by_position) == 8
    assert own.onset is not None and found.onset is not None and abs(found.onset - own.onset) <= 2 * 256 // 8
    assert found.cause["name"] == "not known"
    assert found.failure["rise"]["low"] > 0.02 * found.failure["baseline"]
    assert any("outside of the 20 likeliest" in note for note in found.notes) == (form == "ollama")
    assert bool(found.retrieval["cells"]) == (form != "ollama")
    page = report.document(json.loads(json.dumps(found.to_json(), allow_nan=False)))
    assert page.html() and page.markdown() and list(page.terminal()) and not page.ok


@pytest.mark.slow
def test_within_its_trained_length_nothing_breaks(trained_folder, trained_model, code_text):
    with serving(trained_model, "vllm") as server:
        subject = connect(server.url, tokenizer=trained_folder, trained_length=TRAINED)
        found = diagnose(subject, code_text, [16, 32])
    assert found.onset is None and found.effective_length == 32 and found.failure is None and found.cause is None


@pytest.mark.slow
def test_loss_by_position_is_that_of_the_model(trained_folder, trained_model, code_text, own):
    """The numbers of the tables, from the same weights in this process and the same windows."""
    with serving(trained_model, "vllm") as server:
        found = diagnose(connect(server.url, tokenizer=trained_folder, trained_length=TRAINED), code_text, LENGTHS)
    subject = load(trained_folder)
    windows, _ = read_text(code_text, subject).windows(256, 6)
    here = subject.losses(torch.from_numpy(windows)).numpy()
    for row in found.loss_by_position:
        assert row["loss"] == pytest.approx(here[:, row["start"] : row["end"]].mean(), abs=1e-4)
    scored = found.protocol["plan"]["scored"]
    short = subject.losses(torch.from_numpy(windows[:, -65:].copy())).numpy()[:, -scored:]
    assert found.loss_by_length[1]["loss"] == pytest.approx(short.mean(), abs=1e-4)


@pytest.mark.slow
def test_what_it_costs_is_said_before_and_kept(trained_folder, trained_model, code_text):
    """Forced positions too: at most three passes over the windows at every length, by the server's own count."""
    told = []
    with serving(trained_model, "vllm") as server:
        subject = connect(server.url, tokenizer=trained_folder, trained_length=TRAINED)
        object.__setattr__(subject.server.can, "prompt", False)
        plan = make_plan(subject, LENGTHS, 6)
        start = len(server.bodies)
        found = diagnose(subject, code_text, LENGTHS, tell=lambda what, share: told.append((what, share)))
        sent = len(server.bodies) - start
    spent = found.protocol["spent"]
    assert spent["requests"] == sent <= plan.requests
    assert spent["tokens_computed"] <= plan.tokens
    assert spent["tokens_computed"] <= 3 * 6 * sum(LENGTHS)
    assert f"at most {plan.requests} requests" in told[0][0] and str(plan.tokens) in told[0][0]
    shares = [share for _, share in told]
    assert shares == sorted(shares) and shares[-1] == 1.0


def test_no_prompt_and_no_key_in_a_result(small_model, small_text, windows, monkeypatch):
    monkeypatch.setenv("MILEPOST_KEY", "s3cret")
    with serving(small_model, "vllm") as server:
        found = diagnose(connect(server.url), small_text, [64, 128])
    words = json.dumps(found.to_json())
    assert "s3cret" not in words and ", ".join(map(str, windows[0, :6].tolist())) not in words


def test_lengths_are_checked(small_model, small_text, tmp_path):
    with serving(small_model, "vllm") as server:
        subject = connect(server.url)
        with pytest.raises(ValueError, match="serves 512 tokens, and texts of 600"):
            diagnose(subject, small_text, [64, 600])
        with pytest.raises(ValueError, match="at least 16 tokens"):
            diagnose(subject, small_text, [4])
        with pytest.raises(ValueError, match="at least 2 windows"):
            diagnose(subject, small_text, [64], windows=1)
        short = tmp_path / "short.npy"
        np.save(short, np.full(100, 5))
        with pytest.raises(ValueError, match="too short"):
            diagnose(subject, short, [64, 128])
