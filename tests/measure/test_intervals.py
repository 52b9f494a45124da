"""Intervals: a bootstrap over files written by hand, and what must hold of it."""

import numpy as np
import pytest

from milepost.measure.intervals import DRAWS, difference, mean

RNG = np.random.default_rng(1)
FILES = np.array([0, 0, 1, 2, 2, 2, 3])
LOSSES = RNG.normal(3, 1, (7, 5)) + FILES[:, None]


def by_hand(losses, files, seed):
    """Draw files, put their tokens on one heap, take the mean; many times."""
    names = sorted(set(files.tolist()))
    heaps = [losses[files == name].reshape(-1) for name in names]
    drawn = np.random.default_rng(seed).integers(0, len(names), (DRAWS, len(names)))
    means = [np.concatenate([heaps[n] for n in row]).mean() for row in drawn]
    return np.percentile(means, [2.5, 97.5])


@pytest.mark.parametrize("seed", [0, 5])
def test_the_interval_is_that_of_a_bootstrap_by_hand(seed):
    found = mean(LOSSES, FILES, seed=seed)
    assert found.value == pytest.approx(LOSSES.mean(), rel=1e-12) and found.tokens == 35
    assert (found.low, found.high) == pytest.approx(tuple(by_hand(LOSSES, FILES, seed)), rel=1e-12)
    assert found.low < found.value < found.high


def test_the_mean_is_of_tokens_not_of_files_or_windows():
    found = mean(np.array([2.0, 30.0]), np.array([0, 1]), counts=np.array([2, 10]))
    assert found.value == pytest.approx(32 / 12) and found.tokens == 12
    rows = mean(LOSSES.sum(1), FILES, counts=np.full(7, 5))
    same = mean(LOSSES, FILES)
    assert (rows.value, rows.low, rows.high, rows.tokens) == pytest.approx(
        (same.value, same.low, same.high, same.tokens), rel=1e-12
    )


def test_names_of_files_are_only_names():
    assert mean(LOSSES, FILES * 7 + 3) == mean(LOSSES, FILES)
    assert mean(LOSSES, np.array([f"file {n}" for n in FILES])) == mean(LOSSES, FILES)


def test_of_one_file_there_is_no_interval():
    found = mean(LOSSES, np.zeros(7))
    assert (found.low, found.high) == (None, None) and found.value == pytest.approx(LOSSES.mean())


def test_a_paired_difference_takes_out_what_makes_files_hard():
    better = LOSSES - 0.1 + RNG.normal(0, 0.01, LOSSES.shape)
    found = difference(LOSSES, better, FILES)
    assert (
        found.value == pytest.approx((better - LOSSES).mean(), rel=1e-9) and found.high < 0
    )  # b loses less than a: a gain
    assert found.high - found.low < 0.1 * (mean(LOSSES, FILES).high - mean(LOSSES, FILES).low)
    assert difference(better, LOSSES, FILES).low > 0


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="the same targets"):
        difference(LOSSES, LOSSES[:, :4], FILES)
    with pytest.raises(ValueError, match=r"losses of \(7, 5\) and 6 names"):
        mean(LOSSES, FILES[:6])
    with pytest.raises(ValueError, match="one sum of losses a window"):
        mean(LOSSES, FILES, counts=np.ones(7))
    with pytest.raises(ValueError, match="at least one loss"):
        mean(np.zeros((0, 5)), np.zeros(0))
