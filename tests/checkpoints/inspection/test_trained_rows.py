"""How far a table was trained, on tables made by hand; and T5 buckets out of line.

The change point is a likelihood over rows: next to it, a few rows may be taken for the other kind. A row of noise is
taken for trained when its norm or its cosine is out of what noise has, one row in thousands; a trained row for noise
when both look like noise. `NEAR` rows allows for both, and for rows that a text reached a few times only.
"""

import math

import pytest
import torch
from planted_tables import NEAR, ROWS, noise, planted, walk

from milepost.checkpoints.inspection.buckets import LEAST, outliers
from milepost.checkpoints.inspection.trained_rows import trained_rows
from milepost.encodings.t5 import edges


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("width", [64, 256, 768])
@pytest.mark.parametrize("trained", [8, 160, 500])
def test_the_end_of_training_is_found(trained, width, seed):
    table = planted(trained, width, seed=seed + 10)
    found = trained_rows(table, init=0.02)
    assert abs(found.trained - trained) <= NEAR
    assert found.usable == ROWS
    assert found.norm_rest == pytest.approx(
        found.initial_norm, rel=4 / math.sqrt(2 * width)
    )  # a median of norms, each 1/sqrt(2d) off
    assert abs(found.cosine_rest) < 5 / math.sqrt(width * (ROWS - found.trained))
    assert f"about {found.trained} were trained" in found.sentence


@pytest.mark.parametrize("width", [64, 768])
@pytest.mark.parametrize("std", [0.005, 0.02, 0.5])
def test_norms_may_be_smaller_than_larger_than_or_those_of_the_initialisation(std, width):
    assert abs(trained_rows(planted(160, width, std=std)).trained - 160) <= NEAR


@pytest.mark.parametrize("width", [256, 768])
def test_weak_correlation_is_enough_where_there_are_channels_to_see_it_by(width):
    assert abs(trained_rows(planted(160, width, std=0.02, step=0.6)).trained - 160) <= NEAR


def test_rows_that_were_trained_apart_show_by_their_norm():
    table = torch.cat([noise(160, 256, 0.08), noise(ROWS - 160, 256, 0.02, seed=3)])
    assert abs(trained_rows(table).trained - 160) <= NEAR


def test_weight_decay_shrinks_untrained_rows_alike():
    table = torch.cat([walk(160, 256), 0.3 * noise(ROWS - 160, 256)])
    assert abs(trained_rows(table, init=0.02).trained - 160) <= NEAR


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rounding_hides_nothing(dtype):
    assert abs(trained_rows(planted(160, 256).to(dtype)).trained - 160) <= NEAR


@pytest.mark.parametrize("width", [32, 64, 768])
@pytest.mark.parametrize("seed", range(5))
def test_a_table_that_was_trained_whole_is_said_to_be(width, seed):
    found = trained_rows(walk(ROWS, width, seed=seed))
    assert found.trained == ROWS
    assert found.norm_rest is None and found.cosine_rest is None
    assert "all 512 rows" in found.sentence


@pytest.mark.parametrize("width", [64, 768])
@pytest.mark.parametrize("seed", range(5))
def test_a_table_that_was_never_trained_is_said_to_be(width, seed):
    found = trained_rows(noise(ROWS, width, seed=seed), init=0.02)
    assert found.trained == 0
    assert "no row" in found.sentence


def test_a_few_texts_that_went_farther_do_not_move_the_answer():
    table = planted(160, 256)
    table[400] = table[399] + noise(1, 256, 0.002, seed=7)[0]
    assert abs(trained_rows(table).trained - 160) <= NEAR


def test_rows_of_zero_at_the_end_were_never_trained():
    found = trained_rows(torch.cat([walk(100, 64), torch.zeros(28, 64, dtype=torch.float64)]))
    assert (found.trained, found.zero_rows) == (100, 28)
    assert "rows 100 to 127 are zero" in found.sentence
    assert trained_rows(torch.zeros(16, 8)).trained == 0


def test_sinusoids_are_no_noise():
    angle = torch.arange(ROWS, dtype=torch.float64)[:, None] * 10000.0 ** (
        -torch.arange(0, 64, 2, dtype=torch.float64) / 64
    )
    assert trained_rows(torch.cat([angle.sin(), angle.cos()], -1)).trained == ROWS


# -- T5 --------------------------------------------------------------------------------------------------------------


def decays(buckets, heads, side):
    """Biases as trained models have them: some heads near-sighted, one that looks at the token before, one that looks
    far."""
    n = torch.arange(side, dtype=torch.float64)
    one = torch.stack([-n * (h / heads) for h in range(heads)], 1)
    one[1, 0] += 9.0
    one[:, 1] = -one[:, 1]
    return one if buckets == side else torch.cat([one, one.flip(1)])


@pytest.mark.parametrize("both", [True, False])
def test_the_last_bucket_at_25_is_found(both):
    side = 16 if both else 32
    table = decays(32, 6, side) * 0.04 - 0.6
    table[31, 4] = 25.0
    [found], word = outliers(table, both_sides=both, max_distance=128, stack="decoder")
    assert (found.head, found.bucket, found.value, word) == (4, 31, 25.0, "")
    assert found.last is None and found.first == edges(side, 128)[-1]
    assert found.side == ("after" if both else "before")
    assert "attends to all of them" in found.sentence and "and more" in found.sentence


def test_a_bucket_in_the_middle_and_one_far_below_are_found():
    table = decays(32, 6, 32) * 0.04
    table[20, 2], table[31, 3] = 12.0, -30.0
    found, _ = outliers(table, both_sides=False, max_distance=128)
    assert [(one.bucket, one.head) for one in found] == [(20, 2), (31, 3)]
    assert (found[0].first, found[0].last) == (edges(32, 128)[19], edges(32, 128)[20] - 1)
    assert "does not see" in found[1].sentence


@pytest.mark.parametrize("both", [True, False])
@pytest.mark.parametrize("std", [0.04, 1.0, 5.0])
def test_ordinary_tables_have_none(both, std):
    side = 16 if both else 32
    assert outliers(decays(32, 8, side) * std, both_sides=both, max_distance=128)[0] == []
    for seed in range(10):
        assert outliers(noise(32, 16, std, seed), both_sides=both, max_distance=128)[0] == []


def test_what_is_out_of_line_is_so_by_the_rule():
    far = torch.zeros(32, 3, dtype=torch.float64)
    far[16:] = torch.linspace(-0.2, 0.2, 16, dtype=torch.float64)[:, None]
    for step, want in (
        (LEAST - 0.1, 0),
        (LEAST + 0.1, 1),
        (-LEAST - 0.1, 0),
        (-0.4 - LEAST - 0.1, 1),
    ):  # a span of 0.4: TIMES that is below LEAST
        table = far.clone()
        table[31, 1] = 0.2 + step
        assert len(outliers(table, both_sides=False, max_distance=128)[0]) == want


def test_too_few_buckets_can_not_tell():
    found, word = outliers(noise(8, 2), both_sides=True, max_distance=16)
    assert found == [] and "too few" in word
