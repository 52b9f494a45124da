"""Selective RoPE against complex numbers summed token by token, and against RoPE where every token moves the clock by
one.
"""

import cmath
import math

import pytest
import torch

from milepost import RoPE, SelectiveRoPE, attend
from milepost.testing import randomised_copy


def angles(enc, x, h, c):
    """The clock of pair c of head h at each token, in plain numbers."""
    size, total, clock = enc.width // enc.heads, 0.0, []
    for token in x[0].tolist():
        scaled = []
        for a in range(0, enc.width, size):
            length = math.sqrt(sum(value * value for value in token[a : a + size]))
            scaled += [value / length for value in token[a : a + size]]
        down = [sum(w * value for w, value in zip(row, scaled, strict=True)) for row in enc.down.weight.tolist()]
        row = enc.up.weight[h * enc.head_dim // 2 + c].tolist()
        total += enc.base ** (-2 * c / enc.head_dim) * sum(w * value for w, value in zip(row, down, strict=True))
        clock.append(total)
    return clock


def test_each_score_is_that_of_complex_numbers():
    enc = randomised_copy(SelectiveRoPE(heads=2, head_dim=6, width=8, base=50.0, rank=3))
    q, k = (torch.randn(1, 2, 9, 6, dtype=torch.float64) for _ in range(2))
    x = torch.randn(1, 9, 8, dtype=torch.float64)
    logits = attend(q, k, k, enc, features=enc.features(x, torch.arange(9)), details=True).logits[0].tolist()
    for h in range(2):
        clocks = [angles(enc, x, h, c) for c in range(3)]
        for i in range(9):
            for j in range(i + 1):
                score = 0.0
                for c in range(3):
                    mine, theirs = (complex(t[0, h, p, c], t[0, h, p, c + 3]) for t, p in ((q, i), (k, j)))
                    score += (mine * cmath.exp(1j * (clocks[c][i] - clocks[c][j])) * theirs.conjugate()).real
                assert logits[h][i][j] == pytest.approx(score / math.sqrt(6), abs=1e-13)


def test_clocks_that_all_tokens_move_by_one_are_rope():
    enc = SelectiveRoPE(heads=2, head_dim=6, width=4, base=10000.0).double()
    q, k, v = (torch.randn(1, 2, 30, 6, dtype=torch.float64) for _ in range(3))
    ones = torch.ones(1, 30, enc.feature_count, dtype=torch.float64)
    same = attend(q, k, v, enc, features=ones) - attend(q, k, v, RoPE(6))
    assert same.abs().max() < 64 * 30 * 2.0**-52


def test_sizes_that_do_not_fit_are_refused_with_their_numbers():
    for sizes in ({"heads": 2, "head_dim": 7, "width": 4}, {"heads": 3, "head_dim": 6, "width": 4}):
        with pytest.raises(ValueError, match=f"head_dim={sizes['head_dim']}, width=4, heads={sizes['heads']}"):
            SelectiveRoPE(**sizes)
