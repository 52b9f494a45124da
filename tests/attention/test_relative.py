"""Scores that meet content by vectors of the distance: the fast path is the reference, forward and backward, for every layout,
type and sum, whether far keys are taken apart or not.
"""

import pytest
import torch
from torch import Tensor

from milepost import FIRE, Encoding, KVCache, Layout, Shaw, attend, build
from milepost.attention import explain
from milepost.attention.backends import bands
from milepost.encoding import Relative

B, L, D = 2, 180, 8
SPECS = (
    "shaw(clip=4)",
    "shaw(clip=4, values=True)",
    "shaw(clip=3, values=True, shared=False)",
    "transformer_xl",
    "deberta(buckets=4, span=9)",
    "deberta(buckets=None, span=5)",
    "deberta(buckets=None, span=5, c2p=False)",
    "deberta(buckets=None, span=5, p2c=False)",
    "shaw(clip=4, values=True) + alibi(mode='symmetric')",
    "rope + shaw(clip=4) + t5(mode='bidirectional')",
    "transformer_xl + kerple",
    "deberta(buckets=4, span=9) + alibi(mode='symmetric')",
)
ONE_TEXT = Layout.dense(L)
LAYOUTS = {
    "whole": (ONE_TEXT, ONE_TEXT),
    "window": (Layout.dense(L, window=37), ONE_TEXT),
    "packed": (Layout.packed([150, 3, 27]), Layout.packed([150, 3, 27])),
    "padded": (Layout.padded(torch.arange(L) >= torch.tensor([[0], [31]])),) * 2,
    "goes on": (Layout.dense(20, start=L - 20), ONE_TEXT),
    "one query": (Layout.decode(L - 1), ONE_TEXT),
    "all keys far before": (Layout.dense(20, start=3 * L), ONE_TEXT),
    "keys in the middle": (ONE_TEXT, Layout.dense(150, start=20)),
}


@pytest.fixture(params=["whole", "by bands", "by parts"])
def way(request, monkeypatch) -> str:
    """Short texts that are attended to at once are tried by bands, too, as long ones are; and in parts of few keys."""
    if request.param != "whole":
        monkeypatch.setattr("milepost.attention.backends.relative.are_short", lambda *sizes: False)
    if request.param == "by parts":
        monkeypatch.setattr(bands, "STRIP", 16)
        monkeypatch.setattr(bands, "ACROSS", 40)
    return request.param


def drawn(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def made(spec: str, heads: int = 4, dtype: torch.dtype = torch.float64) -> Encoding:
    torch.manual_seed(7)
    enc = build(spec, heads=heads, head_dim=D, width=12).to(dtype)
    for p in enc.parameters():
        torch.nn.init.uniform_(p, 0.1, 0.9)
    return enc


def apart(
    enc: Encoding, at: Layout, to: Layout, causal: bool, groups: int = 4, dtype: torch.dtype = torch.float64
) -> list[float]:
    """Differences from the reference, over the reference's size: of the output, and of every gradient."""
    given = [
        drawn(1, B, 4, at.length, D, dtype=dtype).requires_grad_(),
        drawn(2, B, groups, to.length, D, dtype=dtype).requires_grad_(),
        drawn(3, B, groups, to.length, D, dtype=dtype).requires_grad_(),
    ]
    weight = drawn(4, B, 4, at.length, D, dtype=dtype)
    both = []
    for backend in ("relative", "reference"):
        out = attend(*given, enc, at=at, to=to, causal=causal, backend=backend)
        both.append((out, *torch.autograd.grad((out * weight).sum(), [*given, *enc.parameters()])))
    return [
        float((x - y).detach().double().abs().max() / max(1.0, float(y.detach().abs().max())))
        for x, y in zip(*both, strict=True)
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("spec", SPECS)
def test_output_and_gradients_are_the_references(spec, layout, way):
    enc, (at, to) = made(spec), LAYOUTS[layout]
    for causal in (True, False):
        for groups in (4, 2):
            assert max(apart(enc, at, to, causal, groups)) < 1e-11, (causal, groups)


def test_parts_hold_every_key_once_and_every_row_sees_a_key_of_each():
    many = 0
    for queries, keys, ahead, causal, window in (
        (64, 64, 0, True, 0), (64, 200, 136, True, 0), (64, 64, 0, False, 0), (64, 200, 136, True, 90),
        (64, 100, 0, False, 30),
    ):  # fmt: skip
        far, near = ahead + queries - 1, 0 if causal else ahead - keys + 1
        shape = bands.shape_of(queries, keys, ahead, causal, window, far, far - near + 1, False, True)
        for whole in shape.strips(16):
            parts = shape.parts(whole, 24)
            many += len(parts) > 1
            met = [key for s in parts for key in range(s.low, s.high)]
            assert met == list(range(whole.low, whole.high)), (whole, parts)
            for s in parts if len(parts) > 1 else ():
                for row in range(s.first, s.stop):
                    seen = [j for j in range(s.low, s.high) if shape.least <= ahead + row - j <= shape.most]
                    assert seen, (s, row)
    assert many >= 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spec", SPECS)
def test_other_types(spec, dtype, way):
    """bfloat16 has 8 bits: a rounding is 2^-9 of its size, and an output or a gradient has a few of them."""
    enc = made(spec, dtype=torch.float32)
    for causal in (True, False):
        assert max(apart(enc, *LAYOUTS["padded"], causal, 2, dtype)) < (2e-5 if dtype == torch.float32 else 2**-6)


@pytest.mark.parametrize("spec", SPECS)
def test_one_query_without_a_gradient_goes_its_own_way(spec):
    enc = made(spec)
    ends = torch.tensor([L - 1, 60])
    cases = [
        (Layout.decode(n), Layout.dense(n + 1)) for n in (0, 1, 3, 4, 5, 63, 64, L - 1)
    ] + [
        (Layout.decode(L - 1, window=2), ONE_TEXT),
        (Layout.decode(L - 1, window=37), ONE_TEXT),
        (Layout.decode(3 * L), ONE_TEXT),
        (Layout.decode(10), ONE_TEXT),
        (Layout.decode(ends), Layout.padded(torch.arange(L) <= ends[:, None])),
    ]  # fmt: skip
    for at, to in cases:
        for causal in (True, False):
            for groups in (4, 2, 1):
                q, k, v = drawn(1, B, 4, 1, D), drawn(2, B, groups, to.length, D), drawn(3, B, groups, to.length, D)
                with torch.no_grad():
                    got, want = (
                        attend(q, k, v, enc, at=at, to=to, causal=causal, backend=name)
                        for name in ("relative", "reference")
                    )
                assert torch.allclose(got, want, atol=1e-12), (to.length, at.window, causal, groups)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("spec", ["shaw(clip=2, values=True)", "transformer_xl", "deberta(buckets=None, span=3)"])
def test_gradcheck(spec, causal, way, monkeypatch):
    monkeypatch.setattr("milepost.attention.backends.relative.NARROW", 2)  # far keys apart, in a short text
    enc = made(spec, heads=1)
    q, k, v = (drawn(s, 1, 1, 9, D).requires_grad_() for s in range(3))

    def run(*given: Tensor) -> Tensor:
        out = attend(*given[:3], enc, causal=causal, backend="relative")
        return out[..., :3]

    assert torch.autograd.gradcheck(run, [q, k, v, *enc.parameters()], fast_mode=True)
    assert torch.autograd.gradgradcheck(run, [q, k, v, *enc.parameters()], fast_mode=True, atol=1e-6)


@pytest.mark.parametrize("height", [1, 7, 64])
@pytest.mark.parametrize("spec", ["shaw(clip=4, values=True)", "transformer_xl", "deberta(buckets=4, span=9)"])
def test_strips_of_any_height_give_the_same(spec, height, monkeypatch):
    for name in ("STRIP", "NARROW", "SEGMENT"):
        monkeypatch.setattr(bands, name, height)
    monkeypatch.setattr(bands, "HELD", 4000)
    for causal in (True, False):
        assert max(apart(made(spec), *LAYOUTS["goes on"], causal, 2)) < 1e-11


@pytest.mark.parametrize("spec", ["shaw(clip=4)", "transformer_xl", "deberta(buckets=4, span=9)"])
def test_nothing_stale_is_taken(spec):
    enc = made(spec)
    q, k, v = (drawn(s, B, 4, L, D) for s in range(3))
    with torch.no_grad():
        before = attend(q, k, v, enc)
        for p in enc.parameters():
            p.data.numpy()[...] *= 1.5
        after, want = attend(q, k, v, enc), attend(q, k, v, enc, backend="reference")
    assert torch.allclose(after, want, atol=1e-12) and not torch.allclose(after, before, atol=1e-3)


@pytest.mark.parametrize("spec", ["shaw(clip=4, values=True)", "transformer_xl", "deberta(buckets=4, span=9)"])
def test_a_decode_is_the_whole(spec):
    enc = made(spec)
    q, k, v = (drawn(s, B, 4, L, D) for s in range(3))
    cache = KVCache(enc, capacity=4)
    with torch.no_grad():
        whole = attend(q, k, v, enc, backend="reference")
        for n in range(L):
            got = cache.decode(*(t[:, :, n : n + 1] for t in (q, k, v)))
            assert torch.allclose(got, whole[:, :, n : n + 1], atol=1e-11), n


@pytest.mark.parametrize("spec", SPECS)
def test_vectors_past_the_end_are_alike(spec):
    part = next(part for part in made("nope + " + spec).parts if part.content_dependent)  # type: ignore[union-attr]
    if part.alike_from is None:
        return
    edge = part.alike_from
    relative = part.relative(torch.tensor([edge, edge + 1, 1_048_575, -edge, -edge - 1, -1_048_575]))
    assert isinstance(relative, Relative)
    for t in (relative.a, relative.b, relative.values):
        if t is not None:
            assert torch.equal(t[:, 0], t[:, 1]) and torch.equal(t[:, 0], t[:, 2])
            assert torch.equal(t[:, 3], t[:, 4]) and torch.equal(t[:, 3], t[:, 5]) and not torch.equal(t[:, 0], t[:, 3])


def test_explain_says_why_it_was_taken_or_not():
    q = torch.randn(1, 4, 16, D)
    assert "vectors of the distance" in explain(q, q, q, made("shaw")).why
    moved = Layout.dense(16).with_positions(torch.arange(16) * 2)
    passed = explain(q, q, q, made("shaw"), at=moved)
    assert passed.backend == "chunked" and "not relative: the encoding is told other positions" in passed.why
    with pytest.raises(
        ValueError, match=r"backend 'relative' can't do this for cope.*not made of vectors of the distance"
    ):
        attend(q, q, q, made("cope"), backend="relative")


def test_a_subclass_with_a_hook_of_its_own_is_not_scored_by_its_parents_vectors():
    class Doubled(Shaw):
        def rescore(self, s: Tensor, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return 2 * super().rescore(s, q, k, i, j)

    class Slow(FIRE):
        def bias(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return 2 * super().bias(h, i, j)

    class Same(Shaw):
        """Nothing of its own."""

    q, k, v = (drawn(s, B, 4, L, D) for s in range(3))
    for enc in (Doubled(heads=4, head_dim=D, clip=2).double(), Slow(heads=4).double()):
        assert explain(q, k, v, enc).backend == "chunked"
        assert torch.allclose(attend(q, k, v, enc), attend(q, k, v, enc, backend="reference"), atol=1e-12)
    assert explain(q, k, v, Same(heads=4, head_dim=D)).backend == "relative"
