"""The contract of attend: q and k come as they are, and nobody can turn them twice, or not at all, in silence."""

import copy
import pickle

import pytest
import torch
from torch import Tensor

from milepost import Attention, Encoding, KVCache, Layout, RoPE, attend, build
from milepost.attention.shards import attend_shards
from milepost.encoding import mark_of
from milepost.scaling import Dynamic
from milepost.testing import check_encoding

H, L, D = 4, 20, 16
TURNING = (
    "rope",
    "xpos",
    "temperature(length=8)",
    "rope + alibi",
    "mrope",
    "rope(scaling=yarn(factor=4.0, trained=8))",
)


def drawn(seed: int, length: int = L, heads: int = H) -> Tensor:
    return torch.randn(2, heads, length, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def made(spec: str) -> Encoding:
    return build(spec, heads=H, head_dim=D, width=32)


def by_hand(enc: Encoding, q: Tensor, k: Tensor, v: Tensor, at: Layout, to: Layout) -> Tensor:
    """Softmax attention over turned q and k, written out."""
    logits = enc.query(q, at.pos) @ enc.key(k, to.pos).transpose(-1, -2) * D**-0.5
    h = torch.arange(H)[:, None, None]
    logits = logits + enc.bias(h, at.index[:, None, :, None], to.index[:, None, None, :])
    future = to.index[:, None, None, :] > at.index[:, None, :, None]
    return torch.softmax(logits.masked_fill(future, float("-inf")), dim=-1) @ v


@pytest.mark.parametrize("spec", TURNING)
def test_attend_turns_queries_and_keys_itself(spec):
    enc, (q, k, v) = made(spec), (drawn(s) for s in range(3))
    for at, to in ((Layout.dense(L), Layout.dense(L)), (Layout.dense(5, start=15), Layout.dense(L))):
        some = q[:, :, : at.length]
        want = by_hand(enc, some, k, v, at, to)
        assert torch.allclose(attend(some, k, v, enc, at=at, to=to), want, atol=1e-12)
        ready = enc.query(some, at.pos), enc.key(k, to.pos)
        assert torch.allclose(attend(*ready, v, enc, at=at, to=to, turned=True), want, atol=1e-12)
        assert torch.allclose(attend(some, ready[1], v, enc, at=at, to=to, turned="keys"), want, atol=1e-12)
        assert not torch.allclose(attend(some, k, v, at=at, to=to), want, atol=1e-2)


def test_what_readme_0_1_showed_is_refused_with_the_new_spelling():
    enc, at, (q, k, v) = build("rope + alibi", heads=H, head_dim=D), Layout.dense(L), (drawn(s) for s in range(3))
    with pytest.raises(
        ValueError, match=r"q was turned already, by rope.*turned twice.*attend\(q, k, v, enc, at=at\).*turned=True"
    ):
        attend(enc.query(q, at.pos), enc.key(k, at.pos), v, enc, at=at)
    with pytest.raises(ValueError, match=r"k was turned already.*attend\(q, k, v, enc, at=at\)"):
        attend(q, enc.key(k, at.pos), v, enc, at=at)
    with pytest.raises(ValueError, match=r"q was turned already"):
        attend(enc.query(q, at.pos), enc.key(k, at.pos), v, enc, at=at, turned="keys")
    cache = KVCache(enc)
    with pytest.raises(ValueError, match=r"k was turned already"):
        cache.append(enc.key(k, at.pos), v, at)
    with pytest.raises(ValueError, match=r"k was turned already"):
        cache.decode(q, enc.key(k, at.pos), v)
    assert len(cache) == 0


def test_marked_keys_must_stand_where_to_says():
    enc, at, (q, k, v) = made("rope"), Layout.dense(L), (drawn(s) for s in range(3))
    elsewhere = enc.key(k, at.pos + 3)
    with pytest.raises(
        ValueError, match=r"k was turned for positions 3 to 22 .* `to` says 0 to 19 .*turn k by to\.pos"
    ):
        attend(q, elsewhere, v, enc, at=at, turned="keys")
    with pytest.raises(ValueError, match=r"q was turned for positions 1 to 20 .* `at` says 0 to 19"):
        attend(enc.query(q, at.pos + 1), enc.key(k, at.pos), v, enc, at=at, turned=True)
    with pytest.raises(ValueError, match=r"k was turned for positions"):
        KVCache(enc).append(elsewhere, v, at, turned=True)
    shorter = enc.key(k[:, :, :7], torch.arange(7))
    with pytest.raises(ValueError, match=r"k was turned for positions 0 to 6 .* `to` says 5 to 11"):
        attend(q[:, :, :7], shorter, v[:, :, :7], enc, at=Layout.dense(7, start=5), turned="keys")
    one_row = enc.key(k, torch.arange(L))  # positions of shape (L,) stand for every row
    assert attend(q, one_row, v, enc, at=at, turned="keys").isfinite().all()


def test_marked_tensors_must_be_of_the_same_encoding():
    q, k, v, at = *(drawn(s) for s in range(3)), Layout.dense(L)
    other = build("rope(base=500000.0)", head_dim=D)
    with pytest.raises(
        ValueError,
        match=r"k was turned by rope\(head_dim=16, base=500000\.0\), and attend\(\) was given rope\(head_dim=16\)",
    ):
        attend(q, other.key(k, at.pos), v, made("rope"), at=at, turned="keys")
    rope = made("rope")  # of a sum only the part that turns matters
    both = rope + build("alibi", heads=H)
    ready = rope.query(q, at.pos), rope.key(k, at.pos)
    assert torch.equal(attend(*ready, v, both, at=at, turned=True), attend(q, k, v, both, at=at))


@pytest.mark.parametrize("word", ["key", "queries", "yes", 2, None, "Keys"])
def test_turned_is_one_of_three_words(word):
    q = drawn(0)
    with pytest.raises(ValueError, match=r'turned must be False .*"keys".* True'):
        attend(q, q, q, made("rope"), turned=word)


def test_an_encoding_that_depends_on_the_length_can_not_have_been_turned_before():
    enc, q = RoPE(head_dim=D, scaling=Dynamic(trained=8)), drawn(0)
    with pytest.raises(ValueError, match=r"depends on the length of the text.*give them as they are"):
        attend(q, q, q, enc, turned=True)
    with pytest.raises(ValueError, match=r"depends on the length of the text.*come from a KVCache"):
        attend(q, q, q, enc, turned="keys")
    with pytest.raises(ValueError, match="depends on the length of the text: the cache turns its keys"):
        KVCache(enc).append(q, q, turned=True)
    plain = enc.at(L)
    with pytest.raises(ValueError, match="q was turned already"):
        attend(plain.query(q, torch.arange(L)), q, q, enc)
    assert torch.allclose(attend(q, q, q, enc), attend(q, q, q, plain), atol=1e-12)


def test_keys_of_a_cache_are_known_to_be_turned():
    for spec in (*TURNING, "alibi", "rope(scaling=dynamic(trained=8))"):
        enc, (q, k, v) = made(spec), (drawn(s) for s in range(3))
        cache = KVCache(enc)
        whole = attend(q, k, v, cache.rule)
        for how in ({}, {"turned": "keys"}):
            cache, parts = KVCache(enc), []
            for a, b in ((0, 7), (7, 8), (8, L)):
                at = cache.next(b - a)
                keys, values, to = cache.append(k[:, :, a:b], v[:, :, a:b], at)
                parts.append(attend(q[:, :, a:b], keys, values, enc, at=at, to=to, **how))
            assert torch.allclose(torch.cat(parts, 2), whole, atol=1e-12), spec
    rope = made("rope")
    cache, same = KVCache(rope), KVCache(rope)
    at = Layout.dense(L)
    assert torch.equal(cache.append(k, v, at)[0], same.append(rope.key(k, at.pos), v, at, turned=True)[0])


def test_marks_stay_off_what_was_given_and_off_copies():
    class Half(Encoding):
        def query(self, q: Tensor, pos: Tensor) -> Tensor:
            return q

    q, pos = drawn(0), torch.arange(L)
    enc = Half()
    turned = enc.query(q, pos)
    assert mark_of(q) is None and mark_of(turned) is not None and torch.equal(q, turned)
    rope = made("rope")
    ready = rope.query(q, pos)
    assert mark_of(ready).encoding is rope
    for other in (
        ready * 1,
        ready[:, :, :5],
        ready.clone(),
        copy.deepcopy(ready),
        pickle.loads(pickle.dumps(ready)),
        ready.float(),
    ):
        assert mark_of(other) is None
    assert mark_of(made("alibi").query(q, pos)) is None
    both = made("rope + alibi")
    assert mark_of(both.query(q, pos)).encoding is both


class Backwards(RoPE):
    """A subclass that turns the other way."""

    def turn(self, x: Tensor, pos: Tensor) -> Tensor:
        return super().turn(x, -pos)


class Squared(Encoding):
    """A stranger's encoding at points 2 and 3."""

    def query(self, q: Tensor, pos: Tensor) -> Tensor:
        return q * (1 + pos.to(q.dtype))[..., None, :, None].sqrt()

    def bias(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return -0.01 * (i - j).double() ** 2


class Negated(RoPE):
    """A subclass that overrides one hook only."""

    def key(self, k: Tensor, pos: Tensor) -> Tensor:
        return -super().key(k, pos)


@pytest.mark.parametrize(
    "enc", [Backwards(head_dim=D), Squared(), Negated(head_dim=D), RoPE(head_dim=D)], ids=lambda e: type(e).__name__
)
@torch.no_grad()
def test_a_subclass_and_a_stranger_are_decoded_by_their_own_hooks(enc):
    q, k, v = (drawn(s, 300) for s in range(3))
    cache, whole = KVCache(enc), attend(q, k, v, enc, backend="reference")
    got = torch.cat([cache.decode(*(t[:, :, n : n + 1] for t in (q, k, v))) for n in range(300)], dim=2)
    assert torch.allclose(got, whole, atol=1e-10)
    verdict = next(v for v in check_encoding(enc).verdicts if v.law == "decode_agrees")
    assert verdict.passed is True


@pytest.mark.parametrize(
    "spec", ["nope", "rope", "alibi", "t5", "shaw", "rope + alibi", "rope(scaling=dynamic(trained=8))"]
)
@pytest.mark.parametrize(
    "shape", [{}, {"key_heads": 2}, {"key_heads": 1, "qk_norm": True}, {"head_dim": 24, "bias": True}]
)
@torch.no_grad()
def test_the_layer_gives_the_same_whole_and_piece_by_piece(spec, shape):
    torch.manual_seed(0)
    size = shape.get("head_dim", D)
    layer = Attention(H * D, H, build(spec, heads=H, head_dim=size), **shape).double()
    x, cache = torch.randn(2, L, H * D, dtype=torch.float64), KVCache(layer.enc)
    if "dynamic" in spec:
        layer.enc = cache.rule
    whole = layer(x)
    parts = torch.cat(
        [layer(x[:, :9], cache=cache), *(layer(x[:, n : n + 1], cache=cache) for n in range(9, L))], dim=1
    )
    assert whole.shape == x.shape and torch.allclose(parts, whole, atol=1e-10)
    other, steps = KVCache(layer.enc), []
    for a, b in ((0, 3), (3, L)):
        steps.append(layer(x[:, a:b], other.next(b - a), cache=other, backend="chunked"))
    assert torch.allclose(torch.cat(steps, 1), whole, atol=1e-10)


def test_the_layer_says_what_does_not_fit():
    with pytest.raises(ValueError, match="4 query heads can't share 3 key heads evenly"):
        Attention(64, 4, key_heads=3)
    with pytest.raises(ValueError, match="width of 65 can't be split into 4 heads; give head_dim"):
        Attention(65, 4)
    with pytest.raises(ValueError, match=r"made for head_dim=8, and this layer has head_dim=16"):
        Attention(64, 4, RoPE(head_dim=8))
    with pytest.raises(ValueError, match=r"made for heads=8, and this layer has heads=4"):
        Attention(64, 4, build("alibi", heads=8))
    layer = Attention(64, 4, causal=False)
    with pytest.raises(ValueError, match="a cache goes with causal attention"):
        layer(torch.randn(1, 3, 64), cache=KVCache())


def test_shards_turn_their_own_keys(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        for spec in ("rope", "rope + alibi", "rope(scaling=dynamic(trained=8))"):
            enc, (q, k, v), at = made(spec), (drawn(s) for s in range(3)), Layout.dense(L)
            want = attend(q, k, v, enc, at=at)
            assert torch.allclose(attend_shards(q, k, v, enc, at=at), want, atol=1e-12)
            if "dynamic" not in spec:
                ready = enc.query(q, at.pos), enc.key(k, at.pos)
                assert torch.allclose(attend_shards(*ready, v, enc, at=at, turned=True), want, atol=1e-12)
    finally:
        torch.distributed.destroy_process_group()
