"""ALiBi on a plane against distances in plain Python."""

import math

import pytest
import torch

from milepost import ALiBi, ALiBi2D, build
from milepost.positions import grid

PLACES = [(0, 0), (0, 1), (3, 4), (255, 257), (4096, 1), (131071, 1048575), (-2, 5), (0.5, 0.25)]


@pytest.mark.parametrize("distance", ["euclidean", "manhattan"])
@pytest.mark.parametrize(
    ("heads", "slopes"), [(2, [2**-4, 2**-8]), (4, [0.25, 0.0625, 2**-6, 2**-8]), (3, [2**-4, 2**-8, 2**-2])]
)
def test_the_bias_is_minus_slope_times_distance(heads, slopes, distance):
    enc = ALiBi2D(heads, distance=distance)
    pos = torch.tensor(PLACES, dtype=torch.float64).T
    got = enc.bias(torch.arange(heads)[:, None, None], pos[:, :, None], pos[:, None, :]).tolist()
    for h in range(heads):
        for a, (r, c) in enumerate(PLACES):
            for b, (s, d) in enumerate(PLACES):
                far = math.sqrt((r - s) ** 2 + (c - d) ** 2) if distance == "euclidean" else abs(r - s) + abs(c - d)
                assert abs(got[h][a][b] + slopes[h] * far) <= 4 * 2.0**-52 * (1 + far), (h, a, b)


@pytest.mark.parametrize("heads", [1, 3, 8, 12])
def test_along_a_row_or_a_column_it_is_alibi(heads):
    one = ALiBi(heads, mode="symmetric")
    i = torch.arange(20)
    h = torch.arange(heads)[:, None, None]
    want = one.bias(h, i[:, None], i[None])
    for pos in (torch.stack([i, torch.full_like(i, 3)]), torch.stack([torch.full_like(i, 3), i])):
        for distance in ("euclidean", "manhattan"):
            assert torch.equal(ALiBi2D(heads, distance=distance).bias(h, pos[:, :, None], pos[:, None]), want)


def test_the_two_distances_differ_on_diagonals():
    pos, h = grid(2, 2)[:, 0], torch.zeros(1, 1, 1, dtype=torch.long)
    euclidean, manhattan = (
        ALiBi2D(1, distance=d).bias(h, pos[:, :, None], pos[:, None])[0] for d in ("euclidean", "manhattan")
    )
    assert euclidean[0, 1] == manhattan[0, 1] and abs(euclidean[0, 3] / manhattan[0, 3] - 0.5**0.5) < 1e-15


@pytest.mark.parametrize("given", [{"heads": 0}, {"heads": 2, "distance": "far"}])
def test_bad_arguments_are_refused(given):
    with pytest.raises(ValueError, match="must be"):
        ALiBi2D(**given)


def test_its_text_builds_it_again():
    assert repr(build("alibi_2d(distance='manhattan')", heads=3)) == "alibi_2d(heads=3, distance='manhattan')"
