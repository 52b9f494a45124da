"""Places in space against lists in plain Python."""

import math

import pytest
import torch

from milepost import build
from milepost.portrait import portrait
from milepost.positions import augmented, centred, grid, normalised, prefixed


@pytest.mark.parametrize("sides", [(3, 4), (2, 5, 3), (1, 1), (7, 2)])
def test_places_go_row_by_row(sides):
    middles, shares = centred(*sides), normalised(*sides, reach=2.0)
    counted = [()]
    for side in sides:
        counted = [(*place, n) for place in counted for n in range(side)]
    for t, place in enumerate(counted):
        for a, side in enumerate(sides):
            assert grid(*sides)[a, 0, t].item() == place[a]
            assert middles[a, 0, t].item() == place[a] - (side - 1) / 2
            assert abs(shares[a, 0, t].item() - 2.0 * (2 * (place[a] + 0.5) / side - 1)) < 1e-15


def test_the_middle_is_zero_and_sizes_do_not_matter_to_normalised_places():
    assert centred(5, 3)[:, 0, 7].tolist() == [0.0, 0.0] and normalised(5, 3)[:, 0, 7].tolist() == [0.0, 0.0]
    for side in (2, 7, 37):
        assert abs(normalised(side, side, reach=math.tau).abs().max().item() - math.tau * (1 - 1 / side)) < 1e-14


def test_tokens_before_the_patches_stand_above_them_or_at_zero():
    pos = prefixed(grid(2, 2), 3)
    assert pos[:, 0].tolist() == [[-1, -1, -1, 0, 0, 1, 1], [0, 1, 2, 0, 1, 0, 1]]
    assert prefixed(centred(2, 2), 1, place="zero")[:, 0].tolist() == [
        [0.0, -0.5, -0.5, 0.5, 0.5],
        [0.0, -0.5, 0.5, -0.5, 0.5],
    ]
    two = prefixed(grid(2, 2).expand(-1, 3, -1), 1)
    assert two.shape == (2, 3, 5) and two.dtype == torch.int64


def test_bad_places_are_refused():
    with pytest.raises(ValueError, match=r"\(axes, B, L\) with two axes or more, got \(4,\)"):
        prefixed(torch.arange(4), 1)
    with pytest.raises(ValueError, match="count must be at least 0"):
        prefixed(grid(2, 2), -1)
    with pytest.raises(ValueError, match='"above" or "zero"'):
        prefixed(grid(2, 2), 1, place="left")
    with pytest.raises(ValueError, match="reach must be above 0"):
        normalised(2, 2, reach=0.0)
    with pytest.raises(ValueError, match="every side of a grid must be at least 1"):
        centred(0, 2)
    with pytest.raises(ValueError, match="bfloat16"):
        prefixed(grid(2, 2).bfloat16(), 1)


@pytest.mark.parametrize(
    "spec",
    [
        "axial",
        "mixed",
        "mrope",
        "sinusoidal_nd",
        "grid(sides=(5, 9))",
        "swin(sides=(5, 9))",
        "swin_v2",
        "alibi_2d",
        "axial(axes=4)",
    ],
)
def test_a_portrait_shows_every_place_on_a_plane_beside_the_middle(spec):
    enc = build(spec, heads=2, head_dim=16, width=16)
    (first, *_) = portrait(enc, 81).figures
    rows, columns = (9, 9) if enc.sides is None else (5, 9)
    assert first.kind == "heat" and (len(first.z), len(first.z[0])) == (rows, columns)
    assert f"row {rows // 2}, column {columns // 2}" in first.title
    if "bias" not in enc.points or spec == "alibi_2d":  # nothing is as near to a place as itself
        assert max(max(row) for row in first.z) == first.z[rows // 2][columns // 2]
    if spec == "axial":
        assert [len(line) for line in portrait(enc, 81).figures[-1].lines.values()] == [8, 8]


def test_places_in_training_are_drawn_for_each_image_within_their_bounds():
    plain = normalised(3, 5).expand(-1, 2000, -1)
    drawn = augmented(plain, shift=0.25, generator=torch.Generator().manual_seed(0)) - plain
    assert (drawn - drawn[..., :1]).abs().max() <= 2**-50  # one move for each image and axis
    assert drawn.abs().max() <= 0.25 and (drawn[..., 0].amax(1) > 0.24).all() and (drawn[..., 0].amin(1) < -0.24).all()
    assert (drawn[0] - drawn[1]).abs().max() > 0.1  # each axis by itself
    for word, alike in (("jitter", False), ("rescale", True)):
        times = augmented(plain, **{word: 2.0}, generator=torch.Generator().manual_seed(1))[..., 0] / plain[..., 0]
        assert times.max() <= 2 + 2**-50 and times.min() >= 0.5 - 2**-50
        assert times.max() > 1.9 and times.min() < 0.53 and abs(times.log().mean()) < 0.05  # even on a log scale
        assert torch.allclose(times[0], times[1], rtol=2**-50, atol=0) == alike
    assert torch.equal(augmented(plain), plain)
    for wrong in ({"shift": -1.0}, {"jitter": 0.5}, {"rescale": float("inf")}, {"shift": float("nan")}):
        with pytest.raises(ValueError, match="shift must be at least 0, jitter and rescale at least 1"):
            augmented(plain, **wrong)
    for pos in (grid(2, 2), torch.zeros(4)):
        with pytest.raises(ValueError, match=r"places on images are float, of shape \(axes, B, L\)"):
            augmented(pos, shift=1.0)
