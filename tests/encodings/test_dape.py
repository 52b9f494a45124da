"""DAPE against a network run pair by pair, over biases written out."""

import math

import pytest
import torch

from milepost import DAPE, KERPLE, attend
from milepost.testing import randomised_copy


@torch.no_grad()
def test_each_logit_is_score_and_bias_and_what_the_network_makes_of_all_heads():
    H, n = 3, 7
    enc = randomised_copy(DAPE(H, hidden=5))
    q, k = (torch.randn(1, H, n, 4, dtype=torch.float64) for _ in range(2))
    got = attend(q, k, k, enc, details=True).logits[0]
    state = {name: value.tolist() for name, value in enc.state_dict().items()}
    for i in range(n):
        for j in range(i + 1):
            a = [float(q[0, h, i] @ k[0, h, j]) / 2 for h in range(H)]
            b = [-max(state["p"][h], 0.01) * math.log(1 + max(state["a"][h], 0.01) * (i - j)) for h in range(H)]
            inner = []
            for row, shift in zip(state["inner.weight"], state["inner.bias"], strict=True):
                z = shift + sum(w * value for w, value in zip(row, a + b, strict=True))
                inner.append(z if z > 0 else 0.01 * z)
            for h in range(H):
                more = sum(w * value for w, value in zip(state["outer.weight"][h], inner, strict=True))
                wanted = a[h] + b[h] + more + state["outer.bias"][h]
                assert float(got[h, i, j]) == pytest.approx(wanted, abs=1e-13)


@torch.no_grad()
def test_a_silent_network_leaves_kerple():
    enc, beneath = DAPE(4).double(), KERPLE(4).double()
    beneath.load_state_dict({"a": enc.a, "p": enc.p})
    torch.nn.init.zeros_(enc.outer.weight)
    torch.nn.init.zeros_(enc.outer.bias)
    q, k, v = (torch.randn(1, 4, 20, 8, dtype=torch.float64) for _ in range(3))
    assert (attend(q, k, v, enc) - attend(q, k, v, beneath)).abs().max() < 1e-13
