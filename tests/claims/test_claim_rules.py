"""A rule gives a verdict by its clauses alone: at, above and below thresholds, and where an interval straddles one."""

import math

import pytest

from milepost.claims.rule import VERDICTS, Number, control, core, least, limit, most, sentence, verdict

RULE = (
    control("seen", "at least", 0.9, "what a control sees"),
    core("loss", "at most", 2.0, "the loss"),
    limit("deep", "at most", 1.0, "the deeper loss"),
)


def found(**numbers):
    return {name: one if isinstance(one, Number) else Number(one) for name, one in numbers.items()}


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ({"seen": 1.0, "loss": 1.5, "deep": 0.5}, "holds"),
        ({"seen": 0.9, "loss": 2.0, "deep": 1.0}, "holds"),  # at the threshold is on its side
        ({"seen": 1.0, "loss": math.nextafter(2.0, 3), "deep": 0.5}, "fails"),
        ({"seen": 1.0, "loss": 1.5, "deep": 1.5}, "holds with a limit"),
        ({"seen": 1.0, "loss": 2.5, "deep": 1.5}, "fails"),
        ({"seen": 0.8, "loss": 2.5, "deep": 1.5}, "not decided here"),  # a control that fails: nothing can be told
        ({"seen": 1.0, "loss": Number(2.0, 1.9, 2.1), "deep": 0.5}, "not decided here"),
        ({"seen": 1.0, "loss": Number(1.9, 1.8, 2.0), "deep": 0.5}, "holds"),
        ({"seen": 1.0, "loss": Number(2.2, 2.1, 2.3), "deep": 0.5}, "fails"),
        ({"seen": Number(0.95, 0.85, 0.99), "loss": 1.5, "deep": 0.5}, "not decided here"),
        ({"seen": 1.0, "loss": 1.5, "deep": Number(1.0, 0.9, 1.1)}, "not decided here"),
        ({"seen": 1.0, "loss": 1.5}, "not decided here"),  # a limit that nobody measured
        ({"seen": 1.0, "deep": 1.5}, "not decided here"),  # so the core
        ({"loss": 1.5, "deep": 0.5}, "not decided here"),
        ({"seen": 1.0, "loss": float("nan"), "deep": 0.5}, "not decided here"),
        ({"seen": 1.0, "loss": 2.5}, "fails"),  # what was not measured could not save it
        ({}, "not decided here"),
    ],
)
def test_a_verdict_follows_from_the_numbers(numbers, expected):
    assert verdict(RULE, found(**numbers)) == expected
    assert expected in VERDICTS


def test_a_limit_that_is_clearly_broken_decides_whatever_else_is_not_known():
    rule = (*RULE, limit("other", "at most", 1.0, "another"))
    assert verdict(rule, found(seen=1.0, loss=1.5, deep=1.5)) == "holds with a limit"
    assert verdict(rule, found(seen=1.0, loss=1.5, deep=1.5, other=Number(1.0, 0.5, 1.5))) == "holds with a limit"


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [(0.1, 0.2, True), (0.0, 0.2, True), (-0.1, 0.2, None), (-0.2, -0.1, False), (-0.2, 0.0, None)],
)
def test_at_least_wants_the_whole_interval_on_one_side(low, high, says):
    assert core("gap", "at least", 0.0, "a gap").says({"gap": Number((low + high) / 2, low, high)}) is says


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [(0.1, 0.2, False), (0.0, 0.2, None), (-0.1, 0.2, None), (-0.2, -0.1, True), (-0.2, 0.0, True)],
)
def test_at_most_is_its_mirror(low, high, says):
    assert core("gap", "at most", 0.0, "a gap").says({"gap": Number((low + high) / 2, low, high)}) is says


def test_the_sentence_has_every_threshold_of_the_code():
    said = sentence(RULE)
    for clause in RULE:
        assert f"{clause.words} is {clause.side} {clause.bound:.3g}" in said
    assert said.startswith("The result counts only if") and "straddles" in said


def test_the_sentence_changes_with_the_rule():
    moved = (RULE[0], core("loss", "at most", 3.0, "the loss"), RULE[2])
    assert sentence(moved) != sentence(RULE)
    assert "at most 3" in sentence(moved)


def test_the_extreme_of_several_is_as_unsure_as_they_are():
    """The smallest value is sure to be above 0, and another may be below: so the smallest of all may be."""
    sure, unsure, below = Number(0.1, 0.05, 0.15, "a"), Number(0.2, -0.3, 0.7, "b"), Number(0.3, -0.6, -0.1, "c")
    assert least([sure, unsure]) == Number(0.1, -0.3, 0.15, "a") and most([sure, unsure]) == Number(0.2, 0.05, 0.7, "b")
    rule = (core("least", "at least", 0.0, "the least"),)
    assert (
        verdict(rule, {"least": sure}) == "holds"
        and verdict(rule, {"least": least([sure, unsure])}) == "not decided here"
    )
    assert verdict(rule, {"least": least([sure, unsure, below])}) == "fails"
    assert least([Number(2.0), Number(1.0)]).sides == (1.0, 1.0)
