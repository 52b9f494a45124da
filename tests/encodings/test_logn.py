"""log-n against mpmath: the query at p times max(1, ln(p + 1) / ln(length)), and nothing else touched."""

import math

import mpmath
import pytest
import torch

from milepost import Layout, LogN, attend, build

EPS = torch.finfo(torch.float64).eps
L = 512
POSITIONS = [0, 1, 2, 255, 256, 257, L - 2, L - 1, L, L + 1, 4 * L, 131071, 1048575]


def factor(p: float, length: int) -> float:
    with mpmath.workdps(40):
        return float(max(1, mpmath.log(mpmath.mpf(p) + 1) / mpmath.log(length)))


@pytest.mark.parametrize("length", [2, 100, 512, 4096])
def test_queries_are_sharpened_by_their_own_position(length):
    q = torch.randn(2, 3, 13, 4, dtype=torch.float64)
    got = LogN(length).query(q, torch.tensor(POSITIONS))
    for t, p in enumerate(POSITIONS):
        want = q[:, :, t] * factor(p, length)
        assert ((got[:, :, t] - want).abs() <= 4 * EPS * want.abs()).all(), p  # two logarithms, a quotient, a product


def test_golden_factors():
    got = (
        LogN(512)
        .query(torch.ones(1, 1, 3, 1, dtype=torch.float64), torch.tensor([511, 2**18 - 1, 1048575]))
        .flatten()
        .tolist()
    )
    assert got == pytest.approx([1.0, 2.0, 20 / 9], rel=4 * EPS)


def test_texts_of_the_trained_length_come_back_bit_equal_and_the_next_token_does_not():
    q = torch.randn(1, 2, 513, 4)
    y = LogN(512).query(q, torch.arange(513))
    assert torch.equal(y[:, :, :512], q[:, :, :512])
    assert not torch.equal(y[:, :, 512], q[:, :, 512])


def test_keys_are_never_touched():
    k = torch.randn(1, 2, 3, 4)
    assert LogN(4).key(k, torch.tensor([0, 100, 131071])) is k


def test_in_attention_a_whole_row_of_logits_is_sharpened_by_the_query():
    q, k, v = (torch.randn(1, 2, 6, 4, dtype=torch.float64) for _ in range(3))
    places = [3, 100, 511, 512, 2048, 131071]
    enc, at = LogN(100), Layout.dense(6).with_positions(torch.tensor(places))
    logits = attend(q, k, v, enc, at=at, backend="reference", details=True).logits
    for h in range(2):
        for i in range(6):
            for j in range(i + 1):
                terms = [q[0, h, i, c].item() * k[0, h, j, c].item() for c in range(4)]
                want = sum(terms) * factor(places[i], 100) / 2
                assert abs(logits[0, h, i, j].item() - want) <= 16 * EPS * sum(map(abs, terms))


def test_each_row_is_told_its_own_positions_and_fractions_count():
    y = LogN(10).query(
        torch.ones(2, 1, 2, 1, dtype=torch.float64), torch.tensor([[99.0, 0.5], [9.5, 999.0]], dtype=torch.float64)
    )
    assert y[:, 0, :, 0].tolist() == [
        pytest.approx([2.0, 1.0], rel=4 * EPS),
        pytest.approx([math.log(10.5) / math.log(10), 3.0], rel=4 * EPS),
    ]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models_stay_finite_past_65520(dtype):
    y = LogN(512).half().query(torch.ones(1, 1, 2, 1, dtype=dtype), torch.tensor([65520, 1048575]))
    want = torch.tensor([factor(65520, 512), factor(1048575, 512)], dtype=torch.float64)
    assert y.dtype == dtype
    assert (
        (y.flatten().double() - want).abs() <= 0.51 * torch.finfo(dtype).eps * want
    ).all()  # the factor rounded once, times one


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="length must be at least 2"):
        LogN(1)
    with pytest.raises(ValueError, match="before position 0"):
        LogN(8).query(torch.zeros(1, 1, 1, 2), torch.tensor([-1]))
    with pytest.raises(ValueError, match="float16"):
        LogN(8).query(torch.zeros(1, 1, 1, 2), torch.tensor([1.0]).half())
    with pytest.raises(ValueError, match=r"\(B, H, L, D\)"):
        LogN(8).query(torch.zeros(1, 1, 2), torch.tensor([1]))


def test_its_text_builds_it_again():
    assert repr(build("logn", length=4096)) == "logn(length=4096)"
