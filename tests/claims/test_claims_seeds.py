"""Numbers over seeds and texts: signs, pairing, and intervals that are as wide as the wider of the two."""

import math
from types import SimpleNamespace

import pytest

from milepost.claims.groups.absolute import frame
from milepost.claims.rule import NotMeasured, Number, verdict
from milepost.claims.seeds import LEAD, accuracy, gap, mean_loss, mean_of_seeds, rise, shares
from milepost.claims.table import CLAIMS
from milepost.measure.intervals import t_quantile


def runs(made, encoding, strategy="none", **how):
    return [
        one
        for one in made(**how)["runs"]
        if (one["encoding"], one["strategy"], one["data"]) == (encoding, strategy, "text")
    ]


def test_a_rise_is_a_share_of_the_loss_at_home(made):
    """The made results rise by 0.2 nats a doubling for rope, from 2.3 (and 0.01 more for the second seed)."""
    alone = runs(made, "rope", seeds=(0,))
    assert rise(alone, 128, 16).value == pytest.approx(0.6 / 2.3)
    assert rise(alone, 32, 16).value == pytest.approx(0.2 / 2.3)
    assert rise(runs(made, "alibi", seeds=(0,)), 128, 16).value == pytest.approx(0.03 / 2.4)


def test_a_gap_is_what_the_second_loses_more(made):
    rope, alibi = runs(made, "rope"), runs(made, "alibi")
    assert gap(alibi, rope, 128).value == pytest.approx((2.3 + 0.6) - (2.4 + 0.03))
    assert gap(rope, alibi, 128).value == pytest.approx(-gap(alibi, rope, 128).value)


def test_paired_differences_have_no_spread_where_all_files_agree(made):
    found = gap(runs(made, "alibi"), runs(made, "rope"), 128)
    assert found.sides == pytest.approx((found.value, found.value), abs=1e-9)


def test_what_is_not_there_is_said(made):
    with pytest.raises(NotMeasured, match="no loss at 128 tokens for learned"):
        mean_loss(runs(made, "learned"), 128)
    with pytest.raises(NotMeasured, match="same seeds"):
        gap(runs(made, "rope", seeds=(0,)), runs(made, "alibi", seeds=(1,)), 16)


def test_texts_that_differ_are_not_compared(made):
    other = runs(made, "alibi")
    other[0]["window_files"] = other[0]["window_files"][::-1]
    with pytest.raises(NotMeasured, match="same texts"):
        gap(runs(made, "rope"), other, 16)


def test_the_wider_interval_is_taken_on_each_side():
    one = mean_of_seeds([1.0, 1.2, 1.4], 1.19, 1.25, "files")
    around = t_quantile(3) * 0.2 / math.sqrt(3)
    assert one.sides == pytest.approx((1.2 - around, 1.2 + around))
    assert mean_of_seeds([1.2, 1.2, 1.2], 1.0, 1.3, "files").sides == (1.0, 1.3)
    assert mean_of_seeds([1.2], 1.0, 1.3, "files").over == "one seed, files"


def test_the_interval_of_a_share_ends_where_shares_do():
    values = [1.0, 1.0, 0.75]
    around = t_quantile(3) * 0.25 / 3  # the standard deviation is 0.25 / sqrt(3)
    assert mean_of_seeds(values, None, None, "rows").sides == pytest.approx(
        (11 / 12 - around, 11 / 12 + around)
    )  # of what has no bounds
    assert shares(values, 300, "rows").sides == (pytest.approx(11 / 12 - around), 1.0)
    assert shares([1 - one for one in values], 300, "rows").sides == (0.0, pytest.approx(1 / 12 + around))
    assert shares([0.5, 0.5, 0.5], 300, "rows").sides == pytest.approx(
        (0.4438, 0.5562), abs=1e-4
    )  # Wilson's, which no end touches
    assert mean_of_seeds([0.9, 0.1, -0.9], None, None, "images", LEAD).sides == LEAD


def test_the_frame_counts_its_rows(monkeypatch):
    given = {"learned": (1.0, 1.0, 1.0), "sinusoidal": (1.0, 0.75, 0.75), "rope": (0.5, 0.5, 0.5)}
    monkeypatch.setattr(
        frame,
        "measure_once",
        lambda home, name, make: Number(given[name.rpartition("-")[0]][int(name.rpartition("-")[2])]),
    )
    found = frame.measure_frame(SimpleNamespace(home=lambda name: name, seeds=(0, 1, 2), profile="quick")).numbers
    rows = 3 * frame.TESTED
    assert found["learned"].over == f"3 seeds, {rows} rows"
    assert found["learned"].sides == pytest.approx((rows / (rows + 1.959964**2), 1.0))  # Wilson's
    assert found["sinusoidal"].value == pytest.approx(5 / 6) and found["rope"].value == 0.5
    rule = CLAIMS["learned-fits"].rule
    assert verdict(rule, found) == "not decided here"  # seeds differ, and one of them knows the frame
    assert verdict(rule, {**found, "sinusoidal": found["learned"]}) == "fails"
    assert verdict(rule, {**found, "sinusoidal": found["rope"]}) == "holds"


def test_student_s_t_is_the_published_one():
    """The density of t with n - 1 degrees of freedom, integrated over the interval: 95%."""
    import mpmath

    for n in range(2, 11):
        t, v = t_quantile(n), n - 1
        inside = mpmath.quad(lambda x, v=v: (1 + x * x / v) ** (-(v + 1) / 2), [-t, 0, t])
        whole = mpmath.sqrt(v * mpmath.pi) * mpmath.gamma(mpmath.mpf(v) / 2) / mpmath.gamma(mpmath.mpf(v + 1) / 2)
        assert float(inside / whole) == pytest.approx(0.95, abs=1e-12)


def test_accuracy_counts_rows_not_answers():
    row = {
        "length": 32,
        "accuracy": 1.0,
        "rows": 96,
        "tokens": 700,
        "by_depth": [{"depth": 0.0, "accuracy": 0.25, "rows": 96}],
    }
    run = {"encoding": "rope", "tasks": {"recall": [row]}}
    found = accuracy([run], "recall", 32)
    assert found.value == 1.0 and found.sides[0] == pytest.approx(96 / (96 + 1.959963984540054**2))  # Wilson, all right
    assert accuracy([run], "recall", 32, 0.0).value == 0.25
    with pytest.raises(NotMeasured, match="no answers to recall at 64"):
        accuracy([run], "recall", 64)
