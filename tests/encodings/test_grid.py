"""Grid against rows of a table read one by one in plain Python; class tokens, registers, and what is not on the
grid.
"""

import pytest
import torch

from milepost import Grid, Layout, attend, build
from milepost.positions import grid, prefixed


def randomised(**given) -> Grid:
    enc = Grid(**given).double()
    with torch.no_grad():
        enc.table.normal_()
    return enc


@pytest.mark.parametrize("prefix", [0, 1, 2])
def test_each_cell_has_its_row_of_the_table_row_by_row(prefix):
    enc = randomised(width=3, sides=(4, 5), prefix=prefix)
    x = torch.randn(1, 6, 3, dtype=torch.float64)
    cells = [(0, 0), (0, 4), (1, 0), (3, 4), (2, 3), (3, 2)]
    y = enc.embed(x, torch.tensor(cells).T[:, None])
    table = enc.table.tolist()
    for t, (row, column) in enumerate(cells):
        assert y[0, t].tolist() == [
            a + b for a, b in zip(x[0, t].tolist(), table[prefix + 5 * row + column], strict=True)
        ], (row, column)


def test_three_axes_are_frames_of_rows_of_columns():
    enc = randomised(width=2, sides=(2, 3, 4))
    y = enc.embed(torch.zeros(1, 24, 2, dtype=torch.float64), grid(2, 3, 4))
    assert torch.equal(y[0], enc.table)
    one = enc.embed(torch.zeros(1, 1, 2, dtype=torch.float64), torch.tensor([1, 2, 0])[:, None, None])
    assert torch.equal(one[0, 0], enc.table[12 + 8])


def test_a_sum_has_a_table_for_rows_and_one_for_columns():
    enc = randomised(width=3, sides=(4, 5), prefix=1, how="sum")
    assert enc.table.shape == (1 + 4 + 5, 3)
    y = enc.embed(torch.zeros(1, 21, 3, dtype=torch.float64), prefixed(grid(4, 5), 1))[0]
    assert torch.equal(y[0], enc.table[0])
    for row in range(4):
        for column in range(5):
            assert torch.equal(y[1 + 5 * row + column], enc.table[1 + row] + enc.table[5 + column])


def test_class_tokens_have_rows_of_their_own_and_registers_have_none():
    enc = randomised(width=3, sides=(2, 3), prefix=1, bare=4)
    x = torch.randn(2, 11, 3, dtype=torch.float64)
    y = enc.embed(x, prefixed(grid(2, 3), 5))
    assert torch.equal(y[:, 0], x[:, 0] + enc.table[0])
    assert torch.equal(y[:, 1:5], x[:, 1:5])
    assert torch.equal(y[:, 5:], x[:, 5:] + enc.table[1:])
    bare = randomised(width=3, sides=(2, 3), bare=1)
    assert torch.equal(bare.embed(x[:, :7], prefixed(grid(2, 3), 1))[:, 0], x[:, 0])


@pytest.mark.parametrize("how", ["cells", "sum"])
def test_a_row_learns_from_the_tokens_that_used_it_alone(how):
    enc = randomised(width=2, sides=(2, 3), prefix=1, bare=1, how=how)
    pos = torch.cat(
        [prefixed(grid(2, 3)[..., 4:5], 2), grid(2, 3)[..., 4:5]], dim=-1
    )  # class token, register, cell (1, 1) twice
    enc.embed(torch.zeros(1, 4, 2, dtype=torch.float64), pos).sum().backward()
    want = [1, 0, 0, 0, 0, 2, 0] if how == "cells" else [1, 0, 2, 0, 2, 0]
    assert enc.table.grad[:, 0].tolist() == want


def test_rows_and_columns_are_not_exchanged_on_a_square():
    enc = randomised(width=2, sides=(3, 3))
    y = enc.embed(torch.zeros(1, 1, 2, dtype=torch.float64), torch.tensor([0, 2])[:, None, None])
    assert torch.equal(y[0, 0], enc.table[2]) and not torch.equal(y[0, 0], enc.table[6])


def test_a_place_that_is_not_on_the_grid_is_refused():
    enc = randomised(width=2, sides=(4, 6), prefix=1)
    for place, message in (
        ((4, 0), "position 4 on axis 0"),
        ((0, 6), "position 6 on axis 1 .* sides 4 x 6, so 0 to 5 there"),
        ((1, -1), "position -1 on axis 1"),
    ):
        with pytest.raises(ValueError, match=message):
            enc.embed(torch.zeros(1, 1, 2, dtype=torch.float64), torch.tensor(place)[:, None, None])
    with pytest.raises(ValueError, match=r"1 tokens before the grid, at places \(-1, 0\) and on; got \(-1, 2\)"):
        enc.embed(torch.zeros(1, 3, 2, dtype=torch.float64), prefixed(grid(1, 1), 3)[..., :3])
    with pytest.raises(ValueError, match=r"give prefix= .* or bare="):
        randomised(width=2, sides=(2, 2)).embed(torch.zeros(1, 5, 2, dtype=torch.float64), prefixed(grid(2, 2), 1))
    with pytest.raises(ValueError, match="counts whole positions, got float64"):
        enc.embed(torch.zeros(1, 4, 2, dtype=torch.float64), grid(2, 2).double())
    with pytest.raises(ValueError, match=r"\(2, B, L\), axes first"):
        enc.embed(torch.zeros(1, 4, 2, dtype=torch.float64), torch.arange(4))
    q = torch.zeros(1, 1, 4, 8)
    with pytest.raises(ValueError, match="is not on the grid"):
        attend(q, q, q, enc, at=Layout.dense(4).with_positions(grid(1, 4).flip(0) + 4))


@pytest.mark.parametrize(
    "given", [{"sides": (4,)}, {"sides": (4, 0)}, {"sides": 14}, {"sides": (4.0, 4)}, {"sides": (10**9, 10**9)}]
)
def test_bad_sides_are_refused(given):
    with pytest.raises(ValueError, match="sides must be two whole numbers or more"):
        Grid(width=4, **given)


@pytest.mark.parametrize("given", [{"width": 0}, {"width": 2, "prefix": -1}, {"width": 2, "bare": -1}])
def test_bad_sizes_are_refused(given):
    with pytest.raises(ValueError, match="width must be at least 1, prefix and bare from 0"):
        Grid(**given)
    with pytest.raises(ValueError, match="how must be"):
        Grid(width=2, how="rows")


def test_its_text_builds_it_again():
    assert (
        repr(build("grid(sides=(24, 16), prefix=1, bare=4)", width=8))
        == "grid(width=8, sides=(24, 16), prefix=1, bare=4)"
    )
