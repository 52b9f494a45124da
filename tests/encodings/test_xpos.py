"""xPos against complex numbers with mpmath: pair i of q is multiplied by z^(m/scale_base) exp(i m w), of k by
z^(-n/scale_base) exp(i n w).
"""

import math

import mpmath
import pytest
import torch

from milepost import Layout, RoPE, XPos, attend, build

EPS = torch.finfo(torch.float64).eps
POSITIONS = [0, 1, 2, 255, 256, 257, 511, 512, 513, 2048, 16384, 32633]


def factor(p: int, i: int, size: int, sign: int, base: float = 10000.0, scale_base: float = 512.0) -> complex:
    """What pair i of a head of ``size`` channels is multiplied by at position p."""
    with mpmath.workdps(40):
        z = (2 * i + mpmath.mpf("0.4") * size) / (mpmath.mpf("1.4") * size)
        return complex(
            z ** (sign * mpmath.mpf(p) / scale_base) * mpmath.expj(p * mpmath.mpf(base) ** (-mpmath.mpf(2 * i) / size))
        )


def pair_of(i: int, size: int, pairing: str) -> tuple[int, int]:
    return (i, i + size // 2) if pairing == "half" else (2 * i, 2 * i + 1)


def room(p: int) -> float:
    """Relative: 1.5 roundings of the angle's size p; 2 of the exponent's, below 80 by the end; a few for the
    products.
    """
    return (1.5 * p + 2 * 80 + 16) * EPS


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("size", [2, 6, 64])
def test_queries_fade_and_keys_grow_while_both_turn(pairing, size):
    enc, x = XPos(size, pairing=pairing), torch.randn(1, 3, 12, size, dtype=torch.float64)
    for sign, y in ((+1, enc.query(x, torch.tensor(POSITIONS))), (-1, enc.key(x, torch.tensor(POSITIONS)))):
        for t, p in enumerate(POSITIONS):
            for i in range(size // 2):
                a, b = pair_of(i, size, pairing)
                f = factor(p, i, size, sign)
                want = complex(x[0, 2, t, a], x[0, 2, t, b]) * f
                got = complex(y[0, 2, t, a], y[0, 2, t, b])
                assert abs(got - want) <= room(p) * abs(want), (sign, p, i)


def test_a_logit_holds_the_decay_of_the_distance():
    D, enc = 6, XPos(6, base=500.0, scale_base=128.0)
    places = [0, 1, 2, 255, 256, 257, 1000, 4096]
    q, k, v = (torch.randn(1, 2, 8, D, dtype=torch.float64) for _ in range(3))
    at = Layout.dense(8).with_positions(torch.tensor(places))
    logits = attend(q, k, v, enc, at=at, backend="reference", details=True).logits
    for h in range(2):
        for i in range(8):
            for j in range(i + 1):
                want, size = 0.0, 0.0
                for c in range(D // 2):
                    a, b = pair_of(c, D, "half")
                    zq, zk = complex(q[0, h, i, a], q[0, h, i, b]), complex(k[0, h, j, a], k[0, h, j, b])
                    f = factor(places[i] - places[j], c, D, +1, base=500.0, scale_base=128.0)
                    want += (zq * zk.conjugate() * f).real
                    size += abs(zq * zk * f)
                assert abs(logits[0, h, i, j].item() - want / math.sqrt(D)) <= 4 * room(4096) * size


def test_golden_decays_of_the_first_and_last_pair():
    one = torch.zeros(1, 1, 1, 64, dtype=torch.float64)
    one[..., [0, 31]] = 1.0
    y = XPos(64).query(one, torch.tensor([512]))[0, 0, 0]
    norms = [math.hypot(y[0], y[32]), math.hypot(y[31], y[63])]
    assert norms == pytest.approx(
        [0.2857142857142857, 0.9776785714285714], rel=room(512)
    )  # 0.4/1.4 and (62 + 25.6)/89.6
    z = XPos(64).key(one, torch.tensor([512]))[0, 0, 0]
    assert math.hypot(z[0], z[32]) == pytest.approx(3.5, rel=room(512))


def test_without_decay_it_would_be_rope():
    x, pos = torch.randn(1, 2, 4, 8, dtype=torch.float64), torch.tensor([0, 1, 257, 2048])
    slow = XPos(8, scale_base=1e30)
    torch.testing.assert_close(slow.query(x, pos), RoPE(8).query(x, pos), rtol=4 * EPS, atol=4 * EPS)


def test_a_logit_keeps_its_value_under_a_shift_so_the_centre_is_free():
    enc, pos = XPos(8), torch.tensor([0, 3, 257, 1000])
    q, k = torch.randn(1, 1, 4, 8, dtype=torch.float64), torch.randn(1, 1, 4, 8, dtype=torch.float64)
    here = enc.query(q, pos) @ enc.key(k, pos).transpose(-1, -2)
    there = enc.query(q, pos + 8192) @ enc.key(k, pos + 8192).transpose(-1, -2)
    size = enc.query(q, pos).norm(dim=-1)[..., :, None] * enc.key(k, pos).norm(dim=-1)[..., None, :]
    assert ((here - there).abs() / size).max() <= 8 * room(9192)


def test_frequencies_and_rates_survive_every_cast_bit_for_bit():
    pos, x = torch.tensor([257, 20000]), torch.randn(1, 2, 2, 16)
    before = XPos(16).query(x, pos.clone())
    with torch.device("meta"):
        lazy = XPos(16)
    for enc in (XPos(16).bfloat16(), XPos(16).half(), lazy.to_empty(device="cpu")):
        assert torch.equal(enc.inv_freq, XPos(16).inv_freq) and torch.equal(enc.rate, XPos(16).rate)
        assert torch.equal(enc.query(x, pos.clone()), before)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(XPos(16).query(x, pos.clone()), before)


def test_bfloat16_is_rounded_once():
    x, pos = torch.randn(1, 1, 3, 8).bfloat16(), torch.tensor([256, 257, 4096])
    got, want = XPos(8).key(x, pos).double(), XPos(8).key(x.double(), pos)
    assert (
        (got - want).abs() <= 0.51 * torch.finfo(torch.bfloat16).eps * want.abs() + 1e-6 * want.abs().amax()
    ).all()  # float32's own error is below 1e-6


def test_golden_ends_of_float32_and_float16():
    enc = XPos(64)
    assert enc.end == 32634
    x = torch.ones(1, 1, 1, 64)
    assert enc.key(x, torch.tensor([32633])).isfinite().all()
    with pytest.raises(ValueError, match=r"position 32634: the decay .* leaves float32 at position 32634"):
        enc.key(x, torch.tensor([32634]))
    assert enc.key(x.half(), torch.tensor([4078])).isfinite().all()
    with pytest.raises(ValueError, match=r"position 4079 makes .* overflow float16"):
        enc.query(x.half(), torch.tensor([4079]))
    assert enc.key(x.bfloat16(), torch.tensor([32633])).isfinite().all()


def test_keys_after_their_query_are_refused():
    x = torch.randn(1, 1, 3, 8)
    with pytest.raises(ValueError, match="causal=True"):
        attend(x, x, x, XPos(8), causal=False)
    with pytest.raises(ValueError, match="before position 0"):
        XPos(8).key(x, torch.tensor([-1, 0, 1]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"head_dim": 7}, "must be even"),
        ({"head_dim": 8, "scale_base": 0.0}, "scale_base must be above 0"),
        ({"head_dim": 8, "scale_base": float("nan")}, "scale_base"),
        ({"head_dim": 8, "pairing": "other"}, "pairing must be"),
        ({"head_dim": 8, "base": 0.5}, "base must be"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        XPos(**arguments)


def test_its_text_builds_it_again():
    text = "xpos(head_dim=8, base=500.0, scale_base=128.0, pairing='interleaved')"
    assert repr(build(text)) == text
