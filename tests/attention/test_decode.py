"""KVCache.decode: one call a token gives what the steps give, whatever way it goes inside."""

from contextlib import nullcontext

import pytest
import torch

from milepost import KVCache, Layout, attend, build
from milepost.attention.lanes.content_lane import ContentLane
from milepost.attention.lanes.lane import Lane
from milepost.encodings import NAMES
from milepost.testing import randomised_copy
from milepost.testing.layer import draw_features

SIZES = {"heads": 4, "head_dim": 8, "width": 16, "length": 4096}


def text(n, batch=1, heads=4, groups=4, dtype=torch.float64):
    generator = torch.Generator().manual_seed(n)
    return [
        torch.randn(batch, h, n, 8, generator=generator, dtype=torch.float64).to(dtype) for h in (heads, groups, groups)
    ]


def read(cache, q, k, v, first):
    """The text through the cache: ``first`` tokens at once, the rest one by one."""
    cuts, f = [slice(0, first)] + [slice(n, n + 1) for n in range(first, q.shape[2])], features(cache.rule, q)
    parts = [
        cache.decode(q[:, :, c], k[:, :, c], v[:, :, c], features=None if f is None else f[:, c].clone()) for c in cuts
    ]
    return torch.cat(parts, dim=2)


def features(enc, q):
    """Of random hidden states, where the encoding asks for them."""
    dtype = next((p.dtype for p in enc.parameters()), q.dtype)
    return draw_features(enc, q.shape[0], Layout.dense(q.shape[2]), dtype=dtype)[1]


def full(enc, q, k, v):
    if enc.length_dependent:
        return attend(q, k, v, enc)
    at = Layout.dense(q.shape[2])
    return attend(q, k, v, enc, at=at, features=features(enc, q))


@pytest.fixture
def short_ways(monkeypatch):
    """How many tokens went through a lane."""
    taken = []
    for lane in (Lane, ContentLane):
        token = lane.token
        monkeypatch.setattr(lane, "token", lambda self, *a, token=token: taken.append(a[-1]) or token(self, *a))
    return taken


@pytest.mark.parametrize("groups", [4, 2, 1])
@pytest.mark.parametrize("name", list(NAMES))
@torch.no_grad()
def test_decode_equals_one_pass_for_every_encoding(name, groups):
    spec = f"{name}(key_heads={groups})" if name in ("fope", "grape") else name  # their tables are of key heads
    enc = randomised_copy(build(spec, **SIZES))
    n = 150 if name == "path" else 600  # path takes O(N^3)
    q, k, v = text(n, batch=2, groups=groups)
    found = read(KVCache(enc, capacity=16), q, k, v, first=37)
    assert (found - full(enc, q, k, v)).abs().max() < 2.0**-52 * 64 * n


SUMS = (
    "rope + alibi",
    "alibi + t5",
    "rope + temperature(length=16) + kerple",
    "temperature(length=50, form='logn') + rope",
    "rope + fox",
    "rope(scaling=staged(trained=100)) + alibi",
)


@pytest.mark.parametrize("groups", [4, 1])
@pytest.mark.parametrize("name", [*SUMS, "fox + alibi", "rope + rope(base=50)", "rope + shaw"])
@torch.no_grad()
def test_decode_of_a_sum_equals_one_pass(name, groups):
    enc = randomised_copy(build(name, **SIZES))
    q, k, v = text(600, batch=2, groups=groups)
    found = read(KVCache(enc, capacity=16), q, k, v, first=37)
    assert (found - full(enc, q, k, v)).abs().max() < 2.0**-52 * 64 * 600


@pytest.mark.parametrize(
    "name",
    ["rope", "alibi", "t5", "kerple", "sandwich", "nope", "learned", "fox", "rope(scaling=staged(trained=100))", *SUMS],
)
@torch.no_grad()
def test_most_tokens_go_the_short_way(name, short_ways):
    q, k, v = text(600)
    read(KVCache(build(name, **SIZES)), q, k, v, first=10)
    assert len(short_ways) > 580


CONTENT = ("shaw", "shaw(values=True)", "transformer_xl", "deberta", "deberta(buckets=None, span=20)", "fire", "cope")


@pytest.mark.parametrize("groups", [4, 1])
@pytest.mark.parametrize("name", CONTENT)
@torch.no_grad()
def test_content_goes_the_short_way_and_is_one_pass(name, groups, short_ways):
    enc = randomised_copy(build(name, **SIZES))
    q, k, v = text(600, batch=2, groups=groups)
    found = read(KVCache(enc, capacity=16), q, k, v, first=3)
    assert (found - full(enc, q, k, v)).abs().max() < 2.0**-52 * 64 * 600
    assert len(short_ways) > 580


@torch.no_grad()
def test_a_subclass_that_meets_content_otherwise_is_decoded_by_its_own_hooks():
    class Doubled(type(build("shaw", **SIZES))):
        def rescore(self, s, q, k, i, j):
            return s + 2 * (super().rescore(s, q, k, i, j) - s)

    enc = Doubled(4, 8)
    q, k, v = text(100)
    found = read(KVCache(enc), q, k, v, first=3)
    assert (found - full(enc, q, k, v)).abs().max() < 1e-12
    assert (found - read(KVCache(build("shaw", **SIZES)), q, k, v, first=3)).abs().max() > 1e-3


MAPS = [
    "self_extend(rope=rope)",
    "rerope(rope=rope)",
    "dual_chunk(rope=rope, chunk=24, local=8)",
    "streaming(rope=rope)",
]


@pytest.mark.parametrize("name", [*NAMES, *MAPS, "rope(scaling=dynamic(factor=4.0, trained=16))"])
@torch.no_grad()
def test_a_text_that_was_begun_in_inference_mode_goes_on_outside_of_it(name):
    """By the short way, which has tables and copies of its own, and by the long one."""
    enc = randomised_copy(build(name, **SIZES))
    q, k, v = text(56)
    f = features(enc, q)

    def read_on(mode):
        cache, parts = KVCache(enc, capacity=64), []
        for around, cuts in (
            (mode, [(0, 40), (40, 41), (41, 42)]),
            (nullcontext(), [(n, n + 1) for n in range(42, 56)]),
        ):
            with around:
                for a, b in cuts:
                    some = None if f is None else f[:, a:b].clone()
                    parts.append(cache.decode(q[:, :, a:b], k[:, :, a:b], v[:, :, a:b], features=some))
        return torch.cat(parts, dim=2)

    assert torch.equal(read_on(torch.inference_mode()), read_on(nullcontext()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["rope", "alibi", "t5", "fox", "shaw", "deberta", "fire"])
@torch.no_grad()
def test_decode_in_low_precision_is_the_steps_in_low_precision(name, dtype):
    enc = randomised_copy(build(name, **SIZES))
    q, k, v = text(400, dtype=dtype)
    exact = full(enc.double(), *text(400))
    found = read(KVCache(enc), q, k, v, first=9)
    assert found.dtype == dtype
    assert (found.double() - exact).abs().max() < 16 * torch.finfo(dtype).eps * v.abs().max()


@pytest.mark.parametrize("policy", ["staged", "recompute", "frozen", "hf"])
@torch.no_grad()
def test_every_policy_decodes_as_its_steps_do(policy):
    enc = build("rope(scaling=dynamic(trained=40))", **SIZES)
    q, k, v = text(200)
    how = {"policy": policy, "length": 150 if policy == "frozen" else None}
    one, two, steps = KVCache(enc, **how), KVCache(enc, **how), []
    found = read(one, q, k, v, first=20)
    for cut in [slice(0, 20)] + [slice(n, n + 1) for n in range(20, 200)]:
        at = two.next(cut.stop - cut.start)
        keys, values, to = two.append(k[:, :, cut], v[:, :, cut], at)
        steps.append(attend(q[:, :, cut], keys, values, enc, at=at, to=to))
    assert (found - torch.cat(steps, dim=2)).abs().max() < 1e-12
    assert torch.equal(one.layout.index, two.layout.index) and (one.k - two.k).abs().max() < 1e-12


@torch.no_grad()
def test_a_temperature_is_the_querys_in_the_short_way_too(monkeypatch, short_ways):
    from dataclasses import replace

    enc = build("rope", head_dim=8)
    enc.spectrum = replace(enc.spectrum, temperature=1.7)
    q, k, v = text(100)
    assert (read(KVCache(enc), q, k, v, first=10) - full(enc, q, k, v)).abs().max() < 1e-12
    assert short_ways


@pytest.mark.parametrize("name", ["rope", "shaw", "fire"])
@torch.no_grad()
def test_what_changes_the_cache_between_two_tokens_is_seen(name, short_ways):
    enc = build(name, **SIZES)
    q, k, v = text(120, batch=2)

    def after(change, cache):
        read(cache, q[:, :, :90], k[:, :, :90], v[:, :, :90], first=20)
        change(cache)
        cut = slice(90, 120)
        return read(cache, q[:, :, cut], k[:, :, cut], v[:, :, cut], first=1)

    changes = [
        lambda c: c.evict(sinks=4, window=30),
        lambda c: c.reorder(torch.tensor([1, 0])),
        lambda c: c.shift(7),
        lambda c: c.append(k[:, :, :3], v[:, :, :3]),
    ]
    for change in changes:
        quick = after(change, KVCache(enc))
        before = len(short_ways)
        slow = KVCache(enc)
        slow._open_lane = lambda *a: None
        assert (quick - after(change, slow)).abs().max() < 1e-12
        assert len(short_ways) == before, "the slow cache took the short way: nothing was compared"


@pytest.mark.parametrize("name", ["t5", *CONTENT])
@torch.no_grad()
def test_a_number_that_is_written_to_during_a_decode_is_the_new_one(name):
    enc = randomised_copy(build(name, **SIZES))
    q, k, v = text(60)
    cache = KVCache(enc)
    read(cache, q[:, :, :50], k[:, :, :50], v[:, :, :50], first=20)
    for parameter in enc.parameters():
        parameter.data.mul_(-3)
    cut = slice(50, 60)
    found = read(cache, q[:, :, cut], k[:, :, cut], v[:, :, cut], first=1)
    assert (found - full(enc, q, k, v)[:, :, 50:]).abs().max() < 1e-12


@pytest.mark.parametrize("name", ["rope", "shaw", "fire"])
@torch.no_grad()
def test_a_token_of_another_scale_is_scaled_by_its_own(name, short_ways):
    enc = randomised_copy(build(name, **SIZES))
    q, k, v = text(40)
    quick, slow = KVCache(enc), KVCache(enc)
    slow._open_lane = lambda *a: None
    for cache in (quick, slow):
        read(cache, q[:, :, :39], k[:, :, :39], v[:, :, :39], first=10)
    assert short_ways
    last = [t[:, :, 39:] for t in (q, k, v)]
    usual, found = attend(*last[:1], k, v, enc, at=Layout.decode(39)), quick.decode(*last, scale=1.5)
    assert (found - slow.decode(*last, scale=1.5)).abs().max() < 1e-12 < (found - usual).abs().max()


@pytest.mark.parametrize("warm", [0, 30])
@torch.no_grad()
def test_what_is_refused_changes_nothing(warm):
    cache = KVCache(build("alibi", heads=4), limit=40)
    q, k, v = text(50)
    if warm:
        read(cache, q[:, :, :warm], k[:, :, :warm], v[:, :, :warm], first=10)
    one = [t[:, :, :1] for t in (q, k, v)]
    bad = [
        (one[0][:, :3], one[1], one[2]),  # heads that do not share keys evenly, and are not the encoding's
        (one[0].float(), one[1], one[2]),
        (one[0][0], one[1], one[2]),
        (one[0], one[1], one[2][:, :2]),
        (one[0][..., :6], one[1], one[2]),
        (q[:, :, :2], one[1], one[2]),
        (q, k, v),  # 50 tokens where 40 may be
    ]
    for given in bad:
        with pytest.raises(ValueError):
            cache.decode(*given)
        assert len(cache) == warm
    with torch.enable_grad(), pytest.raises(ValueError, match="gradients would be lost"):
        cache.decode(one[0], one[1].clone().requires_grad_(), one[2])
    assert len(cache) == warm
    assert cache.decode(*one).shape == (1, 4, 1, 8) and len(cache) == warm + 1


@torch.no_grad()
def test_a_cache_that_may_hold_no_more_says_so_on_the_short_way_too():
    cache = KVCache(build("rope", head_dim=8), limit=40)
    q, k, v = text(41)
    read(cache, q[:, :, :40], k[:, :, :40], v[:, :, :40], first=10)
    with pytest.raises(ValueError, match="evict first"):
        cache.decode(q[:, :, 40:], k[:, :, 40:], v[:, :, 40:])
    assert len(cache) == 40
