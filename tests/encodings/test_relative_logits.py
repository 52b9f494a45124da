"""Relative logits against a loop over pairs, Inkling's own module in transformers, and x-transformers'."""

import math

import pytest
import torch
from x_transformers.x_transformers import RelativeProjPositionalBias

from milepost import KVCache, Layout, RelativeLogits, attend
from milepost.testing import randomised_copy

EPS = 2.0**-52


def added(enc, x, at, to):
    """What it adds to the logits of all heads (B H I J), with no content in q and k."""
    q, k = (torch.zeros(x.shape[0], enc.heads, t.length, 8, dtype=x.dtype) for t in (at, to))
    features = enc.features(x, at.pos)
    return attend(q, k, k, enc, at=at, to=to, features=features, details=True).logits


@pytest.mark.parametrize("start", [0, 250, 1048500])
def test_each_logit_is_the_dot_of_mix_and_profile(start):
    enc = randomised_copy(RelativeLogits(heads=2, width=6, size=3, extent=5, floor=100, alpha=0.3))
    at, x = Layout.dense(12, start=start), torch.randn(1, 12, 6, dtype=torch.float64)
    got = added(enc, x, at, at)[0].tolist()
    mix, profiles = enc.mix.weight.detach(), enc.profiles.detach()
    for h in range(2):
        for i in range(12):
            t = 1 + 0.3 * math.log(max(1.0, (start + i + 1) / 100))
            for j in range(i + 1):
                wanted = 0.0
                if i - j < 5:
                    for r in range(3):
                        wanted += t * float(mix[3 * h + r] @ x[0, i]) * float(profiles[r, i - j])
                assert got[h][i][j] == pytest.approx(wanted, abs=64 * EPS * max(1.0, abs(wanted)))


def test_the_temperature_sharpens_the_query_as_it_does_the_bias():
    enc = randomised_copy(RelativeLogits(heads=2, width=6, size=3, extent=5, floor=4))
    q, k = (torch.randn(1, 2, 9, 8, dtype=torch.float64) for _ in range(2))
    x, at = torch.randn(1, 9, 6, dtype=torch.float64), Layout.dense(9)
    logits = attend(q, k, k, enc, at=at, features=enc.features(x, at.pos), details=True).logits
    t = torch.tensor([1 + 0.1 * math.log(max(1.0, (p + 1) / 4)) for p in range(9)], dtype=torch.float64)
    wanted = added(enc, x, at, at) + (q @ k.mT) / math.sqrt(8) * t[:, None]
    seen = torch.ones(9, 9, dtype=torch.bool).tril()
    assert (logits - wanted)[..., seen].abs().max() < 64 * EPS * 10


@pytest.mark.parametrize("queries", [40, 7, 1])
def test_the_bias_is_that_of_inkling(queries):
    from transformers.models.inkling.modeling_inkling import InklingRelativeLogits

    theirs = InklingRelativeLogits(d_rel=4, rel_extent=16)
    enc = RelativeLogits(heads=3, width=10, size=4, extent=16)
    with torch.no_grad():
        theirs.proj.normal_()
        enc.profiles.copy_(theirs.proj)
    x, at, to = torch.randn(2, queries, 10), Layout.dense(queries, start=40 - queries), Layout.dense(40)
    wanted = theirs(enc.mix(x).view(2, queries, 3, 4), at.pos[0], to.pos[0])
    got, seen = added(enc, x, at, to), at.mask(to).expand(2, 3, -1, -1)
    assert (got - wanted)[seen].abs().max() <= 8 * 2.0**-24 * wanted.abs().max()


def test_the_bias_is_that_of_x_transformers():
    theirs = RelativeProjPositionalBias(dim=10, heads=3, num_distance_basis=4, max_dist=16)
    torch.nn.init.zeros_(theirs.to_distance_weights[0].bias)  # Inkling's projection has none
    enc = RelativeLogits(heads=3, width=10, size=4, extent=16)
    with torch.no_grad():
        enc.profiles.copy_(theirs.distance_bank)
        enc.mix.weight.copy_(theirs.to_distance_weights[0].weight)
    x, at = torch.randn(2, 40, 10), Layout.dense(40)
    wanted, seen = theirs(x), at.mask(at).expand(2, 3, -1, -1)
    assert (added(enc, x, at, at) - wanted)[seen].abs().max() <= 8 * 2.0**-24 * wanted.abs().max()


def test_a_cache_keeps_none_of_its_features():
    enc = RelativeLogits(heads=2, width=6, size=3, extent=5)
    q, x = torch.randn(1, 2, 9, 8), torch.randn(1, 9, 6)
    f, cache = enc.features(x, torch.arange(9)).detach(), KVCache(enc)
    with torch.no_grad():
        whole = attend(q, q, q, enc, features=f)
        rows = [cache.decode(*[q[:, :, t : t + 1]] * 3, features=f[:, t : t + 1]) for t in range(9)]
    assert (torch.cat(rows, dim=2) - whole).abs().max() < 1e-6
    assert cache.features is None and cache._f is None


def test_a_shard_of_the_heads_equals_the_whole():
    enc = randomised_copy(RelativeLogits(heads=4, width=6, size=3, extent=5))
    q, x = torch.randn(1, 4, 9, 8, dtype=torch.float64), torch.randn(1, 9, 6, dtype=torch.float64)
    f = enc.features(x, torch.arange(9))
    shard = attend(q[:, 1:3], q[:, 1:3], q[:, 1:3], enc, features=f, first_head=1)
    assert (shard - attend(q, q, q, enc, features=f)[:, 1:3]).abs().max() < 1e-14
