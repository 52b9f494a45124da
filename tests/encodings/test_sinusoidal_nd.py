"""Codes of several axes against math.sin and math.cos, channel by channel."""

import math

import pytest
import torch

from milepost import Sinusoidal, SinusoidalND, build
from milepost.positions import grid, normalised

PLACES = [[0, 1, 255, 257, 131071], [3, 0, 4096, 1, 2], [2, 7, 0, 1048575, 1]]


@pytest.mark.parametrize("order", ["interleaved", "halves"])
@pytest.mark.parametrize("axes", [2, 3])
def test_each_axis_has_its_own_channels(axes, order):
    size = 6
    enc = SinusoidalND(width=size * axes, axes=axes, order=order, base=100.0)
    got = enc.embed(torch.zeros(1, 5, size * axes, dtype=torch.float64), torch.tensor(PLACES[:axes])[:, None])[
        0
    ].tolist()
    for t in range(5):
        for a in range(axes):
            for i in range(size // 2):
                angle = PLACES[a][t] * 100.0 ** (-2 * i / size)
                sin, cos = (2 * i, 2 * i + 1) if order == "interleaved" else (i, i + size // 2)
                room = 4 * 2.0**-52 * (1 + PLACES[a][t])
                assert (
                    abs(got[t][a * size + sin] - math.sin(angle)) <= room
                    and abs(got[t][a * size + cos] - math.cos(angle)) <= room
                ), (t, a, i)


@pytest.mark.parametrize("order", ["interleaved", "halves"])
def test_with_one_axis_it_is_sinusoidal_to_the_last_bit(order):
    x, pos = torch.randn(2, 5, 12), torch.tensor(PLACES[:2])
    assert torch.equal(SinusoidalND(12, axes=1, order=order).embed(x, pos), Sinusoidal(12, order=order).embed(x, pos))


def test_places_in_one_row_share_the_channels_of_rows():
    code = SinusoidalND(16).code(grid(3, 4))[0].view(3, 4, 16)
    assert torch.equal(code[1, 0, :8], code[1, 3, :8]) and torch.equal(code[0, 2, 8:], code[2, 2, 8:])
    assert not torch.equal(code[0, 2, :8], code[2, 2, :8])


def test_codes_of_the_authors_of_mae_are_columns_first_sines_before_cosines():
    rows, columns, width = 3, 5, 8
    got = SinusoidalND(width, order="halves").code(grid(rows, columns).flip(0))[0].tolist()
    for t in range(rows * columns):
        want = []
        for p in (t % columns, t // columns):
            want += [math.sin(p * 10000 ** (-i / 2)) for i in range(2)] + [
                math.cos(p * 10000 ** (-i / 2)) for i in range(2)
            ]
        assert all(abs(a - b) < 1e-14 for a, b in zip(got[t], want, strict=True)), t


def test_fractional_places_are_taken():
    places = normalised(2, 2, reach=2 * math.pi)
    code = SinusoidalND(8).code(places)[0]
    assert abs(code[3, 0].item() - math.sin(math.pi)) < 1e-12 and abs(code[1, 4].item() - math.sin(math.pi)) < 1e-12
    assert abs(code[0, 1].item() - math.cos(math.pi)) < 1e-12


@pytest.mark.parametrize("given", [{"width": 6}, {"width": 8, "axes": 3}, {"width": 8, "axes": 0}, {"width": 0}])
def test_bad_sizes_are_refused(given):
    with pytest.raises(ValueError, match="width must be a multiple of 2 x axes"):
        SinusoidalND(**given)
    with pytest.raises(ValueError, match="order must be"):
        SinusoidalND(8, order="sines")


def test_its_text_builds_it_again():
    assert (
        repr(build("sinusoidal_nd(axes=4, order='halves')", width=16))
        == "sinusoidal_nd(width=16, axes=4, order='halves')"
    )
