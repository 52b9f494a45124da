"""Portraits hold the encoding's own numbers: those that depend on content, and lines of random vectors."""

import math

import pytest
import torch

from milepost import build
from milepost.portrait import portrait, relations
from milepost.positions import grid


def shaw(clip=3, size=8):
    """A table whose row for a key d tokens back is d in the first channel, and nothing else."""
    enc = build(f"shaw(clip={clip}, shared=False)", heads=2, head_dim=size)
    with torch.no_grad():
        enc.a.zero_()
        enc.a[0, :, 0] = -torch.arange(-clip, clip + 1.0)  # row of j - i
        enc.a[1] = 100.0  # of the head that is not drawn
    return enc


@pytest.mark.parametrize("only", [None, "lines", "heat"])
def test_what_shaw_adds_is_its_row_times_the_query(only):
    figures = {figure.kind: figure for figure in portrait(shaw(), 6, only).figures}
    assert set(figures) == ({"lines", "heat"} if only is None else {only})
    if "lines" in figures:
        for line in figures["lines"].lines.values():
            first = line[1]  # one token back: the query's first channel over sqrt(D)
            assert (
                line == pytest.approx([0.0, first, 2 * first, 3 * first, 3 * first, 3 * first], abs=1e-5) and first != 0
            )
        assert len({line[1] for line in figures["lines"].lines.values()}) == 4  # four queries
    if "heat" in figures:
        for i, row in enumerate(figures["heat"].z):
            one = row[i - 1] if i else 0.0
            wanted = [None if j > i else min(i - j, 3) * one for j in range(6)]
            assert [v is None for v in row] == [v is None for v in wanted]
            assert [v for v in row if v is not None] == pytest.approx([v for v in wanted if v is not None], abs=1e-5)


def test_scores_are_scaled_as_logits_are():
    """A query of size D has channels of size 1: over many of them the first channel over sqrt(D) has a spread of 1 /
    sqrt(D).
    """
    firsts = torch.tensor(
        [[row[i - 1] for i, row in enumerate(portrait(shaw(size=64), 400, "heat").figures[0].z) if i]]
    )
    assert float(firsts.std()) == pytest.approx(1 / math.sqrt(64), rel=0.15)


@pytest.mark.parametrize("size", [16, 64, 256])
def test_a_random_vector_is_as_like_itself_as_one_of_ones_whatever_its_size(size):
    lines = portrait(build("rope", head_dim=size), 64, "lines").figures[0].lines
    apart = [a - b for a, b in zip(*lines.values(), strict=True)]
    assert (
        0 < max(map(abs, apart)) < 5 * math.sqrt(2 / (256 * 64))
    )  # a mean of 16384 squares of normal numbers, times cosines


@pytest.mark.parametrize(
    "name", ["axial", "mixed", "grid(sides=(5, 7))", "alibi_2d", "sinusoidal_nd", "swin(sides=(5, 7))"]
)
def test_the_relations_of_one_place_are_a_row_of_all(name):
    enc = build(name, heads=2, head_dim=16, width=16)
    pos = grid(5, 7)
    with torch.no_grad():
        whole, one = relations(enc, pos), relations(enc, pos, 17)
    assert [what for what, _ in whole] == [what for what, _ in one] and whole
    for (_, matrix), (_, row) in zip(whole, one, strict=True):
        assert row.shape == (matrix.shape[0], 1, 35) and torch.allclose(row[:, 0], matrix[:, 17], atol=1e-12, rtol=0)


def test_keys_are_turned_in_parts_so_that_many_heads_take_little_memory(monkeypatch):
    """`grape` has planes for each head, and all of its heads are turned: 500 MB at once, for one request."""
    from milepost import GRAPE

    turned, real = [], GRAPE.turn
    monkeypatch.setattr(GRAPE, "turn", lambda self, x, pos: turned.append(x.numel()) or real(self, x, pos))
    lines = portrait(build("grape", heads=8, head_dim=64), 256, "lines").figures[0].lines
    assert max(turned) <= 1 << 20 and sum(turned) > 1 << 24
    assert len(lines["random with itself"]) == 256
