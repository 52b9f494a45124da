"""KERPLE against its two formulas in mpmath, head by head and pair by pair, with parameters on both sides of their
clamps.
"""

import math

import mpmath
import pytest
import torch

from milepost import KERPLE, ALiBi, Layout, attend, build

EPS = torch.finfo(torch.float64).eps
POSITIONS = [0, 1, 2, 255, 256, 257, 511, 512, 513, 2048, 131071, 1048575]
A = [0.3, 0.9, -0.5, 0.004]  # the last two act as 0.01
P = [1.7, 0.2, 3.0, -1.0]  # 3 acts as 2 in the power kernel, -1 as 0.01


def kernel(kind: str, h: int, distance: float) -> float:
    a, p, d = mpmath.mpf(max(A[h], 0.01)), mpmath.mpf(max(P[h], 0.01)), mpmath.mpf(abs(distance))
    return float(-p * mpmath.log(1 + a * d)) if kind == "log" else float(-a * d ** min(p, 2)) if d else 0.0


def prepared(kind: str) -> KERPLE:
    enc = KERPLE(4, kind=kind).double()
    with torch.no_grad():
        enc.a.copy_(torch.tensor(A, dtype=torch.float64))
        enc.p.copy_(torch.tensor(P, dtype=torch.float64))
    return enc


@pytest.mark.parametrize("kind", ["log", "power"])
def test_the_bias_is_the_kernel_for_every_head_and_pair(kind):
    enc, p = prepared(kind), torch.tensor(POSITIONS)
    got = enc.bias(torch.arange(4)[:, None, None], p[:, None], p)
    for h in range(4):
        for x, i in enumerate(POSITIONS):
            for y, j in enumerate(POSITIONS):
                want = kernel(kind, h, i - j)
                assert abs(got[h, x, y].item() - want) <= 8 * EPS * abs(want), (h, i, j)  # power, logarithm and product


def test_golden_values():
    log, power = prepared("log"), prepared("power")
    h, i, j = torch.tensor([0, 2]), torch.tensor(110), torch.tensor(10)
    assert log.bias(h, i, j).tolist() == pytest.approx([-1.7 * math.log(31), -3.0 * math.log(2)], rel=8 * EPS)
    assert power.bias(h, i, j).tolist() == pytest.approx([-0.3 * 100**1.7, -0.01 * 100**2], rel=8 * EPS)


@pytest.mark.parametrize("kind", ["log", "power"])
def test_logits_in_attention_are_scores_plus_the_kernel(kind):
    enc, rows = prepared(kind), [11, 3, 8]
    q, k, v = (torch.randn(1, 4, 12, 4, dtype=torch.float64) for _ in range(3))
    to = Layout.dense(12).with_positions(torch.tensor(POSITIONS))
    at, q = to.take(torch.tensor(rows)), q[:, :, rows]
    logits = attend(q, k, v, enc, at=at, to=to, causal=False, backend="reference", details=True).logits
    for h in range(4):
        for i, row in enumerate(rows):
            for j in range(12):
                score = sum(q[0, h, i, c].item() * k[0, h, j, c].item() for c in range(4)) / 2
                bias = kernel(kind, h, POSITIONS[row] - POSITIONS[j])
                assert abs(logits[0, h, i, j].item() - score - bias) <= 8 * EPS * (8 + abs(bias))


def test_the_gradients_of_the_logarithm_are_its_derivatives():
    enc = prepared("log")
    enc.bias(torch.arange(4)[:, None], torch.tensor(300), torch.tensor([0, 44, 300])).sum().backward()
    for h in range(4):
        a, p = max(A[h], 0.01), max(P[h], 0.01)
        by_p = -sum(math.log(1 + a * d) for d in (300, 256, 0)) if P[h] >= 0.01 else 0.0
        by_a = -sum(p * d / (1 + a * d) for d in (300, 256, 0)) if A[h] >= 0.01 else 0.0
        assert enc.p.grad[h].item() == pytest.approx(by_p, rel=16 * EPS)
        assert enc.a.grad[h].item() == pytest.approx(by_a, rel=16 * EPS)


def test_the_gradients_of_the_power_are_its_derivatives_and_finite_on_the_diagonal():
    enc = prepared("power")
    enc.bias(torch.arange(4)[:, None], torch.tensor(300), torch.tensor([0, 44, 300])).sum().backward()
    for h in range(4):
        a, p = max(A[h], 0.01), min(max(P[h], 0.01), 2.0)
        by_p = -sum(a * d**p * math.log(d) for d in (300, 256)) if 0.01 <= P[h] <= 2 else 0.0
        by_a = -sum(d**p for d in (300, 256)) if A[h] >= 0.01 else 0.0
        assert enc.p.grad[h].item() == pytest.approx(by_p, rel=16 * EPS)
        assert enc.a.grad[h].item() == pytest.approx(by_a, rel=16 * EPS)


def test_shared_parameters_serve_every_head():
    enc = KERPLE(3, shared=True).double()
    assert enc.a.shape == enc.p.shape == (1,)
    got = enc.bias(torch.arange(3), torch.tensor(257), torch.tensor(1))
    want = -max(enc.p.item(), 0.01) * math.log(1 + max(enc.a.item(), 0.01) * 256)
    assert got.tolist() == pytest.approx([want] * 3, rel=8 * EPS)


def test_the_power_one_is_alibi_with_learned_slopes():
    enc = KERPLE(8, kind="power").double()
    with torch.no_grad():
        enc.p.fill_(1.0)
        enc.a.copy_(torch.tensor([2.0**-n for n in range(1, 9)], dtype=torch.float64).clamp(min=0.01))
    h, i, j = torch.arange(6), torch.tensor(131071), torch.tensor(255)
    assert torch.equal(enc.bias(h, i, j), ALiBi(8).bias(h, i, j))


def test_parameters_start_where_the_authors_start_them():
    enc = KERPLE(4000)
    assert enc.p.min() >= 0 and 1.9 < enc.p.max() <= 2
    assert enc.a.min() >= 0 and 0.9 < enc.a.max() <= 1


def test_half_precision_parameters_do_not_merge_distances():
    enc = KERPLE(1, kind="power").bfloat16()
    with torch.no_grad():
        enc.a.fill_(1.0)
        enc.p.fill_(1.0)
    assert enc.bias(torch.tensor(0), torch.tensor(4096), torch.tensor([0, 1])).tolist() == [-4096, -4095]


def test_fractional_and_negative_positions_have_distances():
    got = prepared("log").bias(
        torch.tensor(0), torch.tensor(0.5, dtype=torch.float64), torch.tensor(-2.0, dtype=torch.float64)
    )
    assert got.item() == pytest.approx(kernel("log", 0, 2.5), rel=8 * EPS)


def test_bad_use_is_refused():
    with pytest.raises(ValueError, match="heads must be at least 1"):
        KERPLE(0)
    with pytest.raises(ValueError, match="kind must be"):
        KERPLE(2, kind="linear")
    with pytest.raises(ValueError, match="is for 3 heads, q has 2"):
        attend(*(torch.randn(1, 2, 3, 2) for _ in range(3)), KERPLE(3))


def test_its_text_builds_it_again():
    assert repr(build("kerple(kind='power', shared=True)", heads=4)) == "kerple(heads=4, kind='power', shared=True)"
