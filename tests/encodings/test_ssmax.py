"""SSMax against the paper's other form: weights n^(s z) over their sum, in mpmath, with n the keys that a query sees."""

import math

import mpmath
import pytest
import torch

from milepost import Layout, SSMax, attend, build

EPS = torch.finfo(torch.float64).eps
POSITIONS = [0, 1, 2, 255, 256, 257, 511, 512, 4 * 512, 131071, 1048575]


def test_weights_are_powers_of_the_number_of_keys():
    n, heads = 9, 3
    q, k = (torch.randn(1, heads, n, 4, dtype=torch.float64) for _ in range(2))
    v = torch.eye(n, dtype=torch.float64).expand(1, heads, n, n)  # the output is the weights
    enc = SSMax(heads, length=16).double()
    with torch.no_grad():
        enc.scale.copy_(torch.tensor([0.43, 1.5, -0.2]))
    for backend in ("reference", "sdpa"):
        got = attend(q, k, v, enc, at=Layout.dense(n), backend=backend, scale=0.5)
        for h in range(heads):
            s = enc.scale[h].item()
            for i in range(n):
                z = [0.5 * mpmath.fdot(q[0, h, i].tolist(), k[0, h, j].tolist()) for j in range(i + 1)]
                powers = [mpmath.mpf(i + 1) ** (s * one) for one in z]
                for j in range(i + 1):
                    want = float(powers[j] / sum(powers))
                    assert abs(got[0, h, i, j].item() - want) <= 256 * EPS, (backend, h, i, j)  # exponents up to 20


def test_each_head_has_its_own_temperature_at_far_positions():
    enc = SSMax(2, length=512).double()
    with torch.no_grad():
        enc.scale.copy_(torch.tensor([0.25, 3.0]))
    q = torch.randn(2, 2, len(POSITIONS), 4, dtype=torch.float64)
    y = enc.query(q, torch.tensor(POSITIONS))
    for t, p in enumerate(POSITIONS):
        for h, s in enumerate((0.25, 3.0)):
            want = q[:, h, t] * float(s * mpmath.log(p + 1))
            assert ((y[:, h, t] - want).abs() <= 4 * EPS * want.abs()).all(), p


def test_the_affine_form_adds_a_number_of_each_head_and_begins_as_a_plain_softmax():
    enc = SSMax(2, length=512, affine=True).double()
    q = torch.randn(2, 2, len(POSITIONS), 4, dtype=torch.float64)
    assert torch.equal(enc.query(q, torch.tensor(POSITIONS)), q)
    with torch.no_grad():
        enc.scale.copy_(torch.tensor([0.25, 3.0]))
        enc.added.copy_(torch.tensor([-0.5, 7.0]))
    y = enc.query(q, torch.tensor(POSITIONS))
    for t, p in enumerate(POSITIONS):
        for h, (s, b) in enumerate(((0.25, -0.5), (3.0, 7.0))):
            want = q[:, h, t] * float(s * mpmath.log(p + 1) + b)
            assert ((y[:, h, t] - want).abs() <= 8 * EPS * (want.abs() + q[:, h, t].abs())).all(), p


def test_the_end_of_the_trained_length_begins_with_plain_logits():
    enc, q = SSMax(2, length=512).double(), torch.randn(1, 2, 1, 4, dtype=torch.float64)
    enc.scale.data.fill_(1 / math.log(512))
    assert (enc.query(q, torch.tensor([511])) - q).abs().max() <= 4 * EPS * q.abs().max()
    assert SSMax(2, length=512).scale.tolist() == pytest.approx([1 / math.log(512)] * 2, rel=2**-23)
    assert SSMax(2, length=512, start=0.43).scale.tolist() == pytest.approx([0.43] * 2, rel=2**-23)


def test_keys_are_never_touched():
    k = torch.randn(1, 2, 3, 4)
    assert SSMax(2, 8).key(k, torch.tensor([0, 100, 131071])) is k


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heads": 0, "length": 8}, "heads must be at least 1, got 0"),
        ({"heads": 2, "length": 1}, "length must be at least 2, got 1"),
        ({"heads": 2, "length": 8, "start": 0.0}, "start must be above 0 and at most 100, got 0.0"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        SSMax(**arguments)


def test_another_number_of_heads_and_negative_positions_are_refused():
    with pytest.raises(ValueError, match="temperatures for 2 heads, got 3"):
        SSMax(2, 8).query(torch.zeros(1, 3, 1, 4), torch.tensor([1]))
    with pytest.raises(ValueError, match="before position 0"):
        SSMax(2, 8).query(torch.zeros(1, 2, 1, 4), torch.tensor([-1]))


def test_its_text_builds_it_again():
    for text in ("ssmax(heads=2, length=64, start=0.43)", "ssmax(heads=2, length=64, affine=True)"):
        assert repr(build(text)) == text
    assert repr(build("ssmax", heads=4, length=64)) == "ssmax(heads=4, length=64)"
