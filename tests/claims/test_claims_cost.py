"""Claims of time and memory: all of the rule is measured, and numbers have their signs.

No time is held against a limit here.
"""

import pytest

from milepost.claims.groups.practice import cost
from milepost.claims.judge import judge
from milepost.claims.rule import VERDICTS, NotMeasured, Number, verdict
from milepost.claims.table import CLAIMS


@pytest.fixture
def short(monkeypatch):
    """Texts so short that they take no time."""
    for name, value in (("PLACED", (1024, 2048)), ("ATTENDED", (128, 256)), ("TIMED", 256), ("ROUNDS", 3)):
        monkeypatch.setattr(cost, name, value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["memory", "latency", "alibi-cheapest"])
def test_all_of_the_rule_is_measured(short, monkeypatch, name):
    monkeypatch.setattr(cost, "peak_mb", lambda run: (run(), 8.0)[1])  # so short a text moves no peak
    row = judge([name])[0]
    assert row["verdict"] in VERDICTS and row["figures"]
    assert all(clause["measured"] for clause in row["clauses"])


@pytest.mark.parametrize(
    ("bias", "rotation", "addition", "engine", "expected"),
    [
        (8.0, 1.3, 1.1, 2.0, "holds"),
        (8.0, 1.3, 1.1, 1.1, "holds with a limit"),
        (1.2, 1.3, 1.1, 1.1, "fails"),
        (8.0, 1.1, 1.3, 1.1, "fails"),
    ],
)
def test_the_order_of_latencies_decides(monkeypatch, bias, rotation, addition, engine, expected):
    found = {"bias, as a matrix": bias, "rotation": rotation, "addition": addition, "bias, with the engine": engine}
    monkeypatch.setattr(
        cost, "ratios", lambda: {name: [value, value + 0.01, value - 0.01] for name, value in found.items()}
    )
    numbers = cost.measure_latency().numbers
    assert verdict(CLAIMS["latency"].rule, numbers) == expected


def test_rounds_that_disagree_leave_it_open(monkeypatch):
    found = {
        "bias, as a matrix": [8.0] * 4,
        "rotation": [1.0, 1.2, 1.0, 1.2],
        "addition": [1.1] * 4,
        "bias, with the engine": [1.1] * 4,
    }
    monkeypatch.setattr(cost, "ratios", lambda: found)
    assert verdict(CLAIMS["latency"].rule, cost.measure_latency().numbers) == "not decided here"


def test_growth_is_that_of_the_larger_over_the_smaller():
    assert cost._growth([10.0, 10.0, 11.0], [40.0, 42.0, 44.0]).sides == (40 / 11, 4.4)
    assert cost._growth([10.0], [40.0]).value == 4.0
    with pytest.raises(NotMeasured, match="too small to be seen"):
        cost._growth([0.0, 1.0], [2.0, 2.0])


def test_a_matrix_that_grows_fourfold_and_an_engine_that_does_not():
    rule = CLAIMS["memory"].rule
    grown = {"addition": 2.0, "bias": 4.0, "rotation": 2.0, "engine": 2.0}
    assert verdict(rule, {name: Number(value) for name, value in grown.items()}) == "holds with a limit"
    assert verdict(rule, {name: Number(value) for name, value in {**grown, "bias": 2.0}.items()}) == "fails"
    assert (
        verdict(rule, {name: Number(value) for name, value in {**grown, "rotation": 1.0, "engine": 4.0}.items()})
        == "holds"
    )
