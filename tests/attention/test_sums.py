"""Sums of any two encodings: what "auto" chooses gives the reference's numbers, and so does a text read by steps.

A fast path that knows one point of an encoding and passes over another would be wrong in a sum alone.
"""

from __future__ import annotations

from itertools import combinations

import pytest
import torch

from milepost import KVCache, Layout, attend, build

HEADS, HEAD_DIM, LENGTH = 2, 8, 40
PARTS = (
    "rope", "temperature(length=16)", "alibi", "t5", "fire", "shaw", "transformer_xl", "cope", "fox", "relative_logits",
    "selective_rope", "vo_rope", "dape", "stick_breaking",
)  # fmt: skip
SIZES = {"heads": HEADS, "head_dim": HEAD_DIM, "width": 16}


def made(first: str, second: str):
    """The sum with numbers in all of its tables, or None where a sum of these two is refused."""
    try:
        enc = build(f"{first} + {second}", **SIZES).double()
    except ValueError:
        return None
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in enc.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 4)
    return enc


@pytest.mark.parametrize(("first", "second"), list(combinations(PARTS, 2)))
def test_a_sum_is_the_same_by_every_way(first, second):
    enc = made(first, second)
    if enc is None:
        assert {first, second} & {"selective_rope", "dape", "stick_breaking"}, "only these are refused in sums"
        return
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, HEADS, LENGTH, HEAD_DIM, generator=generator, dtype=torch.float64) for _ in range(3))
    x, at = torch.randn(1, LENGTH, 16, generator=generator, dtype=torch.float64), Layout.dense(LENGTH)
    with torch.no_grad():
        features = enc.features(x, at.pos) if enc.feature_count else None
        expected = attend(q, k, v, enc, at=at, features=features, backend="reference")
        torch.testing.assert_close(attend(q, k, v, enc, at=at, features=features), expected, rtol=1e-9, atol=1e-9)
        cache, steps = KVCache(enc), []
        for n in range(LENGTH):
            token = slice(n, n + 1)
            given = {} if features is None else {"features": features[:, token]}
            steps.append(cache.decode(q[:, :, token], k[:, :, token], v[:, :, token], **given))
    torch.testing.assert_close(torch.cat(steps, dim=2), expected, rtol=1e-9, atol=1e-9)
