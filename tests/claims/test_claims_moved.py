"""Models moved to other positions for a claim: once, with a tenth of the tokens, on text that is kept apart; and the
signs of what is measured."""

import json
from dataclasses import replace

import numpy as np
import pytest

from milepost.claims import needs
from milepost.claims.groups.practice import moved
from milepost.claims.judge import judge
from milepost.claims.rule import VERDICTS, NotMeasured
from milepost.lab import plan as planned

pytestmark = pytest.mark.slow

STEPS, ROWS = 200, 16


@pytest.fixture
def learning(small, in_this_process, monkeypatch):
    """Models that learn to use their positions: some hundred steps on words of few letters."""
    made = needs.make
    monkeypatch.setattr(needs, "make", lambda profile, **how: replace(made(profile, **how), steps=STEPS, rows=ROWS))
    monkeypatch.setattr(moved, "BATCH", 4)


def test_a_model_is_moved_once_and_with_a_tenth_of_the_tokens(learning, tmp_path):
    out = tmp_path / "claims"
    row = judge(["migrate"], out=out)[0]
    assert all(clause["measured"] is not None for clause in row["clauses"]), row["evidence"]
    assert row["verdict"] in VERDICTS and "nats a token before" in row["evidence"]
    files = sorted((out / "lab" / "moved").glob("*/milepost/migration.json"))
    assert len(files) == 2 and not list((out / "lab" / "moved").glob(".*"))
    for file, to in zip(files, ("alibi", "rope"), strict=True):
        told = json.loads(file.read_text())
        tuned, inside = told["tuned"], {stage: one["value"] for stage, one in told["inside"].items()}
        assert (
            10 * tuned["steps"] * tuned["batch"] * tuned["length"] <= STEPS * ROWS * 16
            and tuned["length"] == told["old"] == 16
        )
        share = (inside["swapped"] - inside["recovered"]) / (inside["swapped"] - inside["before"])
        assert row["numbers"][to]["value"] == pytest.approx(share) and inside["swapped"] > inside["before"]
    before = [file.stat().st_mtime_ns for file in files]
    again = judge(["migrate"], out=out, resume=True)[0]
    assert again["numbers"] == row["numbers"] and [file.stat().st_mtime_ns for file in files] == before
    json.dumps(row, allow_nan=False)


def test_the_text_of_a_migration_is_training_text_and_then_test_text(small, tmp_path):
    plan = needs.make("quick", encodings=("learned",))
    text, row = plan.read(), np.load(moved._write_text(tmp_path / "text.npy", plan))
    first, second = np.split(row, 2)
    assert len(first) % moved.PIECE == 0 and len(first) >= moved.PIECE
    joined = {
        "train": text.train.astype(np.uint8).tobytes(),
        "test": np.concatenate(text.test).astype(np.uint8).tobytes(),
    }
    for half, name, other in ((first, "train", "test"), (second, "test", "train")):
        for at in range(0, len(half), moved.PIECE):
            piece = half[at : at + moved.PIECE].astype(np.uint8).tobytes()
            assert piece in joined[name] and piece not in joined[other]


def told(share, short, far, low, high):
    """What a migration says of itself, as far as it is read."""
    rows = [
        {
            "served": "as it is",
            "short": {"value": short},
            "difference": {"value": far - short, "low": low - short, "high": high - short},
        }
    ]
    return {"to": "alibi", "share": share, "past": rows}


def test_shares_and_rises_have_their_signs():
    made = [
        told({"value": v, "low": v - 0.02, "high": v + 0.03}, 2.0, 2.0 * (1 + v / 10), 2.0, 2.4) for v in (0.9, 0.9)
    ]
    assert moved.recovered_share(made).value == pytest.approx(0.9) and moved.recovered_share(
        made
    ).sides == pytest.approx((0.88, 0.93))
    found = moved.rise_past(made, "as it is")
    assert found.value == pytest.approx(0.09) and found.sides == pytest.approx((0.0, 0.2))
    better = moved.rise_past([told(None, 2.0, 1.9, 1.8, 1.95)], "as it is")
    assert better.value == pytest.approx(-0.05) and better.sides == pytest.approx((-0.1, -0.025))
    with pytest.raises(NotMeasured, match="no more than chance"):
        moved.recovered_share([told(None, 2.0, 1.9, 1.8, 1.95)])


def test_too_short_a_training_leaves_no_tenth():
    plan = replace(planned.make("quick", encodings=("learned",)), steps=2, rows=1)
    with pytest.raises(NotMeasured, match="a tenth of the tokens of training is 12, which is less than one step"):
        moved.steps(plan)
