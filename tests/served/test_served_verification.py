"""Planted faults in a server that runs a real small model: each is found, and named; and an honest one passes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from small_server import FACTOR, SERVED, SmallModel, build, serving

from milepost.checkpoints.model.load import load
from milepost.rope import ConfigError
from milepost.served import connect, report
from milepost.served.verification.candidates import CONFIG, rotations
from milepost.served.verification.match import Match, eight_bits, match
from milepost.served.verification.references import References
from milepost.served.verification.repeats import _judged
from milepost.served.verification.verify import verify_served

LENGTH = 448
YARN = f"YaRN, factor {FACTOR:g}"


@pytest.fixture(scope="module")
def against(small_folder):
    return load(small_folder)


def _verified(server, text, against=None, tokenizer=None):
    return verify_served(connect(server.url, tokenizer=tokenizer), text, LENGTH, against=against)


def _checks(done):
    return {check.name: check for check in done.checks}


@pytest.mark.slow
@pytest.mark.parametrize("form", ["vllm", "sglang"])
def test_an_honest_server_passes(form, small_model, small_text, against):
    with serving(small_model, form) as server:
        done = _verified(server, small_text, against)
    assert done.ok and done.same == (CONFIG,), [check.sentence for check in done.checks]
    checks = _checks(done)
    assert [check.verdict for check in done.checks] == ["PASS"] * 8
    assert checks["rotation"].measured < 1e-4 < checks["rotation"].control
    assert all(
        check.measured < 1e-4 for name, check in checks.items() if check.unit == "nats" and name != "start of the text"
    )
    data = json.loads(json.dumps(done.to_json(), allow_nan=False))
    page = report.verification(data)
    assert page.html() and page.markdown() and list(page.terminal()) and page.ok


FAULTS = {
    "no temperature": ("rotation", f"it runs {YARN}, without the temperature", (f"{YARN}, without the temperature",)),
    "base 10000": ("rotation", "it runs base 10000", ("base 10000",)),
    "off by one": ("prefix cache", "positions after a cached prefix are not those before", (CONFIG,)),
    "decode unscaled": ("prefill and decode", "decode does not turn as prefill does", (CONFIG,)),
    "history": ("history", "the server remembers the longer text", (CONFIG,)),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_named(fault, small_model, small_text, against):
    name, words, same = FAULTS[fault]
    with serving(small_model, "vllm", fault) as server:
        done = _verified(server, small_text, against)
    check = _checks(done)[name]
    assert check.verdict == "FAIL" and words in check.sentence, [c.sentence for c in done.checks]
    others = ("prefill and decode", "prefix cache", "history") if fault == "history" else ()  # it stays so
    assert set(done.failed) - {*others} <= {name}, [c.sentence for c in done.checks]
    assert done.same == same and not done.ok
    assert not report.verification(done.to_json()).ok


@pytest.mark.slow
@pytest.mark.parametrize("form", ["vllm", "ollama"])
def test_a_text_that_is_cut_is_found_with_its_length(form, small_model, small_text, small_folder, small_words):
    with serving(small_model, form, "cut", tokenizer=small_words) as server:
        done = _verified(server, small_text, tokenizer=small_folder if form == "ollama" else None)
    checks = _checks(done)
    assert checks["start of the text"].verdict == "FAIL"
    reached = int(checks["start of the text"].sentence.split("the last ")[1].split()[0])
    assert abs(reached - SERVED // 2) <= 16
    if form == "vllm":
        assert "takes 513 without an error" in checks["too long a text"].sentence


@pytest.mark.slow
def test_the_nearest_candidate_is_the_right_one_on_every_text(small_model, windows, tmp_path, against):
    """Each of four rotations on each of eight texts, with the same weights: the nearest is always the right one."""
    ropes = {
        CONFIG: None,
        "no scaling": {"rope_type": "default", "rope_theta": 50000.0},
        f"linear, factor {FACTOR:g}": {"rope_type": "linear", "rope_theta": 50000.0, "factor": FACTOR},
        f"{YARN}, without the temperature": {**small_model.config.rope_parameters, "attention_factor": 1.0},
    }
    for name, rope in ropes.items():
        other = small_model if rope is None else build(rope)
        other.load_state_dict(small_model.state_dict())
        with serving(SmallModel(other), "sglang") as server:
            subject = connect(server.url)
            for number in range(len(windows)):
                tried = rotations(against.spec, 2, against.trained)
                row, at = windows[number : number + 1], [list(range(9, 449, 4))[:96]]
                told, outside = subject.losses_of(row, at)
                run = References(against).losses
                here = {r.name: run(r, row, at) for r in tried if r in tried[:5] or "without" in r.name}
                assert match(told, outside, here, np.arange(96) // 6, 449)[0]["candidate"] == name


def test_candidates_are_those_of_the_config(against):
    tried = rotations(against.spec, 2, against.trained)
    names = [rotation.name for rotation in tried]
    assert names == [
        CONFIG, "no scaling", "linear, factor 4", "NTK, factor 4", YARN, f"{YARN}, without the temperature",
        "base 10000", "the other pairing", "queries off by one",
    ]  # fmt: skip
    q = torch.randn(1, 4, 6, 16, dtype=torch.float64)
    pos = torch.arange(6)
    own, off = tried[0].encodings[0], tried[-1].encodings[0]
    torch.testing.assert_close(off.query(q, pos), own.query(q, pos + 1))
    torch.testing.assert_close(off.key(q, pos), own.key(q, pos))


def test_eight_bits_round_the_inputs_of_linear_layers():
    layer = torch.nn.Linear(64, 3, bias=False)
    x = torch.randn(2, 64)
    with eight_bits(torch.nn.Sequential(layer)) as _, torch.no_grad():
        got = layer(x)
    blocks = x.numpy().reshape(2, 2, 32).astype(np.float64)
    scale = np.abs(blocks).max(-1, keepdims=True) / 127
    expected = (np.rint(blocks / scale) * scale).reshape(2, 64) @ layer.weight.detach().numpy().T
    assert np.abs(got.numpy() - expected).max() < 1e-5
    assert not torch.equal(got, layer(x).detach())


def test_match_tells_what_fits_and_what_does_not():
    draw = np.random.default_rng(0)
    true = draw.exponential(2.0, (1, 128))
    server = true + draw.normal(0, 0.01, true.shape)
    near, far = true + draw.normal(0, 0.001, true.shape), true + draw.normal(0, 0.3, true.shape)
    outside, stretches = np.zeros(true.shape, bool), np.arange(128) // 8
    rows = match(server, outside, {CONFIG: far, "near": near, "true": true}, stretches, 500)
    found = Match(rows, 0.04, 128)
    assert found.best in ("true", "near") and set(found.same) == {"true", "near"} and found.fits
    assert found.distance(CONFIG) == pytest.approx(np.abs(server - far).mean())
    assert found.nearest_other == found.distance(CONFIG)
    assert [row["far"] for row in rows] == [False, False, True] and {row["tokens"] for row in rows} == {500}
    none = Match(match(server + 1.0, outside, {CONFIG: far, "true": true}, stretches, 500), 0.04, 128)
    assert not none.fits
    outside[0, :64] = True
    server[0, :64] = 99.0
    assert match(server, outside, {CONFIG: far, "true": true}, stretches, 500)[0]["candidate"] == "true"


@pytest.mark.slow
def test_texts_longer_than_what_is_served_are_found(small_model, small_folder, small_words, windows, tmp_path):
    """Whether the server says how much it serves (vLLM) or has to be asked for more and more (OpenAI's form)."""
    np.save(tmp_path / "text.npy", np.tile(windows, (1, 2)))
    for form, words in (("vllm", "serves 512 tokens"), ("openai", "takes 5")):
        with serving(small_model, form, tokenizer=small_words) as server:
            subject = connect(server.url, tokenizer=small_folder)
            done = verify_served(subject, tmp_path / "text.npy", 700)
        check = _checks(done)["served length"]
        assert check.verdict == "FAIL" and words in check.sentence and "(400)" in check.sentence
        assert "701 were asked for" in check.sentence or "texts of 701" in check.sentence
        assert done.failed == ("served length",) and 490 <= check.measured <= 511
    with serving(small_model, "vllm") as server:
        done = verify_served(connect(server.url), tmp_path / "text.npy", 512)
    assert done.ok and "leave room for what is generated" in done.notes[0], [check.sentence for check in done.checks]
    with (
        serving(SmallModel(small_model, served=40), "vllm") as server,
        pytest.raises(ValueError, match="too few to verify on"),
    ):
        verify_served(connect(server.url), tmp_path / "text.npy", 100)


def test_lengths_and_vocabularies_are_checked(small_model, small_text, against):
    with serving(small_model, "vllm") as server:
        subject = connect(server.url)
        with pytest.raises(ValueError, match="at least 64 tokens"):
            verify_served(subject, small_text, 32)
        object.__setattr__(subject.server.can, "vocabulary", 99)
        with pytest.raises(ValueError, match="not the same model"):
            verify_served(subject, small_text, LENGTH, against=against)


def test_a_repeat_passes_below_a_quarter_of_what_another_rotation_changes():
    """Where arithmetic may explain more than another rotation does, as with weights of 4 bits."""

    def judge(number, allowed, control):
        return _judged("history", [number], allowed, control, "the same", "another").verdict

    assert [judge(n, 0.24, 0.12) for n in (0.0, 0.03, 0.031, 0.24, 0.25, float("nan"))] == [
        "PASS", "PASS", "BLIND", "BLIND", "FAIL", "FAIL",
    ]  # fmt: skip
    assert [judge(n, 0.05, 0.12) for n in (0.05, 0.051)] == ["PASS", "FAIL"]
    assert [judge(n, 0.05, None) for n in (0.05, 0.051)] == ["PASS", "FAIL"]


def test_parts_are_asked_for_by_name(small_model, small_text):
    with serving(small_model, "vllm") as server:
        subject = connect(server.url)
        before = len(server.bodies)
        done = verify_served(subject, small_text, 200, only=("truncation",))
        assert [check.name for check in done.checks] == ["tokens counted", "start of the text", "too long a text"]
        assert "not asked for: repeats" in done.notes
        assert len(server.bodies) - before <= done.provenance["protocol"]["plan"]["requests"] == 5
        with pytest.raises(ConfigError, match="are rotation, truncation, repeats; got prefill"):
            verify_served(subject, small_text, 200, only=("prefill",))
        with pytest.raises(ConfigError, match="give --against"):
            verify_served(subject, small_text, 200, only=("rotation",))
