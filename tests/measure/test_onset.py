"""Onset: planted failures are found where they begin; hard words, noise and help from context are not mistaken for
one.
"""

import math

import numpy as np
import pytest

from milepost.measure.losses import TOLERATED_RISE, buckets
from milepost.measure.onset import failing, onset, read_again, read_short, rises_within

N, L, TRAINED = 8, 512, 128
EDGES = buckets(L, TRAINED, 8)
GROUPS = np.arange(N)
RNG = np.random.default_rng(0)
TOKENS = RNG.integers(0, 100, (N, L + 1))
HARD = RNG.normal(3.0, 0.5, 100)
"""How hard each token is, wherever it is read."""


def reader(extra):
    """A model that loses what the token is worth, and ``extra(position)`` for where it is read."""

    def score(windows):
        places = np.arange(windows.shape[1] - 1)
        return HARD[windows[:, 1:]] + np.array([extra(place) for place in places])

    return score


def found(extra, tokens=TOKENS, trained=TRAINED, edges=EDGES, begin=None):
    score = reader(extra)
    lost = score(tokens[:, : L + 1])
    return onset(score, tokens, [lost[:, a:e] for a, e in edges], edges, GROUPS, trained, begin)


@pytest.mark.parametrize("start", [48, 64, 128, 160, 256, 400])
def test_a_step_is_found_in_the_bucket_that_it_begins_in(start):
    seen = found(lambda place: 2.0 * (place >= start))
    assert seen is not None and seen.start == start // 16 * 16 and seen.end == seen.start + 16
    assert seen.rise.value == pytest.approx(2.0, abs=0.5) and seen.rise.low > 0
    assert seen.top == pytest.approx(seen.baseline + 2.0, abs=0.6) and seen.within == 16
    assert seen.confirmed.value == pytest.approx(2.0, abs=1e-9)  # the same tokens: what they are worth is gone
    assert seen.confirmed.low == pytest.approx(2.0, abs=1e-9)


def test_a_slope_is_found_later_and_is_said_to_be_less_sharp():
    seen = found(lambda place: max(0, place - 128) / 128)
    assert seen is not None and 128 <= seen.start <= 256
    assert seen.within >= 64 and seen.top == pytest.approx(seen.baseline + 2.9, abs=0.5)


@pytest.mark.parametrize(
    "extra",
    [
        lambda place: 0.0,
        lambda place: 2.0 * (place < 16),
        lambda place: 3.0 / (1 + place),
        lambda place: -0.5 * (place > 200),
    ],
)
def test_nothing_is_found_where_nothing_fails(extra):
    assert found(extra) is None


def test_hard_words_at_the_end_of_every_text_are_no_failure():
    """Later tokens that are harder wherever they are read: the first rule is deceived, the second is not."""
    harder = TOKENS.copy()
    order = np.argsort(HARD)
    harder[:, 300:] = RNG.choice(order[-10:], (N, L + 1 - 300))
    score = reader(lambda place: 0.0)
    lost = score(harder)
    by_bucket = [lost[:, a:e] for a, e in EDGES]
    assert failing(rises_within(by_bucket, EDGES, GROUPS, TRAINED))  # by position alone it looks like one
    assert onset(score, harder, by_bucket, EDGES, GROUPS, TRAINED) is None
    broken = reader(lambda place: 1.0 * (place >= 400))
    lost = broken(harder)
    seen = onset(broken, harder, [lost[:, a:e] for a, e in EDGES], EDGES, GROUPS, TRAINED)
    assert seen is not None and 384 <= seen.start <= 448  # and a true failure behind them is still found


def test_one_bad_bucket_alone_is_no_onset_but_the_last_one_is():
    assert found(lambda place: 2.0 * (256 <= place < 272)) is None
    last = found(lambda place: 2.0 * (place >= 496))
    assert last is not None and last.start == 496


def test_a_rise_below_the_smallest_effect_does_not_count():
    small, large = (0.5 * TOLERATED_RISE * 3.0, 4 * TOLERATED_RISE * 3.0)
    alike = np.tile(TOKENS[:, :1], (1, L + 1))  # every token of a window is the same: no noise at all
    assert found(lambda place: small * (place >= 256), alike) is None
    assert found(lambda place: large * (place >= 256), alike).start == 256


def test_the_first_bucket_is_no_baseline_and_none_before_the_third_can_fail():
    lost = [np.full((N, 16), 9.0), np.full((N, 16), 3.0), *[np.full((N, 16), 3.5)] * 4]
    seen = rises_within(lost, [(16 * n, 16 * n + 16) for n in range(6)], GROUPS, 96)
    assert seen[0] is None and seen[1] is None and seen[2][0] == 3.0 and seen[2][1].value == pytest.approx(0.5)


def test_buckets_beyond_the_trained_length_are_no_baseline():
    lost = [np.full((N, 16), value) for value in (3.0, 3.0, 3.0, 5.0, 5.0, 5.0)]
    edges = [(16 * n, 16 * n + 16) for n in range(6)]
    assert rises_within(lost, edges, GROUPS, 48)[5][0] == 3.0
    assert rises_within(lost, edges, GROUPS, 96)[5][0] > 3.5


def test_a_loss_that_is_no_number_is_a_failure():
    seen = found(lambda place: math.nan if place >= 320 else 0.0)
    assert (
        seen is not None
        and seen.start == 320
        and seen.top == math.inf
        and seen.within == 16
        and seen.rise.low == math.inf
    )


def test_what_is_read_again_is_the_same_tokens_with_the_beginning_that_the_model_wants():
    asked = []

    def score(windows):
        asked.append(windows.copy())
        return np.zeros((len(windows), windows.shape[1] - 1))

    again = read_again(score, TOKENS, np.ones((N, 16)), 64, 48, GROUPS, begin=7)
    (windows,) = asked
    assert windows.shape == (N, 49) and (windows[:, 0] == 7).all()
    assert np.array_equal(windows[:, -16:], TOKENS[:, 65:81])  # the next tokens of positions 64 to 79
    assert again.value == 1.0 and again.tokens == N * 16
    read_again(score, TOKENS, np.ones((N, 16)), 8, 8, GROUPS)
    assert asked[1].shape == (N, 9) and np.array_equal(asked[1], TOKENS[:, 4:13])  # half of a short text is context


def test_a_small_failure_is_found_among_words_of_very_different_hardness(monkeypatch):
    """Past the trained length every token is compared with itself, so that what it is worth does not count."""
    monkeypatch.setitem(globals(), "HARD", np.random.default_rng(1).normal(3.0, 2.0, 100))
    seen = found(lambda place: 0.2 * (place >= 144))
    assert seen is not None and seen.start == 144 and seen.rise.value == pytest.approx(0.2, abs=1e-9)


def test_read_short_scores_every_later_token_once_at_the_end_of_texts_of_the_trained_length():
    asked = []

    def score(windows):
        asked.append(windows.copy())
        return windows[:, 1:].astype(float)  # the loss names the token

    tokens = np.arange(2 * 101).reshape(2, 101)
    lost = read_short(score, tokens, 32, begin=7)
    assert np.array_equal(lost, tokens[:, 33:])  # what positions 32 to 99 predict, each once, in order
    assert [one.shape for one in asked] == [(2, 33)] * 5 and all((one[:, 0] == 7).all() for one in asked)
