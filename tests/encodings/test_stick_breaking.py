"""Stick-breaking attention against a stick that is broken key by key."""

import math

import pytest
import torch

from milepost import StickBreaking, attend, build


@pytest.mark.parametrize("current", [False, True])
def test_each_weight_is_what_is_left_when_the_nearer_keys_have_taken_theirs(current):
    q, k, v = (torch.randn(1, 2, 12, 8, dtype=torch.float64) for _ in range(3))
    done = attend(q, k, v, StickBreaking(current), details=True)
    for h in range(2):
        for i in range(12):
            stick, weights = 1.0, [0.0] * 12
            for j in range(i if current else i - 1, -1, -1):
                share = 1 / (1 + math.exp(-float(q[0, h, i] @ k[0, h, j]) / math.sqrt(8)))
                weights[j] = stick * share
                stick *= 1 - share
            assert done.weights[0, h, i].tolist() == pytest.approx(weights, abs=1e-14)
            assert sum(weights) == pytest.approx(1 - stick, abs=1e-14)
            wanted = sum(w * row for w, row in zip(weights, v[0, h], strict=True))
            assert done.output[0, h, i].tolist() == pytest.approx(wanted.tolist(), abs=1e-13)


def test_saturated_scores_give_everything_to_the_nearest_key_that_matches():
    q = torch.ones(1, 1, 4, 1, dtype=torch.float64)
    k = torch.tensor([500.0, 500.0, -500.0, 0.0], dtype=torch.float64).view(1, 1, 4, 1)
    weights = attend(q, k, k, StickBreaking(), details=True).weights[0, 0, 3].tolist()
    assert weights == pytest.approx([0.0, 1.0, 0.0, 0.0], abs=1e-200)


def test_a_softmax_is_replaced_once():
    with pytest.raises(ValueError, match="both replace it"):
        build("stick_breaking + stick_breaking(current=True)")
