"""Binary against the digits that Python prints: format(p, "b") read backwards."""

import pytest
import torch

from milepost import Binary, build

POSITIONS = [0, 1, 2, 7, 8, 255, 256, 257, 131071, 131072, 1048575]


def digits(p: int, width: int) -> list[int]:
    text = format(p, "b")[::-1]
    return [int(text[c]) if c < len(text) else 0 for c in range(width)]


def test_channel_c_gets_bit_c_lowest_first():
    x = torch.randn(2, len(POSITIONS), 20, dtype=torch.float64)
    y = Binary(width=20).embed(x, torch.tensor(POSITIONS))
    for b in range(2):
        for t, p in enumerate(POSITIONS):
            want = [value + bit for value, bit in zip(x[b, t].tolist(), digits(p, 20), strict=True)]
            assert y[b, t].tolist() == want, p  # adding 0 or 1 rounds alike everywhere


def test_golden_bits_of_six():
    assert Binary(width=4).embed(torch.zeros(1, 1, 4), torch.tensor([6])).flatten().tolist() == [0, 1, 1, 0]


def test_every_position_below_the_end_has_bits_of_its_own():
    y = Binary(width=8).embed(torch.zeros(1, 256, 8), torch.arange(256))
    assert len({tuple(row) for row in y[0].tolist()}) == 256


@pytest.mark.parametrize("width", [62, 63, 64, 70])
def test_the_widest_positions_reach_bit_62_and_no_further(width):
    pos = [2**61 + 5, 2**62 - 1] if width == 62 else [2**62, 2**63 - 1]
    y = Binary(width=width).embed(torch.zeros(1, 2, width), torch.tensor(pos))
    assert [row.tolist() for row in y[0]] == [digits(p, width) for p in pos]


def test_each_row_is_told_its_own_positions():
    y = Binary(width=3).embed(torch.zeros(2, 2, 3), torch.tensor([[1, 2], [4, 7]]))
    assert y.tolist() == [[[1, 0, 0], [0, 1, 0]], [[0, 0, 1], [1, 1, 1]]]


def test_bits_stay_exact_in_half_precision():
    y = Binary(width=20).bfloat16().embed(torch.zeros(1, 2, 20, dtype=torch.bfloat16), torch.tensor([256, 257]))
    assert y[0].tolist() == [digits(256, 20), digits(257, 20)]


def test_positions_that_have_no_bits_here_are_refused():
    enc = Binary(width=4)
    enc.embed(torch.zeros(1, 1, 4), torch.tensor([15]))
    with pytest.raises(ValueError, match=r"position 16 is past the end .* last position is 15"):
        enc.embed(torch.zeros(1, 1, 4), torch.tensor([16]))
    with pytest.raises(ValueError, match="before position 0"):
        enc.embed(torch.zeros(1, 1, 4), torch.tensor([-1]))
    with pytest.raises(ValueError, match="whole positions, got float32"):
        enc.embed(torch.zeros(1, 1, 4), torch.tensor([1.0]))
    with pytest.raises(ValueError, match="float16"):
        enc.embed(torch.zeros(1, 1, 4), torch.tensor([1.0]).half())


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="width must be at least 1"):
        Binary(width=0)
    with pytest.raises(ValueError, match="made for width=4"):
        Binary(width=4).embed(torch.zeros(1, 1, 5), torch.tensor([1]))


def test_its_text_builds_it_again():
    assert repr(build("binary", width=12)) == "binary(width=12)"
