"""Remaps against plain Python on lists of numbers."""

import itertools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milepost.positions import check_dtype, check_finite, extent, grid, grouped, interpolate, randomised, sinks, skipped

CALM = settings(deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
FAR = [0, 1, 2, 255, 256, 257, 131071, 1048575]


# -- checks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_cannot_count(dtype):
    with pytest.raises(ValueError, match=f"positions came in {str(dtype)[6:]}.*256 from 257"):
        check_dtype(torch.zeros(2, dtype=dtype))


def test_truth_values_complex_numbers_and_lists_are_no_positions():
    for wrong in (torch.tensor([True]), torch.tensor([1j])):
        with pytest.raises(ValueError, match="must be int64 or int32"):
            check_dtype(wrong)
    with pytest.raises(ValueError, match="must be a tensor, got list"):
        check_dtype([0, 1])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32, torch.float64])
def test_dtypes_that_can_count_pass(dtype):
    check_dtype(torch.zeros(2, dtype=dtype))


def test_unsigned_positions_whose_distances_would_wrap_are_refused():
    with pytest.raises(ValueError, match="positions"):
        check_dtype(torch.tensor([1, 2], dtype=torch.uint8))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_positions_that_are_no_numbers_are_refused(bad):
    with pytest.raises(ValueError, match="must be finite"):
        check_finite(torch.tensor([0.0, bad, 1.0]))
    check_finite(torch.tensor([0.0, -3.5]))


def test_the_extent_is_the_smallest_and_the_largest():
    assert extent(torch.tensor([[5, -2], [1048575, 3]])) == (-2, 1048575)
    assert extent(torch.tensor([0.5, 0.25])) == (0.25, 0.5)
    assert extent(torch.zeros(0, dtype=torch.long)) == (0, 0)


# -- remaps -----------------------------------------------------------------------------------------------------------


def test_interpolated_positions_are_quotients_in_float64():
    got = interpolate(torch.tensor(FAR), factor=3)
    assert got.dtype == torch.float64
    assert got.tolist() == [p / 3 for p in FAR]
    with pytest.raises(ValueError, match=r"factor must be at least 1, got 0\.5"):
        interpolate(torch.tensor(FAR), factor=0.5)
    with pytest.raises(ValueError, match="factor"):
        interpolate(torch.tensor(FAR), factor=float("nan"))


@pytest.mark.parametrize("group", [1, 2, 8, 100])
def test_grouped_positions_are_floors_of_quotients(group):
    got = grouped(torch.tensor([*FAR, -1, -9]), group)
    assert got.dtype == torch.int64
    assert got.tolist() == [p // group for p in [*FAR, -1, -9]]
    assert grouped(torch.tensor([7.5, 8.0]), 4).tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="group must be at least 1"):
        grouped(torch.tensor(FAR), 0)


@given(length=st.integers(1, 40), more=st.integers(0, 200), batch=st.integers(1, 3), seed=st.integers(0, 100))
@settings(CALM, max_examples=60)
def test_randomised_positions_are_a_sorted_subset_without_repeats(length, more, batch, seed):
    got = randomised(length, length + more, batch=batch, generator=torch.Generator().manual_seed(seed))
    assert got.shape == (batch, length)
    for row in got.tolist():
        assert all(a < b for a, b in itertools.pairwise(row))
        assert row[0] >= 0 and row[-1] < length + more
    again = randomised(length, length + more, batch=batch, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(got, again)


def test_randomised_rows_differ_and_every_position_gets_its_turn():
    rows = randomised(8, 64, batch=400, generator=torch.Generator().manual_seed(1))
    assert len({tuple(r) for r in rows.tolist()}) > 390
    often = torch.bincount(rows.flatten(), minlength=64)
    assert len(often) == 64
    assert often.min() > 20 and often.max() < 85  # 50 expected, 6.6 the standard deviation: five of them each way
    with pytest.raises(ValueError, match="raise limit to at least 9"):
        randomised(9, 8)
    with pytest.raises(ValueError, match="length must be at least 1"):
        randomised(0, 8)


@given(length=st.integers(1, 40), more=st.integers(0, 200), data=st.data())
@settings(CALM, max_examples=60)
def test_skipped_positions_are_chunks_of_neighbours_moved_right(length, more, data):
    chunks = data.draw(st.integers(1, min(length, 5)))
    got = skipped(
        length,
        length + more,
        chunks=chunks,
        batch=3,
        generator=torch.Generator().manual_seed(data.draw(st.integers(0, 100))),
    )
    assert got.shape == (3, length)
    for row in got.tolist():
        assert row[0] == 0 and row[-1] < length + more
        assert all(b > a for a, b in itertools.pairwise(row))
        assert sum(b != a + 1 for a, b in itertools.pairwise(row)) <= chunks - 1
        for c in range(chunks):  # neighbours stay neighbours inside a chunk
            mine = [t for t in range(length) if t * chunks // length == c]
            assert [row[t] - row[mine[0]] for t in mine] == list(range(len(mine)))


def test_skips_reach_up_to_the_limit():
    last = skipped(4, 12, chunks=2, batch=500, generator=torch.Generator().manual_seed(2))[:, -1]
    assert last.min() >= 3 and last.max() == 11
    with pytest.raises(ValueError, match="raise limit to at least 9"):
        skipped(9, 8)
    with pytest.raises(ValueError, match="chunks must be at least 1"):
        skipped(4, 8, chunks=0)
    with pytest.raises(ValueError, match="length must be at least 3"):
        skipped(2, 8, chunks=3)


@pytest.mark.parametrize("length", [1, 5, 6, 7, 8, 100])
def test_a_cache_with_sinks_keeps_the_first_and_the_last_and_counts_places(length):
    kept, pos = sinks(length, sinks=2, window=5)
    every = list(range(length))
    want = every if length <= 7 else every[:2] + every[-5:]
    assert kept.tolist() == want
    assert pos.tolist() == list(range(len(want)))


def test_sinks_by_default_are_four_and_may_be_none():
    assert sinks(100, window=3)[0].tolist() == [0, 1, 2, 3, 97, 98, 99]
    assert sinks(5, sinks=0, window=2)[0].tolist() == [3, 4]
    with pytest.raises(ValueError, match="window must be at least 1"):
        sinks(5, window=0)
    with pytest.raises(ValueError, match="sinks must be at least 0"):
        sinks(5, sinks=-1, window=2)


@pytest.mark.parametrize("sizes", [(3,), (2, 3), (3, 2), (2, 3, 4)])
def test_a_grid_counts_row_by_row_with_the_last_axis_fastest(sizes):
    got = grid(*sizes)
    want = list(itertools.product(*map(range, sizes)))
    assert got.shape == (len(sizes), 1, len(want))
    assert [tuple(got[:, 0, t].tolist()) for t in range(len(want))] == want
    with pytest.raises(ValueError, match="every side of a grid must be at least 1"):
        grid(*sizes, 0)


def test_golden_grid_of_two_rows_of_three():
    assert grid(2, 3).tolist() == [[[0, 0, 0, 1, 1, 1]], [[0, 1, 2, 0, 1, 2]]]
