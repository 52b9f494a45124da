"""KVCache: any way of reading a text through it gives what one pass gives; and nothing is lost when something is
refused.
"""

import pytest
import torch

from milepost import KVCache, Layout, RoPE, attend, build
from milepost.attention.lengths import staged
from milepost.encodings import NAMES
from milepost.testing import randomised_copy
from milepost.testing.layer import both, draw_features

SIZES = {"heads": 2, "head_dim": 8, "width": 16, "length": 4096}


def through(cache, enc, q, k, v, steps):
    """The outputs of a text read in these steps."""
    out, t, f = [], 0, draw_features(enc, q.shape[0], Layout.dense(q.shape[2]))[1]
    for step in steps:
        at = cache.next(step)
        some = None if f is None else f[:, t : t + step]
        keys, values, to = cache.append(k[:, :, t : t + step], v[:, :, t : t + step], at, features=some)
        numbers = both(some, cache.features)
        out.append(attend(q[:, :, t : t + step], keys, values, enc, at=at, to=to, features=numbers))
        t += step
    return torch.cat(out, dim=2)


def text(n, batch=1, groups=2):
    generator = torch.Generator().manual_seed(n)
    return [torch.randn(batch, g, n, 8, generator=generator, dtype=torch.float64) for g in (2, groups, groups)]


def full(enc, q, k, v):
    at = Layout.dense(q.shape[2])
    return attend(q, k, v, enc, at=at, features=draw_features(enc, q.shape[0], at)[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", list(NAMES))
def test_a_decode_of_a_thousand_tokens_equals_the_full_pass(name):
    enc = randomised_copy(build(name, **SIZES))
    n = 300 if name == "path" else 1000  # path takes O(N^3)
    q, k, v = text(n)
    with torch.no_grad():
        found = through(KVCache(enc, capacity=16), enc, q, k, v, [100] + [1] * (n - 100))
        assert (found - full(enc, q, k, v)).abs().max() < 2.0**-52 * 64 * n


@pytest.mark.parametrize("trained", [16, 31, 33])
@pytest.mark.parametrize(
    "spec",
    [
        "rope(scaling=staged(trained={}))",
        "rope(pairing='interleaved', rotary=4, scaling=staged(trained={}, factor=2.0))",
        "rope(scaling=staged(trained={})) + alibi",
    ],
)
def test_staged_scaling_is_exact_at_stage_boundaries_in_any_steps(spec, trained):
    enc = build(spec.format(trained), heads=2, head_dim=8)
    n = 4 * trained + 3
    q, k, v = text(n, batch=2)
    whole = attend(q, k, v, enc)
    ways = [
        [1] * n,
        [trained - 1, 1, 1, 1, n - trained - 2],
        [trained, trained, 1, n - 2 * trained - 1],
        [n],
        [2 * trained + 1, n - 2 * trained - 1],
    ]
    for steps in ways:
        assert (through(KVCache(enc, capacity=3), enc, q, k, v, steps) - whole).abs().max() < 2.0**-52 * 64 * n, steps


def test_a_staged_prefix_does_not_depend_on_what_follows():
    enc = build("rope(scaling=staged(trained=16))", head_dim=8)
    q, k, v = text(100)
    whole = attend(q, k, v, enc)
    for n in (15, 16, 17, 32, 33, 64, 65, 99):
        assert (attend(q[:, :, :n], k[:, :, :n], v[:, :, :n], enc) - whole[:, :, :n]).abs().max() < 1e-12


def test_staged_equals_plain_rope_inside_the_trained_length_to_the_bit():
    q, k, v = text(16)
    plain, by_stages = RoPE(head_dim=8), build("rope(scaling=staged(trained=16))", head_dim=8)
    assert torch.equal(attend(q, k, v, by_stages), full(plain, q, k, v))
    q, k, v = text(17)
    assert not torch.equal(attend(q, k, v, by_stages)[:, :, 16], full(plain, q, k, v)[:, :, 16])


def test_a_stage_turns_as_dynamic_ntk_for_its_length():
    q, k, v = text(50)
    enc = build("rope(scaling=staged(trained=16, factor=2.0))", head_dim=8)
    whole = attend(q, k, v, enc)
    for first, last, length in ((0, 15, 16), (16, 31, 32), (32, 49, 64)):
        by_hand = full(build(f"rope(scaling=dynamic(trained=16, factor=2.0, length={length}))", head_dim=8), q, k, v)
        assert (whole[:, :, first : last + 1] - by_hand[:, :, first : last + 1]).abs().max() < 1e-12


def test_a_dynamic_encoding_is_run_staged_by_a_cache_unless_told():
    enc = build("rope(scaling=dynamic(trained=16, factor=2.0))", head_dim=8)
    q, k, v = text(70)
    found = through(KVCache(enc), enc, q, k, v, [20] + [1] * 50)
    assert (found - attend(q, k, v, staged(enc))).abs().max() < 1e-12


def test_recompute_gives_each_newest_token_what_a_pass_at_its_length_gives():
    enc = build("rope(scaling=dynamic(trained=16, factor=2.0))", head_dim=8)
    q, k, v = text(60)
    found = through(KVCache(enc, policy="recompute"), enc, q, k, v, [1] * 60)
    for n in (10, 16, 17, 40, 60):
        assert (
            found[:, :, n - 1] - attend(q[:, :, :n], k[:, :, :n], v[:, :, :n], enc)[:, :, n - 1]
        ).abs().max() < 1e-12


def test_frozen_is_the_plain_encoding_of_the_declared_length():
    enc = build("rope(scaling=dynamic(trained=16, factor=2.0))", head_dim=8)
    q, k, v = text(60)
    found = through(KVCache(enc, policy="frozen", length=60), enc, q, k, v, [7] + [1] * 53)
    assert (found - full(enc.at(60), q, k, v)).abs().max() < 1e-12


def test_hf_keeps_keys_stale_and_the_difference_is_large():
    enc = build("rope(scaling=dynamic(trained=16, factor=2.0))", head_dim=8)
    q, k, v = (4 * t for t in text(60))
    found = through(KVCache(enc, policy="hf"), enc, q, k, v, [1] * 60)
    fresh = through(KVCache(enc, policy="recompute"), enc, q, k, v, [1] * 60)
    assert (found[:, :, :16] - fresh[:, :, :16]).abs().max() < 1e-12
    assert (found[:, :, 40:] - fresh[:, :, 40:]).abs().max() > 1e-2


def test_dynamic_without_a_cache_scales_each_row_for_its_own_length():
    enc = build("rope(scaling=dynamic(trained=8, factor=2.0))", head_dim=8)
    q, k, v = text(30, batch=2)
    mask = torch.ones(2, 30, dtype=torch.bool)
    mask[0, :18] = False
    both = attend(q, k, v, enc, at=Layout.padded(mask))
    short = attend(q[:1, :, 18:], k[:1, :, 18:], v[:1, :, 18:], enc)
    long = attend(q[1:], k[1:], v[1:], enc)
    assert (both[:1, :, 18:] - short).abs().max() < 1e-12 and (both[1:] - long).abs().max() < 1e-12
    packed = attend(q[:1], k[:1], v[:1], enc, at=Layout.packed([12, 18]))
    assert (packed[:, :, :12] - attend(q[:1, :, :12], k[:1, :, :12], v[:1, :, :12], enc)).abs().max() < 1e-12


def test_lengths_in_any_order_give_the_same_numbers():
    enc = build("rope(scaling=dynamic(trained=16, factor=2.0))", head_dim=8)
    q, k, v = text(100)
    first = {n: attend(q[:, :, :n], k[:, :, :n], v[:, :, :n], enc) for n in (100, 8, 40, 16, 17)}
    for n in (16, 40, 100, 17, 8):
        assert torch.equal(attend(q[:, :, :n], k[:, :, :n], v[:, :, :n], enc), first[n])


def test_left_padded_rows_go_on_from_their_own_ends():
    enc = build("rope + alibi", heads=2, head_dim=8)
    q, k, v = text(24, batch=2)
    mask = torch.ones(2, 20, dtype=torch.bool)
    mask[0, :6] = False
    at = Layout.padded(mask)
    cache = KVCache(enc)
    keys, values, to = cache.append(k[:, :, :20], v[:, :, :20], at)
    for t in range(20, 24):
        here = cache.next()
        keys, values, to = cache.append(k[:, :, t : t + 1], v[:, :, t : t + 1], here)
        row = attend(q[:, :, t : t + 1], keys, values, enc, at=here, to=to)
        for b, start in ((0, 6), (1, 0)):
            alone = full(enc, *(x[b : b + 1, :, start : t + 1] for x in (q, k, v)))
            assert (row[b : b + 1] - alone[:, :, -1:]).abs().max() < 1e-12


def test_beams_are_reordered_with_their_layout():
    enc = build("alibi", heads=2)
    _, k, v = text(12, batch=3)
    mask = torch.ones(3, 12, dtype=torch.bool)
    mask[1, :4] = False
    cache = KVCache(enc)
    cache.append(k, v, Layout.padded(mask))
    beams = torch.tensor([1, 1, 0])
    cache.reorder(beams)
    at = cache.next()
    assert at.index[:, 0].tolist() == [8, 8, 12]
    more = torch.randn(3, 2, 1, 8, dtype=torch.float64)
    keys, values, to = cache.append(more, more, at)
    out = attend(more, keys, values, enc, at=at, to=to)
    for b, source in enumerate(beams.tolist()):
        start = 4 if source == 1 else 0
        kk, vv = (torch.cat([x[source : source + 1, :, start:], more[b : b + 1]], dim=2) for x in (k, v))
        alone = attend(more[b : b + 1], kk, vv, enc)
        assert (out[b : b + 1] - alone).abs().max() < 1e-12
    with pytest.raises(ValueError, match="from 0 to 2"):
        cache.reorder(torch.tensor([0, 3]))


@pytest.mark.parametrize("spec", ["rope", "alibi", "rope(scaling=staged(trained=16))", "t5", "temperature(length=8)"])
def test_eviction_leaves_what_a_text_without_the_evicted_tokens_would_hold(spec):
    enc = randomised_copy(build(spec, heads=2, head_dim=8))
    q, k, v = text(40)
    kept = torch.cat([torch.arange(4), torch.arange(24, 40)])
    cache = KVCache(enc)
    through(cache, enc, q, k, v, [40])
    assert cache.evict(sinks=4, window=16) == 20 and len(cache) == 20
    at = cache.next()
    assert at.index.tolist() == [[20]]
    new = torch.randn(1, 2, 1, 8, dtype=torch.float64)
    keys, values, to = cache.append(new, new, at)
    found = attend(new, keys, values, enc, at=at, to=to)
    again = KVCache(enc)
    joined = [torch.cat([x[:, :, kept], new], dim=2) for x in (q, k, v)]
    wanted = through(again, enc, *joined, [21])[:, :, -1:]
    assert (found - wanted).abs().max() < 1e-12


def test_a_shift_turns_keys_to_their_new_places():
    enc = RoPE(head_dim=8)
    q, k, v = text(10)
    cache = KVCache(enc)
    through(cache, enc, q, k, v, [10])
    cache.shift(100000)
    at = cache.next()
    assert at.index.tolist() == [[100010]]
    assert (cache.k - enc.key(k, torch.arange(100000, 100010))).abs().max() < 2.0**-52 * 64 * 100010
    with pytest.raises(ValueError, match="first token at index -1"):
        cache.shift(-100001)


def test_what_can_not_be_turned_again_is_refused_and_nothing_changes():
    enc = build("learned", **SIZES)
    cache = KVCache(enc)
    _, k, v = text(10)
    cache.append(k, v)
    with pytest.raises(ValueError, match="mixes positions into the embeddings"):
        cache.shift(3)
    assert len(cache) == 10 and torch.equal(cache.k, k)


def test_capacity_doubles_and_holds_what_was_there():
    cache = KVCache(capacity=4)
    _, k, v = text(21)
    for t in range(21):
        cache.append(k[:, :, t : t + 1], v[:, :, t : t + 1])
    assert torch.equal(cache.k, k) and torch.equal(cache.v, v)
    assert cache._k.shape[2] == 32


BAD = {
    "more than the cache may hold": lambda c, k, v: c.append(k, v),
    "the cache holds keys of shape": lambda c, k, v: c.append(k[:, :1, :1], v[:, :1, :1]),
    "the cache holds keys in torch.float64": lambda c, k, v: c.append(k[:, :, :1].float(), v[:, :, :1].float()),
    "new ones must come after it": lambda c, k, v: c.append(k[:, :, :1], v[:, :, :1], Layout.dense(1, start=4)),
    "the layout is of 1 x 3": lambda c, k, v: c.append(k[:, :, :1], v[:, :, :1], Layout.dense(3, start=10)),
    "must have shapes": lambda c, k, v: c.append(k[:, :, :1], v[:, :, :2]),
}


@pytest.mark.parametrize("reason", list(BAD))
def test_a_refused_append_leaves_the_cache_as_it_was(reason):
    cache = KVCache(build("alibi", heads=2), limit=12)
    _, k, v = text(10)
    cache.append(k, v)
    with pytest.raises(ValueError, match=reason):
        BAD[reason](cache, k, v)
    assert len(cache) == 10 and torch.equal(cache.k, k) and torch.equal(cache.v, v)
    cache.append(k[:, :, :2], v[:, :, :2])
    assert len(cache) == 12


def test_keys_of_another_encoding_are_refused():
    cache = KVCache(RoPE(head_dim=8))
    q, k, v = text(5)
    keys, values, to = cache.append(k, v)
    with pytest.raises(ValueError, match="from a cache made for rope"):
        attend(q, keys, values, RoPE(head_dim=8, base=5e5), at=Layout.dense(5), to=to)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"policy": "fast"}, "policy must be"),
        ({"policy": "frozen"}, "wants length="),
        ({"length": 5}, "wants length="),
        ({"capacity": 0}, "at least 1"),
        ({"limit": 0}, "at least 1"),
    ],
)
def test_wrong_settings_are_refused(given, reason):
    with pytest.raises(ValueError, match=reason):
        KVCache(RoPE(head_dim=8), **given)


def test_a_table_of_biases_kept_for_decoding_follows_changed_parameters():
    enc = build("t5", heads=2)
    q, k, v = (torch.randn(1, 2, n, 8) for n in (1, 30, 30))
    at, to = Layout.dense(1, start=29), Layout.dense(30)
    with torch.no_grad():
        attend(q, k, v, enc, at=at, to=to)
        enc.table.add_(torch.randn_like(enc.table))
        assert torch.allclose(
            attend(q, k, v, enc, at=at, to=to), attend(q, k, v, enc, at=at, to=to, backend="reference"), atol=1e-6
        )
    slopes = build("alibi", heads=2)
    with torch.no_grad():
        attend(q, k, v, slopes, at=at, to=to)
        slopes.past_slopes.mul_(3)
        assert torch.allclose(
            attend(q, k, v, slopes, at=at, to=to), attend(q, k, v, slopes, at=at, to=to, backend="reference"), atol=1e-6
        )


def test_a_refused_append_at_a_new_stage_leaves_the_old_stage():
    enc = build("rope(scaling=staged(trained=8))", head_dim=8)
    q, k, v = text(30)
    cache = KVCache(enc)
    through(cache, enc, q, k, v, [8])
    wide = torch.randn(1, 2, 2, 12, dtype=torch.float64)
    with pytest.raises(ValueError, match="the cache holds keys of shape"):
        cache.append(wide, wide)
    assert cache.stage == 0 and len(cache) == 8
    whole, out = attend(q, k, v, enc), []
    for t in range(8, 30):
        at = cache.next()
        keys, values, to = cache.append(k[:, :, t : t + 1], v[:, :, t : t + 1], at)
        out.append(attend(q[:, :, t : t + 1], keys, values, enc, at=at, to=to))
    assert (torch.cat(out, dim=2) - whole[:, :, 8:]).abs().max() < 1e-12


def test_rows_of_different_lengths_each_turn_by_their_own_stage():
    enc = build("rope(scaling=staged(trained=8))", head_dim=8)
    q, k, v = text(24, batch=2)
    mask = torch.ones(2, 20, dtype=torch.bool)
    mask[0, :14] = False
    cache = KVCache(enc)
    cache.append(k[:, :, :20], v[:, :, :20], Layout.padded(mask))
    for t in range(20, 24):
        at = cache.next()
        keys, values, to = cache.append(k[:, :, t : t + 1], v[:, :, t : t + 1], at)
        row = attend(q[:, :, t : t + 1], keys, values, enc, at=at, to=to)
        for b, start in ((0, 14), (1, 0)):
            alone = attend(*(x[b : b + 1, :, start : t + 1] for x in (q, k, v)), enc)
            assert (row[b : b + 1] - alone[:, :, -1:]).abs().max() < 1e-12


@pytest.mark.parametrize("spec", ["rope", "alibi", "rope(scaling=dynamic(factor=4.0, trained=16))"])
@pytest.mark.parametrize("policy", ["staged", "recompute"])
def test_a_cache_filled_in_inference_mode_is_used_outside_of_it(spec, policy):
    """A prefix read once under inference_mode, and a text that goes on without it."""
    enc = build(spec, heads=4, head_dim=16)
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 4, 40, 16), torch.randn(2, 2, 40, 16), torch.randn(2, 2, 40, 16)

    def read(mode):
        cache, parts = KVCache(enc, capacity=8, policy=policy), []
        with mode:
            parts += [cache.decode(q[:, :, a:b], k[:, :, a:b], v[:, :, a:b]) for a, b in ((0, 10), (10, 11), (11, 12))]
            cache.reorder(torch.tensor([1, 0]))
        parts += [cache.decode(q[:, :, t : t + 1], k[:, :, t : t + 1], v[:, :, t : t + 1]) for t in range(12, 20)]
        at = cache.next(4)
        keys, values, to = cache.append(k[:, :, 20:24], v[:, :, 20:24], at)
        learned = q[:, :, 20:24].clone().requires_grad_()
        attend(learned, keys, values, cache.rule, at=at, to=to).sum().backward()
        return [*parts, learned.grad]

    for one, other in zip(read(torch.inference_mode()), read(torch.no_grad()), strict=True):
        assert torch.equal(one, other)
