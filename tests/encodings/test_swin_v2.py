"""Swin v2's network against sums and logarithms in plain Python, with and without the table of offsets."""

import math

import pytest
import torch

from milepost import Layout, SwinV2, attend, build
from milepost.positions import grid
from milepost.testing import randomised_copy


def by_hand(enc, offset, h):
    d = [8 * o / (side - 1) for o, side in zip(offset, enc.trained, strict=True)]
    c = [math.copysign(math.log(1 + abs(v)) / math.log(8), v) for v in d]
    hidden = [
        max(0.0, sum(w * v for w, v in zip(row, c, strict=True)) + b)
        for row, b in zip(enc.inner.weight.tolist(), enc.inner.bias.tolist(), strict=True)
    ]
    return 16 / (1 + math.exp(-sum(w * u for w, u in zip(enc.outer.weight[h].tolist(), hidden, strict=True))))


@pytest.mark.parametrize(("trained", "shown"), [((4, 6), (4, 6)), ((4, 4), (7, 5)), ((2, 3, 4), (2, 3, 4))])
def test_the_bias_is_the_networks_answer_to_the_offset(trained, shown):
    enc = randomised_copy(SwinV2(2, trained=trained, hidden=5))
    pos = grid(*shown)[:, 0]
    got = enc.bias(torch.arange(2)[:, None, None], pos[:, :, None], pos[:, None, :]).tolist()
    places = pos.T.tolist()
    for a, i in enumerate(places):
        for b, j in enumerate(places):
            for h in range(2):
                assert abs(got[h][a][b] - by_hand(enc, [x - y for x, y in zip(i, j, strict=True)], h)) < 1e-12, (
                    i,
                    j,
                    h,
                )


@pytest.mark.parametrize("offset", [(0, 0), (1, 0), (0, 1), (-257, 4096), (131071, -1048575), (0.5, -2.25)])
def test_any_offset_has_an_answer(offset):
    enc = randomised_copy(SwinV2(1, hidden=7))
    i = torch.tensor(offset, dtype=torch.float64 if isinstance(offset[0], float) else torch.int64)[:, None, None]
    got = enc.bias(torch.zeros(1, 1, 1, dtype=torch.long), i, torch.zeros_like(i)).item()
    assert abs(got - by_hand(enc, offset, 0)) < 1e-12


def test_the_table_of_offsets_and_the_network_for_each_pair_agree_with_their_gradients():
    enc = randomised_copy(SwinV2(3, hidden=6))
    pos, h = grid(5, 6)[:, 0], torch.arange(3)[:, None, None]
    weight = torch.randn(3, 30, 30, dtype=torch.float64)
    found = []
    for places in (pos, pos.double()):  # whole numbers are looked up, fractions are not
        bias = enc.bias(h, places[:, :, None], places[:, None, :])
        found.append((bias, *torch.autograd.grad((bias * weight).sum(), list(enc.parameters()))))
    for a, b in zip(*found, strict=True):
        assert (a - b).abs().max() <= 1e-12 * max(1.0, b.abs().max().item())


def test_up_is_not_down_and_rows_are_not_columns():
    enc = randomised_copy(SwinV2(1, hidden=9))
    up, down, left = (by_hand(enc, o, 0) for o in ((-1, 0), (1, 0), (0, -1)))
    h, zero = torch.zeros(1, 1, 1, dtype=torch.long), torch.zeros(2, 1, 1, dtype=torch.long)
    got = [enc.bias(h, torch.tensor(o)[:, None, None], zero).item() for o in ((-1, 0), (1, 0), (0, -1))]
    assert len({round(v, 6) for v in got}) == 3 and all(
        abs(a - b) < 1e-12 for a, b in zip(got, (up, down, left), strict=True)
    )


def test_a_larger_window_than_the_trained_one_is_attended():
    enc, x = randomised_copy(SwinV2(2, trained=(4, 4), hidden=6)), torch.randn(1, 2, 64, 8, dtype=torch.float64)
    at = Layout.dense(64).with_positions(grid(8, 8))
    chunked, plain = (
        attend(x, x, x, enc, at=at, causal=False, backend=backend) for backend in ("chunked", "reference")
    )
    assert (chunked - plain).abs().max() < 1e-12


@pytest.mark.parametrize("given", [{"trained": (8,)}, {"trained": (1, 8)}, {"trained": 8}, {"heads": 0}, {"hidden": 0}])
def test_bad_sizes_are_refused(given):
    with pytest.raises(ValueError, match="must be"):
        SwinV2(**({"heads": 2} | given))


def test_its_text_builds_it_again():
    assert (
        repr(build("swin_v2(trained=(12, 12), hidden=64)", heads=3)) == "swin_v2(heads=3, trained=(12, 12), hidden=64)"
    )
