"""PaTH against matrices multiplied one by one along the path."""

import math

import pytest
import torch

from milepost import KVCache, Layout, PaTH, attend
from milepost.testing import randomised_copy


def scores(enc, q, k, x):
    """q_i · H_i ... H_{j+1} k_j / sqrt(D), each H a D x D matrix."""
    D, n = enc.head_dim, x.shape[0]
    wanted = torch.full((enc.heads, n, n), float("-inf"), dtype=torch.float64)
    for h in range(enc.heads):
        matrices = []
        for t in range(n):
            w = enc.up.weight[h * D : (h + 1) * D] @ (enc.down.weight @ x[t])
            w = w / w.norm()
            b = 2 / (1 + math.exp(-float(enc.strength.weight[h] @ x[t] + enc.strength.bias[h])))
            matrices.append(torch.eye(D, dtype=torch.float64) - b * torch.outer(w, w))
        for i in range(n):
            path = torch.eye(D, dtype=torch.float64)
            for j in range(i, -1, -1):
                wanted[h, i, j] = q[h, i] @ path @ k[h, j] / math.sqrt(D)
                path = path @ matrices[j]
    return wanted


@torch.no_grad()
def test_each_score_is_the_product_of_the_matrices_between():
    enc = randomised_copy(PaTH(heads=2, head_dim=4, width=6, rank=5))
    q, k, v = (torch.randn(1, 2, 14, 4, dtype=torch.float64) for _ in range(3))
    x = torch.randn(1, 14, 6, dtype=torch.float64)
    got = attend(q, k, v, enc, features=enc.features(x, torch.arange(14)), details=True).logits[0]
    wanted = scores(enc, q[0], k[0], x[0])
    seen = wanted > float("-inf")
    assert torch.equal(got > float("-inf"), seen)
    assert (got - wanted)[seen].abs().max() < 1e-13
    assert (got - (q @ k.mT)[0] / 2)[seen].abs().max() > 0.1  # the path does something


@torch.no_grad()
def test_texts_packed_in_any_order_have_paths_of_their_own():
    enc = randomised_copy(PaTH(heads=2, head_dim=4, width=6, rank=5))
    texts = [[torch.randn(1, 2, n, 4, dtype=torch.float64) for _ in range(3)] for n in (5, 8)]
    hidden = [torch.randn(1, n, 6, dtype=torch.float64) for n in (5, 8)]
    alone = [
        attend(*t, enc, features=enc.features(x, torch.arange(x.shape[1]))) for t, x in zip(texts, hidden, strict=True)
    ]
    order = torch.randperm(13)
    at = Layout.packed([5, 8]).take(order)
    q, k, v = (torch.cat(parts, dim=2)[:, :, order] for parts in zip(*texts, strict=True))
    mixed = attend(q, k, v, enc, at=at, features=enc.features(torch.cat(hidden, dim=1)[:, order], at.pos))
    assert (mixed - torch.cat(alone, dim=2)[:, :, order]).abs().max() < 1e-13


@torch.no_grad()
def test_a_decode_is_the_rank_one_update_of_every_key():
    """The paper's recurrence: each new token multiplies all cached keys by its matrix."""
    enc = randomised_copy(PaTH(heads=1, head_dim=4, width=6, rank=5))
    q, k, v = (torch.randn(1, 1, 10, 4, dtype=torch.float64) for _ in range(3))
    f = enc.features(torch.randn(1, 10, 6, dtype=torch.float64), torch.arange(10))
    cache, held = KVCache(enc), torch.zeros(0, 4, dtype=torch.float64)
    for t in range(10):
        w, b = f[0, t, :4], f[0, t, 4]
        held = torch.cat([held - b * torch.outer(held @ w, w), k[0, 0, t : t + 1]])
        weights = torch.softmax(held @ q[0, 0, t] / 2, dim=0)
        row = cache.decode(*(s[:, :, t : t + 1] for s in (q, k, v)), features=f[:, t : t + 1])
        assert row[0, 0, 0].tolist() == pytest.approx((weights @ v[0, 0, : t + 1]).tolist(), abs=1e-13)
