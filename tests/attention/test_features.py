"""Features of hidden states and turned values, through attend, the cache, the layer and compiled graphs; and what is
refused, with nothing half-done.
"""

import pytest
import torch

from milepost import Attention, Encoding, FoX, KVCache, Layout, RelativeLogits, Sum, attend, build
from milepost.attention import explain
from milepost.lab.model import Decoder, Shape
from milepost.testing import randomised_copy

SIZES = {"heads": 4, "head_dim": 8, "width": 16}
NEW = ("fox", "relative_logits(extent=8)", "selective_rope", "path", "vo_rope", "stick_breaking", "dape")


def given(n=9, batch=1, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, 4, n, 8)] * 3 + [(batch, n, 16)]
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]


def said(attempt, *words):
    with pytest.raises(ValueError) as caught:
        attempt()
    assert not [word for word in words if word not in str(caught.value)], str(caught.value)


# -- what is refused --------------------------------------------------------------------------------------------------


def test_features_that_do_not_fit_are_refused_with_their_shape():
    enc = FoX(4, 16).double()
    q, k, v, x = given()
    f = enc.features(x, torch.arange(9))
    said(lambda: attend(q, k, v, enc), "needs features", "enc.features(x, at.pos)", "milepost.Attention")
    said(lambda: attend(q, k, v, enc, features=x), "(1, 9, 4)", "(1, 9, 16)")
    said(lambda: attend(q, k, v, enc, features=f[:, :5]), "(1, 9, 4)", "(1, 5, 4)")
    said(lambda: attend(q, k, v, enc, features=f.long()), "int64")
    said(lambda: attend(q[:, :, -1:], k, v, enc, features=f[:, -1:]), "give a pair", "cache.features")
    said(lambda: attend(q[:, :, -1:], k, v, enc, features=(f[:, -1:], f[:, -2:])), "the keys' tokens", "(1, 2, 4)")
    said(lambda: attend(q, k, v, enc, features=(f, f, f)), "a pair of them")
    said(lambda: attend(q, k, v, build("rope", **SIZES), features=f), "leave features= out")


def test_hidden_states_of_another_width_are_refused_with_both_numbers():
    enc, pos = FoX(4, 16), torch.arange(9)
    said(lambda: enc.features(torch.zeros(1, 9, 12), pos), "width=16", "(1, 9, 12)")
    said(lambda: enc.features(torch.zeros(9, 16), pos), "(B, L, C)", "(9, 16)")
    said(lambda: enc.features(torch.zeros(1, 8, 16), pos), "(1, 8, 16)", "(9,)")
    said(lambda: Attention(12, 4, enc)(torch.zeros(1, 9, 12)), "width=16", "(1, 9, 12)")


@torch.no_grad()
def test_a_cache_takes_all_of_a_token_or_nothing():
    enc = randomised_copy(FoX(4, 16))
    q, k, v, x = given()
    f = enc.features(x, torch.arange(9))
    whole, cache = attend(q, k, v, enc, features=f), KVCache(enc)
    cache.decode(q[:, :, :5], k[:, :, :5], v[:, :, :5], features=f[:, :5])
    one = [t[:, :, 5:6] for t in (q, k, v)]
    said(lambda: cache.decode(*one), "features of the hidden states of the new tokens")
    said(lambda: cache.append(*one[1:]), "the new tokens")
    said(lambda: cache.decode(*one, features=f[:, 5:7]), "(1, 1, 4)", "(1, 2, 4)")
    said(lambda: cache.decode(*one, features=f[:, 5:6].float()), "float64", "float32")
    said(lambda: KVCache(build("rope", **SIZES)).append(*one[1:], features=f[:, 5:6]), "leave features= out")
    assert len(cache) == 5 and cache.features.shape == (1, 5, 4)
    rows = [cache.decode(*(t[:, :, n : n + 1] for t in (q, k, v)), features=f[:, n : n + 1]) for n in range(5, 9)]
    assert (torch.cat(rows, dim=2) - whole[:, :, 5:]).abs().max() < 1e-13


def test_gradients_that_a_cache_would_lose_are_refused():
    enc = FoX(4, 16).double()
    _q, k, v, x = given()
    said(lambda: KVCache(enc).append(k, v, features=enc.features(x, torch.arange(9))), "features.detach()")


@torch.no_grad()
def test_keys_of_a_cache_without_the_state_are_refused():
    q, k, v, x = given()
    enc, cache = FoX(4, 16).double(), KVCache(build("rope", **SIZES))
    keys, values, to = cache.append(k, v)
    f = enc.features(x, torch.arange(9))
    said(lambda: attend(q, keys, values, enc, at=Layout.dense(9), to=to, features=f), "a cache made for rope")
    assert cache.features is None


def test_values_that_can_not_be_moved_are_refused_and_stay_where_they_are():
    class Shouting(Encoding):
        shift_invariant = False

        def value(self, v, pos):
            return v * (1 + pos[..., None, :, None].to(v.dtype))

    cache = KVCache(Shouting())
    _, k, v, _ = given()
    cache.append(k, v)
    held = cache.v.clone()
    said(lambda: cache.shift(3), "can't turn a value")
    assert torch.equal(cache.v, held) and cache.layout.index[0, 0] == 0
    assert torch.equal(cache.v[0, 0, :, 0], v[0, 0, :, 0] * torch.arange(1, 10))


# -- what is the same everywhere --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec", [*NEW, "rope + fox", "alibi + fox + vo_rope", "rope + relative_logits", "fox + relative_logits(extent=4)"]
)
def test_a_layer_reads_a_text_whole_in_parts_and_packed(spec):
    enc = build(spec, **SIZES).double()
    layer = Attention(16, 4, enc, key_heads=2, head_dim=8).double()
    x = torch.randn(2, 12, 16, dtype=torch.float64)
    with torch.no_grad():
        whole, cache = layer(x), KVCache(enc, capacity=2)
        parts = [layer(x[:, a:b], cache=cache) for a, b in ((0, 5), (5, 6), (6, 12))]
        assert (torch.cat(parts, dim=1) - whole).abs().max() < 1e-12
        packed = layer(torch.cat([x[:1, :7], x[1:, :5]], dim=1), Layout.packed([7, 5]))
        alone = torch.cat([layer(x[:1, :7]), layer(x[1:, :5])], dim=1)
        assert (packed - alone).abs().max() < 1e-12
        turned = layer(x.flip(0))
        assert (turned.flip(0) - whole).abs().max() < 1e-12


@pytest.mark.parametrize(
    "spec",
    [
        "rope(scaling=dynamic(trained=8)) + fox",
        "rope(scaling=staged(trained=8)) + fox + vo_rope",
        "rope(scaling=dynamic(trained=8)) + relative_logits(extent=5)",
    ],
)
@torch.no_grad()
def test_scalings_by_length_go_with_features_and_turned_values(spec):
    enc = build(spec, **SIZES).double()
    q, k, v, x = given(30)
    f, cache = enc.features(x, torch.arange(30)), KVCache(enc)
    whole = attend(q, k, v, cache.rule, features=f)
    cuts = [slice(0, 5), *(slice(t, t + 1) for t in range(5, 30))]
    rows = [cache.decode(q[:, :, c], k[:, :, c], v[:, :, c], features=f[:, c]) for c in cuts]
    assert (torch.cat(rows, dim=2) - whole).abs().max() < 1e-13


def test_gates_have_every_derivative():
    enc = FoX(4, 16).double()
    q, k, v, x = given(5)
    f = enc.features(x, torch.arange(5)).detach()

    def run(q, f):
        return attend(q, k, v, enc, features=f)

    learn = (q.requires_grad_(), f.clone().requires_grad_())
    assert torch.autograd.gradcheck(run, learn, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, learn, fast_mode=True)
    q, step = q.detach(), torch.ones_like(f)
    _, forwards = torch.func.jvp(lambda f: run(q, f), (f,), (step * f,))
    small = (run(q, f + 1e-6 * f) - run(q, f - 1e-6 * f)) / 2e-6
    assert (forwards - small).abs().max() < 1e-7
    mapped = torch.func.vmap(lambda f: run(q, f))(torch.stack([f, 2 * f]))
    assert (mapped[1] - run(q, 2 * f)).abs().max() < 1e-13


@pytest.mark.parametrize("backend", ["reference", "keyed", "chunked"])
@torch.no_grad()
def test_a_token_whose_features_are_not_numbers_spoils_the_rows_that_see_it_and_no_other(backend):
    enc = randomised_copy(FoX(4, 16))
    q, k, v, x = given(12)
    at, f = Layout.packed([5, 7]), enc.features(x, torch.arange(12))
    clean = attend(q, k, v, enc, at=at, features=f, backend=backend)
    f = f.clone()
    f[0, 7, 1] = float("nan")
    out = attend(q, k, v, enc, at=at, features=f, backend=backend)
    assert (out[:, :, :7] - clean[:, :, :7]).abs().max() < 1e-13
    assert out[:, :, 7:].isnan().all()


def test_sums_keep_the_features_of_each_part_by_itself():
    fox, other = randomised_copy(FoX(4, 16)), randomised_copy(RelativeLogits(4, 16, size=3, extent=4), seed=1)
    both = Sum(fox, other)
    q, _k, v, x = given()
    pos = torch.arange(9)
    f = both.features(x, pos)
    assert both.feature_count == 4 + 12 == f.shape[-1] and both.running and not both.keyless
    zero = torch.zeros_like(q)
    logits = [attend(zero, zero, v, e, features=e.features(x, pos), details=True).logits for e in (fox, other, both)]
    seen = torch.ones(9, 9, dtype=torch.bool).tril()
    assert (logits[0] + logits[1] - logits[2])[..., seen].abs().max() < 1e-14


def test_an_encoding_without_the_new_points_says_so_and_keeps_its_fast_path():
    q, k, v, _ = given(30)
    for spec, backend in (
        ("rope", "sdpa"),
        ("alibi", "toeplitz"),
        ("vo_rope", "sdpa"),
        ("alibi + vo_rope", "toeplitz"),
    ):
        assert explain(q, k, v, build(spec, **SIZES)).backend == backend
    for spec in ("fox", "relative_logits", "path", "stick_breaking"):
        for backend in ("sdpa", "toeplitz", "flex"):
            enc = build(spec, **SIZES).double()
            f = torch.zeros(1, 30, enc.feature_count, dtype=torch.float64) if enc.feature_count else None
            said(lambda enc=enc, f=f, b=backend: attend(q, k, v, enc, features=f, backend=b), "can't do this for")


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["fox", "rope + fox", "vo_rope", "relative_logits(extent=8)"])
def test_attention_compiles_whole_and_gives_the_same(spec):
    enc = build(spec, **SIZES).double()
    layer = Attention(16, 4, enc, head_dim=8).double()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for n in (17, 40):
        x = torch.randn(1, n, 16, dtype=torch.float64)
        assert (compiled(x) - layer(x)).abs().max() < 1e-12
    torch._dynamo.reset()


@pytest.mark.parametrize("spec", ["fox", "selective_rope", "relative_logits(extent=8)", "dape", "stick_breaking"])
def test_the_lab_s_model_reads_with_caches_as_without(spec):
    model = Decoder(Shape(width=16, heads=4, layers=2), spec).start(0).eval()
    ids = torch.randint(0, 64, (2, 14))
    with torch.no_grad():
        whole, caches = model(ids), model.caches()
        parts = [model(ids[:, a:b], caches=caches) for a, b in ((0, 9), *((t, t + 1) for t in range(9, 14)))]
    assert (torch.cat(parts, dim=1) - whole).abs().max() < 1e-5
