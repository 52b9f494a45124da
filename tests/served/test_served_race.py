"""The race of candidates, what is kept of them, what a verification costs, and the candidate of a text that is cut."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from small_server import SERVED, serving

from milepost.checkpoints.files import kept
from milepost.checkpoints.model.load import load
from milepost.served import connect
from milepost.served.verification import race
from milepost.served.verification.candidates import CONFIG, rotations
from milepost.served.verification.plan import make_plan
from milepost.served.verification.references import References
from milepost.served.verification.verify import verify_served

LENGTH = 448
YARN = "YaRN, factor 4, without the temperature"


@pytest.fixture(scope="module")
def against(small_folder):
    return load(small_folder)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _raced(server, against, windows, monkeypatch, least):
    monkeypatch.setattr(race, "LEAST", least)
    return race.run_race(connect(server.url), against, windows[:2, : LENGTH + 1], lambda what, share: None)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", "no temperature", "base 10000"])
def test_the_race_has_the_answer_of_running_everything(fault, small_model, against, windows, monkeypatch):
    name = {"": CONFIG, "no temperature": YARN, "base 10000": "base 10000"}[fault]
    with serving(small_model, "vllm", fault) as server:
        whole, _ = _raced(server, against, windows, monkeypatch, 1 << 20)
        short, best = _raced(server, against, windows, monkeypatch, 32)
    assert whole.same == short.same == (name,) and best.name == name
    assert {row["candidate"] for row in whole.rows} == {row["candidate"] for row in short.rows}
    tokens = {row["candidate"]: row["tokens"] for row in short.rows}
    assert tokens[name] == LENGTH and sum(count < LENGTH // 4 for count in tokens.values()) >= 3
    assert {row["tokens"] for row in whole.rows} == {LENGTH}
    assert short.distance(name) < 1e-4 and short.nearest_other > 1000 * short.distance(name)


@pytest.mark.slow
def test_where_none_fits_everything_is_run_on_the_whole(small_model, against, windows, monkeypatch):
    """A server that turns the start of texts as the config says, and the rest otherwise: nothing fits, and the start
    alone decides nothing."""
    with serving(small_model, "vllm") as server:
        subject = connect(server.url)
        told = subject.losses_of

        def broken(texts, positions, fresh=False):
            losses, outside = told(texts, positions, fresh)
            late = np.array(positions) > LENGTH // 4
            return losses + late * np.linspace(0.5, 2.0, losses.shape[1]), outside

        subject.losses_of = broken
        monkeypatch.setattr(race, "LEAST", 32)
        found, _ = race.run_race(subject, against, windows[:2, : LENGTH + 1], lambda what, share: None)
    assert not found.fits and {row["tokens"] for row in found.rows} == {LENGTH}


def test_references_are_the_losses_of_the_turned_model_and_are_kept(against, windows):
    tried = rotations(against.spec, 2, against.trained)
    row, at = windows[:1, :200], [[5, 60, 199]]
    references = References(against)
    first = references.losses(tried[1], row, at)
    with against.turned(tried[1].encodings):
        direct = against.losses(torch.from_numpy(row))[0, [4, 59, 198]].double().numpy()
    assert np.abs(first[0] - direct).max() < 1e-6 and references.read == 200
    again = References(against)
    assert np.array_equal(again.losses(tried[1], row, at), first) and again.read == 0
    assert np.abs(again.losses(tried[0], row, at) - first).max() > 1e-3 and again.read == 200
    names = sorted(kept.folder("references").glob("*.json"))
    assert len(names) == 2
    for name in names:
        name.write_text("[1.0, null")
    assert np.array_equal(References(against).losses(tried[1], row, at), first)


def test_other_weights_have_other_references(against, small_folder, windows):
    other = load(small_folder)
    with torch.no_grad():
        other.model.lm_head.weight[3, 0] += 0.5
    tried = rotations(against.spec, 2, against.trained)
    row, at = windows[:1, :40], [[5, 39]]
    first, second = References(against).losses(tried[0], row, at), References(other).losses(tried[0], row, at)
    assert np.abs(first - second).max() > 0


@pytest.mark.slow
@pytest.mark.parametrize("form", ["vllm", "forced", "openai"])
def test_what_a_verification_costs_is_said_before(form, small_model, small_folder, small_words, small_text, against):
    told = []
    with serving(small_model, form if form == "openai" else "vllm", tokenizer=small_words) as server:
        subject = connect(server.url, tokenizer=small_folder)
        if form == "forced":
            object.__setattr__(subject.server.can, "prompt", False)
        start, computed = len(server.bodies), subject.server.computed
        done = verify_served(
            subject, small_text, LENGTH, against=against, tell=lambda what, share: told.append((what, share))
        )
        sent, spent = len(server.bodies) - start, subject.server.computed - computed
        plan = make_plan(subject, np.zeros((2, LENGTH + 1), int), against)
    assert done.same == (CONFIG,), [check.sentence for check in done.checks]
    assert sent <= plan.requests and spent <= plan.tokens, (sent, spent, plan)
    assert f"at most {plan.requests} requests, in which {subject.family} computes {plan.tokens} tokens" in told[1][0]
    shares = [share for _, share in told]
    assert shares == sorted(shares) and shares[-1] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("form", ["vllm", "ollama"])
def test_a_cut_is_matched_with_a_cut_text_here(form, small_model, small_text, small_folder, small_words, against):
    with serving(small_model, form, "cut", tokenizer=small_words) as server:
        subject = connect(server.url, tokenizer=small_folder if form == "ollama" else None)
        done = verify_served(subject, small_text, LENGTH, against=against)
    checks = {check.name: check for check in done.checks}
    sentence = checks["start of the text"].sentence
    assert checks["start of the text"].verdict == "FAIL" and f"only the last {SERVED // 2} reach the model" in sentence
    found = re.search(
        r"run here on its last 256 tokens alone.* ([\d.e-]+) nats apart; on the whole text, ([\d.e-]+)", sentence
    )
    assert found and float(found[1]) < 1e-4 and float(found[2]) > 10 * float(found[1])
    assert done.same == (CONFIG,), "the rotation is found on what is not cut"
