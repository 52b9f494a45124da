"""DAPE against a network run pair by pair, over biases written out."""

import math

import pytest
import torch

from milepost import DAPE, attend
from milepost.encodings.alibi import slopes
from milepost.testing import randomised_copy


@pytest.mark.parametrize("over", ["kerple", "alibi"])
@torch.no_grad()
def test_each_logit_is_score_and_bias_and_what_the_network_makes_of_all_heads(over):
    H, n = 3, 7
    enc = randomised_copy(DAPE(H, hidden=5, over=over))
    q, k = (torch.randn(1, H, n, 4, dtype=torch.float64) for _ in range(2))
    got = attend(q, k, k, enc, details=True).logits[0]
    state = {name: value.tolist() for name, value in enc.state_dict().items()}
    for i in range(n):
        for j in range(i + 1):
            a = [float(q[0, h, i] @ k[0, h, j]) / 2 for h in range(H)]
            if over == "alibi":
                b = [-slopes(H)[h] * (i - j) for h in range(H)]
            else:
                r1, r2 = (t.flatten() for t in enc.beneath.parameters())
                b = enc.beneath.bias(torch.arange(H), torch.tensor(i), torch.tensor(j)).flatten().tolist()
                assert len(r1) == len(r2) == H and all(value <= 0 for value in b)
            for h in range(H):
                inner = []
                for row, shift in zip(state["inner.weight"], state["inner.bias"], strict=True):
                    z = shift + sum(w * value for w, value in zip(row, a + b, strict=True))
                    inner.append(z if z > 0 else 0.01 * z)
                more = state["outer.bias"][h] + sum(
                    w * value for w, value in zip(state["outer.weight"][h], inner, strict=True)
                )
                assert float(got[h, i, j]) == pytest.approx(a[h] + b[h] + more, abs=1e-13)


@torch.no_grad()
def test_a_silent_network_leaves_the_bias_beneath():
    enc = DAPE(4, over="alibi").double()
    torch.nn.init.zeros_(enc.outer.weight)
    torch.nn.init.zeros_(enc.outer.bias)
    q, k, v = (torch.randn(1, 4, 20, 8, dtype=torch.float64) for _ in range(3))
    assert (attend(q, k, v, enc) - attend(q, k, v, enc.beneath)).abs().max() < 1e-13
    assert math.isclose(enc.beneath.past_slopes[0], 0.25)
