"""Learned against a table read row by row in plain Python."""

import pytest
import torch

from milepost import Learned, build


def randomised(**sizes) -> Learned:
    enc = Learned(**sizes).double()
    with torch.no_grad():
        enc.table.normal_()
    return enc


@pytest.mark.parametrize("offset", [0, 2, 5])
def test_each_token_gets_the_row_of_its_position_plus_the_offset(offset):
    enc, x = randomised(length=513, width=4, offset=offset), torch.randn(2, 6, 4, dtype=torch.float64)
    pos = [[0, 1, 2, 255, 256, 257], [512, 511, 510, 3, 3, 0]]
    y = enc.embed(x, torch.tensor(pos))
    table = enc.table.tolist()
    for b in range(2):
        for t in range(6):
            row = table[pos[b][t] + offset]
            assert y[b, t].tolist() == [a + r for a, r in zip(x[b, t].tolist(), row, strict=True)], (
                b,
                t,
            )  # one addition


def test_far_rows_of_a_long_table_are_reached():
    enc = randomised(length=131073, width=2)
    y = enc.embed(torch.zeros(1, 2, 2, dtype=torch.float64), torch.tensor([131071, 131072]))
    assert y[0].tolist() == [enc.table[131071].tolist(), enc.table[131072].tolist()]


@pytest.mark.parametrize(("length", "rows"), [(512, 514), (2048, 2050)])
def test_golden_sizes_of_roberta_and_opt(length, rows):
    enc = randomised(length=length, width=3, offset=2)
    assert enc.table.shape == (rows, 3)
    y = enc.embed(torch.zeros(1, 2, 3, dtype=torch.float64), torch.tensor([0, length - 1]))
    assert y[0].tolist() == [enc.table[2].tolist(), enc.table[rows - 1].tolist()]
    with pytest.raises(
        ValueError, match=f"position {length} is past the end .* {rows} rows, offset 2, {length} usable positions"
    ):
        enc.embed(torch.zeros(1, 1, 3, dtype=torch.float64), torch.tensor([length]))


def test_rows_learn_once_for_each_token_that_used_them_and_the_offset_rows_never():
    enc = randomised(length=6, width=2, offset=2)
    enc.embed(torch.zeros(1, 4, 2, dtype=torch.float64), torch.tensor([0, 3, 3, 5])).sum().backward()
    assert enc.table.grad[:, 0].tolist() == [0, 0, 1, 0, 0, 2, 0, 1]


def test_past_the_end_there_is_a_sentence_and_never_a_clamp():
    enc = randomised(length=512, width=2)
    for p in (512, 513, 2048, 1048575):
        with pytest.raises(ValueError, match=f"position {p} is past the end of the learned table"):
            enc.embed(torch.zeros(1, 1, 2, dtype=torch.float64), torch.tensor([p]))


def test_positions_without_a_row_are_refused():
    enc = randomised(length=8, width=2, offset=2)
    with pytest.raises(ValueError, match="before position 0, got position -1"):  # with the offset it would read row 1
        enc.embed(torch.zeros(1, 1, 2, dtype=torch.float64), torch.tensor([-1]))
    with pytest.raises(ValueError, match="whole positions, got float64"):
        enc.embed(torch.zeros(1, 1, 2, dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64))
    with pytest.raises(ValueError, match="bfloat16"):
        enc.embed(torch.zeros(1, 1, 2, dtype=torch.float64), torch.tensor([1]).bfloat16())


@pytest.mark.parametrize(
    "sizes", [{"length": 0, "width": 2}, {"length": 2, "width": 0}, {"length": 2, "width": 2, "offset": -1}]
)
def test_bad_sizes_are_refused(sizes):
    with pytest.raises(ValueError, match="length and width must be at least 1 and offset at least 0"):
        Learned(**sizes)


def test_an_embedding_of_another_width_is_refused():
    with pytest.raises(ValueError, match="made for width=4"):
        Learned(length=8, width=4).embed(torch.zeros(1, 2, 3), torch.arange(2))


def test_its_text_builds_it_again():
    assert repr(build("learned(length=512, offset=2)", width=8)) == "learned(length=512, width=8, offset=2)"
