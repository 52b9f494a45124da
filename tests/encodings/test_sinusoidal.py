"""Sinusoidal against mpmath at 40 digits: sin and cos of p base^(-2i/C), channel by channel."""

import mpmath
import pytest
import torch

from milepost import Sinusoidal, build

EPS = torch.finfo(torch.float64).eps
POSITIONS = [0, 1, 2, 255, 256, 257, 511, 512, 513, 2048, 131071, 1048575]


def code(p, width: int, base: float = 10000.0) -> list[float]:
    """The paper's row: sin of pair 0, cos of pair 0, sin of pair 1, ..."""
    with mpmath.workdps(40):
        angles = [mpmath.mpf(p) / mpmath.mpf(base) ** (mpmath.mpf(2 * i) / width) for i in range(width // 2)]
        return [float(f(a)) for a in angles for f in (mpmath.sin, mpmath.cos)]


def room(p: float) -> float:
    """An angle p w with w <= 1 is off by 1.5 roundings of its size (power, product); sin and cos add one of their
    own.
    """
    return (1.5 * abs(p) + 2) * EPS


@pytest.mark.parametrize(("width", "base"), [(2, 10000.0), (10, 10000.0), (16, 500.0)])
def test_the_code_is_the_papers_at_every_position(width, base):
    got = Sinusoidal(width=width, base=base).code(torch.tensor(POSITIONS))
    for row, p in zip(got.tolist(), POSITIONS, strict=True):
        assert row == pytest.approx(code(p, width, base), rel=0, abs=room(p)), p


def test_embed_adds_each_token_its_own_code():
    x, pos = torch.randn(2, 3, 6, dtype=torch.float64), [[0, 257, 1048575], [5, 131071, 2]]
    y = Sinusoidal(width=6).embed(x, torch.tensor(pos))
    for b in range(2):
        for t in range(3):
            want = [a + c for a, c in zip(x[b, t].tolist(), code(pos[b][t], 6), strict=True)]
            assert y[b, t].tolist() == pytest.approx(want, rel=0, abs=room(pos[b][t]) + 4 * EPS)


def test_halves_puts_all_sines_before_all_cosines():
    got = Sinusoidal(width=8, order="halves").code(torch.tensor(POSITIONS))
    for row, p in zip(got.tolist(), POSITIONS, strict=True):
        paper = code(p, 8)
        assert row == pytest.approx(paper[0::2] + paper[1::2], rel=0, abs=room(p))


def test_concat_appends_the_code_and_leaves_the_embedding_alone():
    enc, x = Sinusoidal(width=6, how="concat"), torch.randn(2, 4, 3, dtype=torch.float64)
    y = enc.embed(x, torch.tensor([0, 1, 257, 131071]))
    assert enc.added_width == 6
    assert y.shape == (2, 4, 9)
    assert torch.equal(y[..., :3], x)
    for t, p in enumerate([0, 1, 257, 131071]):
        assert y[1, t, 3:].tolist() == pytest.approx(code(p, 6), rel=0, abs=room(p))


def test_golden_row_of_position_one():
    got = Sinusoidal(width=4).code(torch.tensor([1]))[0].tolist()
    assert got == pytest.approx(
        [0.8414709848078965, 0.5403023058681398, 0.009999833334166664, 0.9999500004166653], abs=4 * EPS
    )


@pytest.mark.parametrize("p", [131071, 1048575])
def test_float32_codes_are_within_a_millionth_at_far_positions(p):
    got = Sinusoidal(width=64).embed(torch.zeros(1, 1, 64), torch.tensor([p]))[0, 0].tolist()
    assert got == pytest.approx(code(p, 64), rel=0, abs=1e-6)


def test_an_offset_is_a_fixed_rotation_of_the_code():
    enc = Sinusoidal(width=8)
    here, there = enc.code(torch.tensor([3, 100, 4096])), enc.code(torch.tensor([3, 100, 4096]) + 5)
    for i, w in enumerate(10000.0 ** (-2 * i / 8) for i in range(4)):
        turn = torch.tensor(
            [[mpmath.cos(5 * w), mpmath.sin(5 * w)], [-mpmath.sin(5 * w), mpmath.cos(5 * w)]], dtype=torch.float64
        )
        torch.testing.assert_close(
            there[:, 2 * i : 2 * i + 2], here[:, 2 * i : 2 * i + 2] @ turn.T, rtol=0, atol=2 * room(4101)
        )


@pytest.mark.parametrize("order", ["interleaved", "halves"])
def test_no_cast_of_the_module_reaches_the_frequencies(order):
    pos = torch.tensor([255, 256, 257, 131071])
    plain = Sinusoidal(width=16, order=order)
    before = plain.code(pos.clone()).clone()
    with torch.device("meta"):
        lazy = Sinusoidal(width=16, order=order)
    cast = [
        Sinusoidal(width=16, order=order).bfloat16(),
        Sinusoidal(width=16, order=order).half(),
        lazy.to_empty(device="cpu"),
    ]
    for enc in cast:
        assert torch.equal(enc.code(pos.clone()), before)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(plain.code(pos.clone()), before)
    assert not list(plain.state_dict())


def test_in_half_precision_the_code_is_the_float64_one_rounded():
    pos = torch.tensor([255, 256, 257, 65520, 131071])
    exact = Sinusoidal(width=8).code(pos)
    for dtype in (torch.float16, torch.bfloat16):
        got = Sinusoidal(width=8).embed(torch.zeros(1, 5, 8, dtype=dtype), pos)[0]
        assert (got.double() - exact).abs().max() <= torch.finfo(
            dtype
        ).eps * 0.51  # values are at most 1; half an eps, and float32's rounding
        assert not torch.equal(got[1], got[2])


def test_two_bases_do_not_share_a_table_on_one_position_tensor():
    pos = torch.arange(4)
    slow, quick = Sinusoidal(width=8, base=500.0), Sinusoidal(width=8)
    assert not torch.equal(slow.code(pos), quick.code(pos))
    assert torch.equal(quick.code(pos), quick.code(pos.clone()))


def test_negative_and_fractional_positions_have_codes():
    got = Sinusoidal(width=6).code(torch.tensor([-3.0, 0.25]))
    assert got[0].tolist() == pytest.approx(code(-3, 6), abs=room(3))
    assert got[1].tolist() == pytest.approx(code(0.25, 6), abs=room(1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"width": 7}, "must be even and at least 2, got 7"),
        ({"width": 0}, "must be even"),
        ({"width": 8, "base": 1.0}, "base must be a finite number above 1"),
        ({"width": 8, "base": float("inf")}, "base must be"),
        ({"width": 8, "order": "mixed"}, "order must be"),
        ({"width": 8, "how": "multiply"}, "how must be"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Sinusoidal(**arguments)


def test_bad_tensors_are_refused():
    with pytest.raises(ValueError, match="made for width=8"):
        Sinusoidal(width=8).embed(torch.zeros(1, 2, 6), torch.arange(2))
    with pytest.raises(ValueError, match="bfloat16"):
        Sinusoidal(width=8).embed(torch.zeros(1, 2, 8), torch.arange(2).bfloat16())


def test_its_text_builds_it_again():
    text = "sinusoidal(width=12, base=500.0, order='halves', how='concat')"
    assert repr(build(text)) == text
