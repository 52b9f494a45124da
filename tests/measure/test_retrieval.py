"""Retrieval: texts laid out as they should be, right and wrong answers of models that are known to look, or not to."""

import numpy as np
import pytest
import torch

from milepost.measure.intervals import share
from milepost.measure.retrieval import DEPTHS, LEAST_HAYSTACK, Question, lay_out, pool_depths, retrieval, room

NEEDLE, ASKED, CANDIDATES = np.array([50, 51]), np.array([60, 61, 62]), np.array([70, 71, 72, 73])
HAYS = np.arange(4 * 40).reshape(4, 40) % 40


def question(answer=0):
    return Question(np.append(NEEDLE, CANDIDATES[answer]), ASKED, CANDIDATES, answer)


def dealt(trial, depth):
    return question((trial * len(DEPTHS) + depth) % 4)


@pytest.mark.parametrize("length", [14, 20, 39])
@pytest.mark.parametrize("depth", DEPTHS)
def test_a_text_has_its_length_and_the_needle_at_its_depth(length, depth):
    text = lay_out(HAYS[0], question(), length, depth).tolist()
    left = length - 6
    at = text.index(50)
    assert len(text) == length and text[-3:] == [60, 61, 62] and text[at : at + 3] == [50, 51, 70]
    assert text[:at] + text[at + 3 : -3] == HAYS[0][:left].tolist()  # the haystack in its order, nothing twice
    assert at == 1 + round(depth * (left - 1))  # after the first token at depth 0, just before the question at depth 1
    assert room(question(), length) == left


def test_a_text_that_is_too_short_says_how_long_it_must_be():
    with pytest.raises(ValueError, match=f"at least {LEAST_HAYSTACK} are needed: ask at 14 tokens or more"):
        lay_out(HAYS[0], question(), 13, 0.5)
    with pytest.raises(ValueError, match="60 tokens has room for 54"):
        lay_out(HAYS[0], question(), 60, 0.5)


def finder(reach=None):
    """A model that looks for the needle in the last ``reach`` tokens, and says the token after it; else it says
    candidate 71.
    """

    def last(ids):
        logits = torch.zeros(len(ids), 80)
        for row, tokens in enumerate(ids.tolist()):
            seen = tokens if reach is None else tokens[-reach:]
            said = seen[seen.index(51) + 1] if 51 in seen and seen.index(51) + 1 < len(seen) else 71
            logits[row, said] = 2.0
        return logits

    return last


def test_a_model_that_finds_it_is_always_right_and_one_that_does_not_look_is_right_by_chance():
    for cell in retrieval(finder(), HAYS, dealt, [20, 39]):
        assert cell.right.value == 1.0 and cell.margin == pytest.approx(2.0)
    blind = retrieval(finder(3), HAYS, dealt, [20, 39])
    for length in (20, 39):
        one = pool_depths(blind, length)
        assert one.right.value == 1 / 4 and one.right.tokens == 20  # answers are dealt evenly: exactly chance
        assert one.margin == pytest.approx((2 * 5 - 2 * 15) / 20)


def test_a_model_that_sees_so_far_fails_at_the_depths_beyond():
    cells = {(cell.length, cell.depth): cell.right.value for cell in retrieval(finder(20), HAYS, dealt, [20, 39])}
    assert all(cells[20, depth] == 1.0 for depth in DEPTHS)
    assert all(cells[39, depth] == 0.25 for depth in (0.0, 0.25)) and cells[39, 0.75] == cells[39, 1.0] == 1.0


def test_a_tie_is_not_right_and_what_is_no_number_neither():
    for last in (lambda ids: torch.zeros(len(ids), 80), lambda ids: torch.full((len(ids), 80), float("nan"))):
        assert all(cell.right.value == 0.0 for cell in retrieval(last, HAYS, dealt, [20]))


@pytest.mark.parametrize(
    ("right", "trials", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (1, 20, 0.0089, 0.2361)],
)
def test_wilson_s_interval_is_that_of_tables(right, trials, low, high):
    """The numbers are those of published tables of Wilson's score interval."""
    found = share(right, trials)
    assert found.value == right / trials and found.tokens == trials
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize(("right", "trials"), [(3, 10), (19, 20)])
def test_wilson_s_interval_solves_its_equation(right, trials):
    """Its ends are the shares that are 1.96 of their own standard deviations away from what was seen."""
    found = share(right, trials)
    for end in (found.low, found.high):
        assert abs(found.value - end) == pytest.approx(1.959964 * (end * (1 - end) / trials) ** 0.5, rel=1e-6)


def test_a_share_of_nothing_is_refused():
    with pytest.raises(ValueError, match="got 0 of 0"):
        share(0, 0)
    with pytest.raises(ValueError, match="got 3 of 2"):
        share(3, 2)
