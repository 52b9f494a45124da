"""Swin's table against offsets counted out in plain Python."""

import pytest
import torch

from milepost import Layout, Swin, attend, build
from milepost.positions import grid
from milepost.testing import randomised_copy


def bias_of(enc, sides):
    pos = grid(*sides)[:, 0]
    return enc.bias(torch.arange(enc.heads)[:, None, None], pos[:, :, None], pos[:, None, :]).detach()


@pytest.mark.parametrize("sides", [(3, 4), (2, 2), (1, 5), (2, 3, 2)])
def test_every_signed_offset_has_its_own_row_first_axis_slowest(sides):
    enc = randomised_copy(Swin(2, sides=sides))
    got, places = bias_of(enc, sides).tolist(), grid(*sides)[:, 0].T.tolist()
    offsets = [()]
    for side in sides:
        offsets = [(*o, d) for o in offsets for d in range(1 - side, side)]
    row = {offset: n for n, offset in enumerate(offsets)}
    assert enc.table.shape == (len(row), 2)
    for a, i in enumerate(places):
        for b, j in enumerate(places):
            for h in range(2):
                assert got[h][a][b] == enc.table[row[tuple(x - y for x, y in zip(i, j, strict=True))], h].item(), (i, j)


def test_up_is_not_down_and_rows_are_not_columns():
    bias = bias_of(randomised_copy(Swin(1, sides=(3, 3))), (3, 3))[0]
    assert bias[0, 3] != bias[3, 0] and bias[0, 1] != bias[1, 0] and bias[0, 3] != bias[0, 1]


def test_windows_of_an_image_are_texts_of_a_layout():
    enc = randomised_copy(Swin(2, sides=(2, 2)))
    x = torch.randn(1, 2, 16, 8, dtype=torch.float64)  # 4 windows of 4, window after window
    at = Layout.packed([4] * 4).with_positions(grid(2, 2).repeat(1, 1, 4))
    together = attend(x, x, x, enc, at=at, causal=False)
    for window in range(4):
        part = x[:, :, 4 * window : 4 * window + 4]
        alone = attend(part, part, part, enc, at=Layout.dense(4).with_positions(grid(2, 2)), causal=False)
        assert (together[:, :, 4 * window : 4 * window + 4] - alone).abs().max() < 1e-12


def test_a_place_outside_of_the_window_is_refused():
    enc, x = Swin(1, sides=(3, 4)), torch.zeros(1, 1, 16, 8)
    with pytest.raises(ValueError, match=r"position 3 on axis 0 is not on the grid .* sides 3 x 4"):
        attend(x, x, x, enc, at=Layout.dense(16).with_positions(grid(4, 4)), causal=False)


@pytest.mark.parametrize("sides", [(7,), (0, 7), "77", (7, 7.0), (10**6, 10**6)])
def test_bad_sides_are_refused(sides):
    with pytest.raises(ValueError, match="sides must be two whole numbers or more"):
        Swin(2, sides=sides)
    with pytest.raises(ValueError, match="heads must be at least 1"):
        Swin(0)


def test_its_text_builds_it_again():
    assert repr(build("swin(sides=(8, 8))", heads=3)) == "swin(heads=3, sides=(8, 8))"
