"""Mixed against complex numbers and dot products in plain Python; its start against the published recipe."""

import cmath
import math

import pytest
import torch

from milepost import Axial, Layout, Mixed, attend, build
from milepost.positions import grid
from milepost.testing import randomised_copy

PLACES = [[0, 1, 2, 255, 256, 257, 131071], [3, 0, 131071, 257, 1, 4096, 2]]


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_each_pair_of_each_head_turns_by_its_own_mix_of_the_axes(pairing):
    enc = randomised_copy(Mixed(3, 8, pairing=pairing))
    x = torch.randn(1, 3, 7, 8, dtype=torch.float64)
    y = enc.key(x, torch.tensor(PLACES)[:, None]).detach()
    w = enc.frequencies.tolist()  # axis, head, pair
    for h in range(3):
        for t in range(7):
            for i in range(4):
                one, two = (i, i + 4) if pairing == "half" else (2 * i, 2 * i + 1)
                angle = PLACES[0][t] * w[0][h][i] + PLACES[1][t] * w[1][h][i]
                z = complex(x[0, h, t, one], x[0, h, t, two])
                got = complex(y[0, h, t, one], y[0, h, t, two])
                assert abs(got - z * cmath.exp(1j * angle)) <= 16 * 2.0**-52 * 2**17 * abs(z), (h, t, i)


def test_it_starts_with_the_published_magnitudes_in_two_directions_at_right_angles():
    torch.manual_seed(3)
    w = Mixed(64, 16).frequencies.double()  # 4 magnitudes, twice
    down, across = w[0], w[1]
    for i in range(4):
        want = 10.0 ** (-4 * i / 16)
        assert (torch.hypot(down[:, i], across[:, i]) - want).abs().max() < 1e-6 * want * 4
        first, second = (torch.complex(across[:, j], down[:, j]) for j in (i, i + 4))  # (x, y) as numbers
        turned = (second / first).angle()  # a quarter turn, the same way round in every head
        assert (turned + math.pi / 2).abs().max() < 1e-5
    angles = torch.atan2(down[:, 0], across[:, 0])
    assert angles.std() > 1 and angles.min() < -2 and angles.max() > 2  # in all directions, over heads
    spread = (torch.atan2(down[:, :4], across[:, :4]) - angles[:, None]).abs()
    assert spread.max() < 1e-5  # one angle a head


@pytest.mark.parametrize("axes", [3, 4])
def test_more_axes_start_with_a_rotated_frame(axes):
    w = Mixed(5, 4 * axes, axes=axes).frequencies.double().unflatten(-1, (axes, 2))  # axis, head, direction, magnitude
    for head in range(5):
        for i in range(2):
            frame = w[:, head, :, i].detach() / 10.0 ** (-i / 2)
            assert (frame.T @ frame - torch.eye(axes)).abs().max() < 1e-5 and torch.linalg.det(frame) > 0


def test_with_one_nonzero_axis_a_pair_it_is_axial():
    enc, plain = Mixed(2, 8, pairing="half").double(), Axial(8, base=50.0)
    with torch.no_grad():
        enc.frequencies.copy_(plain.frequencies[:, None].expand(2, 2, 4))
    x, pos = torch.randn(1, 2, 12, 8, dtype=torch.float64), grid(3, 4)
    assert torch.equal(enc.query(x, pos).detach(), plain.query(x, pos))


def test_the_gradient_of_a_frequency_equals_a_difference():
    enc = randomised_copy(Mixed(2, 8))
    x, pos = torch.randn(1, 2, 12, 8, dtype=torch.float64), grid(3, 4)

    def loss():
        return attend(x, x, x, enc, at=Layout.dense(12).with_positions(pos), causal=False).pow(2).sum()

    (grad,) = torch.autograd.grad(loss(), enc.parameters())
    for at in ((0, 0, 0), (1, 1, 3), (0, 1, 2)):
        with torch.no_grad():
            enc.frequencies[at] += 1e-6
            up = loss().item()
            enc.frequencies[at] -= 2e-6
            down = loss().item()
            enc.frequencies[at] += 1e-6
        assert abs((up - down) / 2e-6 - grad[at].item()) < 1e-6 * max(1.0, abs(up))


def test_an_exchange_of_rows_and_columns_is_seen():
    enc, x = randomised_copy(Mixed(2, 8)), torch.randn(1, 2, 12, 8, dtype=torch.float64)
    right, wrong = (enc.query(x, p) for p in (grid(3, 4), grid(3, 4).flip(0)))
    assert (right - wrong).abs().max() > 1e-2


def test_other_heads_than_its_own_are_refused():
    with pytest.raises(ValueError, match="frequencies for 4 heads, got 2"):
        Mixed(4, 8).key(torch.zeros(1, 2, 4, 8), grid(2, 2))


@pytest.mark.parametrize(
    "sizes", [{"heads": 0, "head_dim": 8}, {"heads": 2, "head_dim": 6}, {"heads": 2, "head_dim": 8, "axes": 3}]
)
def test_bad_sizes_are_refused(sizes):
    with pytest.raises(ValueError, match="head_dim a multiple of 2 x axes"):
        Mixed(**sizes)
    with pytest.raises(ValueError, match="one axis is rope"):
        Mixed(2, 8, axes=1)


def test_its_text_builds_it_again():
    assert repr(build("mixed(base=100.0)", heads=2, head_dim=8)) == "mixed(heads=2, head_dim=8, base=100.0)"
