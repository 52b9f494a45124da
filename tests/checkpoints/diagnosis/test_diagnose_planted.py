"""diagnose on models that were really trained, and on the same with a fault put in: each is found where it is, and
told apart from the others.
"""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from from_lab import to_neox

from milepost.checkpoints import diagnose
from milepost.checkpoints.model.load import load
from milepost.lab import checkpoint
from milepost.lab.model import Decoder, Shape
from milepost.lab.train import Recipe, from_text, train

pytestmark = pytest.mark.slow

WORDS = [
    "position",
    "token",
    "length",
    "query",
    "key",
    "value",
    "table",
    "angle",
    "base",
    "window",
    "near",
    "far",
    "layer",
    "head",
    "loss",
    "text",
]
TRAINED = 32
LENGTHS = [32, 64, 256]


def written(seed, words):
    return " ".join(np.random.default_rng(seed).choice(WORDS, words)).encode()


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for number in range(12):
        (folder / f"{number:02}.txt").write_bytes(written(number, 400))
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folders of lab models that were trained on short texts, each once."""
    made, home = {}, tmp_path_factory.mktemp("models")
    row = np.frombuffer(written(100, 20000), np.uint8).astype(np.int64)

    def give(spec, length=TRAINED, steps=140, rate=1.0):
        if (spec, length) not in made:
            recipe = Recipe(steps, 16, length, rate=rate)
            model = Decoder(Shape(256, 2, 32, 2, length), spec).start(0)
            train(model, from_text(row, recipe), recipe)
            made[spec, length] = checkpoint.save(model, home / f"{spec}-{length}")
        return made[spec, length]

    return give


# -- what was trained short
# ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rope(trained, text):
    return diagnose(trained("rope"), text, LENGTHS, windows=12)


def test_a_rotary_model_fails_some_way_past_its_trained_length(rope):
    assert rope.trained_length == TRAINED and rope.onset is not None
    assert TRAINED <= rope.onset <= 4 * TRAINED and rope.effective_length == rope.onset
    assert rope.failure["confirmed"]["low"] > 0 and rope.failure["top"] > rope.failure["baseline"] + 0.5
    assert rope.loss_by_length[-1]["change_low"] > 0  # the same tokens lose more
    assert rope.cause["name"] == "unseen angles" and f"{rope.onset} tokens" in rope.verdict[0]
    assert max(row["largest"] for row in rope.shifted) < 1e-3  # and it is not the positions by themselves
    assert len(rope.pairs) == 1 and rope.pairs[0]["unseen_pairs"] and rope.pairs[0]["target"] == 256
    assert not any(row["beyond"] for row in rope.drift)


def test_alibi_holds_where_the_rotary_model_fails(trained, text, rope):
    found = diagnose(trained("alibi"), text, LENGTHS, windows=12)
    assert found.onset is None or found.onset > rope.onset
    assert found.effective_length > rope.effective_length and found.pairs == []
    if found.onset is None:
        assert (
            found.effective_length == 256
            and found.cause is None
            and found.failure is None
            and "256 tokens" in found.verdict[0]
        )


def test_the_same_weights_in_hugging_face_form_get_the_same_diagnosis(trained, text, rope, tmp_path):
    folder = to_neox(checkpoint.load(trained("rope")), tmp_path / "neox")
    found = diagnose(folder, text, LENGTHS, windows=12, tokenizer="bytes")
    assert (found.onset, found.effective_length, found.trained_length) == (
        rope.onset,
        rope.effective_length,
        rope.trained_length,
    )
    for mine, other in (
        (found.loss_by_position, rope.loss_by_position),
        (found.loss_by_length, rope.loss_by_length),
        (found.disjoint, rope.disjoint),
    ):
        assert [row["loss"] for row in mine] == pytest.approx([row["loss"] for row in other], abs=1e-4)
    for mine, other in zip(found.attention, rope.attention, strict=True):
        assert [head["mean"] for head in mine["heads"]] == pytest.approx(
            [head["mean"] for head in other["heads"]], abs=1e-2
        )
    assert [cell["share"] for cell in found.retrieval["cells"]] == [cell["share"] for cell in rope.retrieval["cells"]]


def test_within_what_was_trained_nothing_is_found(trained, text):
    found = diagnose(trained("rope"), text, [16, 32], windows=12)
    assert found.onset is None and found.effective_length == 32 and "at least 32 tokens" in found.verdict[0]


# -- faults put in
# ---------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def table(trained):
    """A model with a table of 64 rows, all of which were trained until the loss is the same everywhere."""
    return trained("learned", 64, 300)


@pytest.mark.parametrize("rows", [32, 48])
def test_a_table_whose_rows_are_noise_from_some_row_on_fails_there(table, text, tmp_path, rows):
    """Declared 64, really trained to ``rows``: the onset is that row, below the declared length."""
    folder = shutil.copytree(table, tmp_path / "model")
    model = checkpoint.load(folder)
    held = model.encodings[0].table
    with torch.no_grad():
        held[rows:] = torch.randn(held[rows:].shape, generator=torch.Generator().manual_seed(0)) * held[:rows].std()
    checkpoint.save(model, folder)
    found = diagnose(folder, text, [32, 64], windows=12)
    assert found.onset == rows == found.effective_length and found.trained_length == 64
    assert found.cause["name"] in ("untrained rows", "positions")
    assert found.shifted[-1]["low"] > found.shifted[1]["high"]  # the last passage needs the rows that are noise


def test_the_whole_table_holds(table, text):
    found = diagnose(table, text, [32, 64], windows=12)
    assert found.onset is None and found.effective_length == 64 and found.cause is None


def test_a_bug_of_positions_is_told_from_too_much_context(trained, text, monkeypatch):
    """Positions that count double from 64 on: a rotary model suffers by its positions, and `shifted` says so."""
    subject = load(trained("rope"))
    own = subject.model.forward

    def wrong(ids, at=None, **more):
        from milepost.layout import Layout

        at = Layout.dense(ids.shape[1]) if at is None else at
        pos = torch.where(at.pos >= 64, 3 * at.pos - 128, at.pos)
        return own(ids, Layout(at.index, at.segment, pos), **more)

    monkeypatch.setattr(subject.model, "forward", wrong)
    found = diagnose(subject, text, LENGTHS, windows=12)
    worse = {row["first"]: row["low"] > 0.02 * found.shifted[0]["loss"] for row in found.shifted}
    assert not worse[0] and not worse[1] and not worse[16] and all(worse[first] for first in worse if first >= 64)
    assert found.onset is not None and found.cause["name"] == "positions"
    assert "positions themselves" in found.verdict[1]


def test_a_broken_cache_is_seen_as_drift_and_as_nothing_else(trained, text, rope, monkeypatch):
    subject = load(trained("rope"))
    own = subject.continued

    def forgets(ids, said):
        return own(ids[:, 4:], said)  # the first tokens are not in the cache

    monkeypatch.setattr(subject, "continued", forgets)
    found = diagnose(subject, text, LENGTHS, windows=12)
    assert all(row["beyond"] and row["largest"] > 10 * row["allowed"] for row in found.drift[:1])
    assert any("A cache gives other logits" in sentence for sentence in found.verdict)
    assert found.loss_by_position == rope.loss_by_position and found.onset == rope.onset


def test_a_loss_that_is_no_number_is_an_onset_and_plain_data(trained, text, monkeypatch):
    import json

    subject = load(trained("rope"))
    own = subject.losses

    def spoilt(ids, first=0):
        lost = own(ids, first).clone()
        lost[:, max(0, 128 - first) :] = float("nan")
        return lost

    monkeypatch.setattr(subject, "losses", spoilt)
    found = diagnose(subject, text, [32, 256], windows=12)
    assert found.onset is not None and found.onset <= 128
    assert found.loss_by_position[-1]["loss"] is None and found.loss_by_length[-1]["loss"] is None
    json.dumps(found.to_json(), allow_nan=False)
