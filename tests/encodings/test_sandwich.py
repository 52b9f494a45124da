"""Sandwich against its origin: inner products of two sinusoidal codes, sines with sines and cosines with cosines,
from mpmath.
"""

import functools

import mpmath
import pytest
import torch

from milepost import Layout, Sandwich, attend, build

EPS = torch.finfo(torch.float64).eps
POSITIONS = [0, 1, 2, 255, 257, 512, 131071, 1048575]


@functools.cache
def code(p: int, size: int, base: float) -> list:
    with mpmath.workdps(30):
        angles = [p * mpmath.mpf(base) ** (-mpmath.mpf(2 * c) / size) for c in range(size // 2)]
        return [f(a) for a in angles for f in (mpmath.sin, mpmath.cos)]


def inner(i: int, j: int, size: int = 128, base: float = 10000.0) -> float:
    with mpmath.workdps(30):
        return float(mpmath.fdot(code(i, size, base), code(j, size, base)))


def room(distance: int, size: int) -> float:
    """Each of size/2 cosines is off by 1.5 roundings of its angle (at most the distance) and one more; their sum by
    as many.
    """
    return size / 2 * (1.5 * abs(distance) + 1 + size / 2) * EPS


@pytest.mark.parametrize(("heads", "size", "base"), [(8, 128, 10000.0), (3, 10, 500.0)])
def test_the_bias_is_the_inner_product_over_the_heads_ratio(heads, size, base):
    p = torch.tensor(POSITIONS)
    got = Sandwich(heads, size=size, base=base).bias(torch.arange(heads)[:, None, None], p[:, None], p)
    for a, i in enumerate(POSITIONS):
        for b, j in enumerate(POSITIONS):
            product = inner(i, j, size, base)
            for h in range(heads):
                ratio = 8 * (h + 1) / heads
                assert abs(got[h, a, b].item() - product / ratio) <= room(i - j, size) / ratio, (h, i, j)


def test_golden_values_on_the_diagonal():
    got = Sandwich(8).bias(torch.arange(8), torch.tensor(1048575), torch.tensor(1048575))
    assert got.tolist() == [64 / r for r in range(1, 9)]


def test_golden_values_at_distance_one():
    got = Sandwich(2, size=4).bias(torch.tensor([0, 1]), torch.tensor(1), torch.tensor(0))
    assert got.tolist() == pytest.approx(
        [(0.5403023058681398 + 0.9999500004166653) / 4, (0.5403023058681398 + 0.9999500004166653) / 8], rel=4 * EPS
    )


def test_logits_in_attention_are_scores_plus_the_inner_product():
    q, k, v = (torch.randn(1, 4, 8, 4, dtype=torch.float64) for _ in range(3))
    to, rows = Layout.dense(8).with_positions(torch.tensor(POSITIONS)), [7, 2, 5]
    at, q = to.take(torch.tensor(rows)), q[:, :, rows]
    logits = attend(q, k, v, Sandwich(4), at=at, to=to, causal=False, backend="reference", details=True).logits
    for h in range(4):
        for i, row in enumerate(rows):
            for j in range(8):
                score = sum(q[0, h, i, c].item() * k[0, h, j, c].item() for c in range(4)) / 2
                want = score + inner(POSITIONS[row], POSITIONS[j]) / (2 * (h + 1))
                assert abs(logits[0, h, i, j].item() - want) <= room(POSITIONS[row] - POSITIONS[j], 128) + 32 * EPS


def test_nothing_in_it_is_touched_by_a_cast():
    h, p = torch.arange(4)[:, None, None], torch.tensor(POSITIONS)
    before = Sandwich(4).bias(h, p[:, None], p)
    with torch.device("meta"):
        lazy = Sandwich(4)
    for enc in (Sandwich(4).bfloat16(), Sandwich(4).half(), lazy.to_empty(device="cpu")):
        assert torch.equal(enc.bias(h, p[:, None], p), before)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(Sandwich(4).bias(h, p[:, None], p), before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heads": 0}, "heads must be at least 1"),
        ({"heads": 2, "size": 7}, "must be even"),
        ({"heads": 2, "base": 1.0}, "base must be"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Sandwich(**arguments)


def test_another_number_of_heads_is_refused():
    with pytest.raises(ValueError, match="is for 3 heads, q has 2"):
        attend(*(torch.randn(1, 2, 3, 2) for _ in range(3)), Sandwich(3))


def test_its_text_builds_it_again():
    assert repr(build("sandwich(size=64, base=500.0)", heads=4)) == "sandwich(heads=4, size=64, base=500.0)"
