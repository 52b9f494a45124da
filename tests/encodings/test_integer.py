"""Integer against exact rational arithmetic: x + p/over as a Fraction, rounded once."""

from fractions import Fraction

import pytest
import torch

from milepost import Integer, build

EPS = torch.finfo(torch.float64).eps
POSITIONS = [0, 1, 2, 255, 256, 257, 511, 512, 513, 2048, 131071, 1048575]


def exact(x: float, p: float, over: float = 1) -> float:
    return float(Fraction(x) + Fraction(p) / Fraction(over))


def test_raw_is_the_embedding_plus_the_position_in_every_channel():
    x = torch.randn(2, 12, 3, dtype=torch.float64)
    y = Integer().embed(x, torch.tensor(POSITIONS))
    for b in range(2):
        for t, p in enumerate(POSITIONS):
            for c in range(3):
                assert y[b, t, c].item() == exact(x[b, t, c].item(), p)  # one addition: correctly rounded


@pytest.mark.parametrize("over", [100, 512.0, 0.5])
def test_a_fixed_number_divides_the_position_and_not_the_embedding(over):
    x = torch.randn(1, 12, 3, dtype=torch.float64)
    y = Integer(over=over).embed(x, torch.tensor(POSITIONS))
    for t, p in enumerate(POSITIONS):
        for c in range(3):
            want = exact(x[0, t, c].item(), p, over)
            assert abs(y[0, t, c].item() - want) <= EPS * (
                p / over + abs(want)
            )  # half a rounding in the quotient, half in the sum


def test_each_row_is_told_its_own_positions():
    pos = torch.tensor([[0, 1, 5], [7, 2, 131071]])
    y = Integer().embed(torch.zeros(2, 3, 1, dtype=torch.float64), pos)
    assert y[..., 0].tolist() == [[0, 1, 5], [7, 2, 131071]]


def test_negative_and_fractional_positions_are_numbers_like_others():
    y = Integer(over=4).embed(torch.zeros(1, 3, 1, dtype=torch.float64), torch.tensor([-2.0, 0.5, 3.0]))
    assert y.flatten().tolist() == [-0.5, 0.125, 0.75]


def test_float32_holds_the_position_1048575_exactly():
    y = Integer().embed(torch.zeros(1, 1, 1), torch.tensor([1048575]))
    assert y.item() == 1048575


def test_in_bfloat16_the_sum_is_rounded_once():
    x = torch.full((1, 2, 1), 0.75, dtype=torch.bfloat16)
    y = Integer().embed(x, torch.tensor([256, 257]))
    assert y.flatten().tolist() == [256.0, 258.0]  # 256.75 and 257.75 to the nearest multiple of 2


def test_normalised_by_the_length_is_another_encoding_for_each_length():
    enc = Integer(over="length")
    assert enc.length_dependent and not enc.cacheable
    assert repr(enc.at(8)) == "integer(over=8)"
    y = enc.at(8).embed(torch.zeros(1, 3, 1, dtype=torch.float64), torch.tensor([0, 1, 7]))
    assert y.flatten().tolist() == [0, 0.125, 0.875]
    plain = Integer(over=3)
    assert plain.at(8) is plain


def test_normalised_by_the_length_is_never_guessed():
    enc = Integer(over="length")
    with pytest.raises(ValueError, match=r"use enc\.at\(length\)"):
        enc.embed(torch.zeros(1, 3, 2), torch.arange(3))


@pytest.mark.parametrize("over", [0, -1, -0.5, "width", float("nan")])
def test_what_cannot_divide_is_refused(over):
    with pytest.raises(ValueError, match="over must be"):
        Integer(over=over)


def test_bad_input_is_refused_with_its_shape_or_dtype():
    enc = Integer()
    with pytest.raises(ValueError, match="bfloat16"):
        enc.embed(torch.zeros(1, 3, 2), torch.arange(3).bfloat16())
    with pytest.raises(ValueError, match=r"\(B, L, C\)"):
        enc.embed(torch.zeros(3, 2), torch.arange(3))
    with pytest.raises(ValueError, match=r"positions of shape .* got \(4,\)"):
        enc.embed(torch.zeros(1, 3, 2), torch.arange(4))
    with pytest.raises(ValueError, match=r"got \(3, 3\)"):
        enc.embed(torch.zeros(2, 3, 2), torch.zeros(3, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="finite"):
        enc.embed(torch.zeros(1, 2, 2), torch.tensor([0.0, float("inf")]))


@pytest.mark.parametrize("text", ["integer()", "integer(over=100)", "integer(over='length')"])
def test_its_text_builds_it_again(text):
    assert repr(build(text)) == text
