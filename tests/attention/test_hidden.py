"""What the mask hides never reaches a row, not even a NaN: forward and backward, in every backend, compiled and not."""

import pytest
import torch
from torch import Tensor

from milepost import Encoding, KVCache, Layout, attend, build
from milepost.attention.attend import _FAST
from milepost.attention.backends.key_row import key_row
from milepost.attention.call import Call

B, H, L, D = 2, 4, 40, 8
SPECS = (
    "nope",
    "rope",
    "alibi",
    "t5",
    "kerple",
    "sandwich",
    "fire",
    "shaw",
    "transformer_xl",
    "deberta",
    "cope",
    "rope + alibi",
)
BROKEN = {"nan": float("nan"), "inf": float("inf"), "minus inf": float("-inf")}
LAYOUTS = {
    "whole": Layout.dense(L),
    "window": Layout.dense(L, window=5),
    "packed": Layout.packed([24, 16]),
    "left padded": Layout.padded(torch.tensor([[0] * 3 + [1] * 37, [1] * 40])),
    "scattered": Layout.dense(L).take(torch.arange(L).flip(0)),
}


def made(spec: str) -> Encoding:
    torch.manual_seed(2)
    enc = build(spec, heads=H, head_dim=D, width=16).double()
    for p in enc.parameters():
        torch.nn.init.uniform_(p, 0.2, 0.9)
    return enc


def drawn(seed: int, length: int = L, heads: int = H) -> Tensor:
    return torch.randn(B, heads, length, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def broken_at(which: str, token: int, value: float) -> list[Tensor]:
    """q, k and v, in one of which one number of one token of row 0, head 1 is not finite."""
    given = [drawn(s) for s in range(3)]
    given["qkv".index(which)][0, 1, token, 3] = value
    return given


def rows_that_see(which: str, token: int, at: Layout, causal: bool = True) -> Tensor:
    """Which rows (B H L) must be NaN: by the mask itself."""
    seen = at.mask(causal=causal).expand(B, 1, L, L)[0, 0]
    rows = torch.zeros(B, H, L, dtype=torch.bool)
    rows[0, 1] = seen[:, token] if which != "q" else torch.arange(L) == token
    return rows


@pytest.mark.parametrize("value", BROKEN)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("spec", SPECS)
def test_exactly_the_rows_that_see_a_broken_token_are_nan(spec, layout, value):
    enc, at = made(spec), LAYOUTS[layout]
    clean = [drawn(s) for s in range(3)]
    backends = [
        "auto",
        "reference",
        *(name for name in _FAST if _FAST[name].obstacle(Call(*clean, enc, at, at, True, 1.0)) is None),
    ]
    for which, token in (("k", 30), ("v", 30), ("q", 30), ("k", 4), ("v", 1)):
        given = broken_at(which, token, BROKEN[value])
        rows = rows_that_see(which, token, at)
        with torch.no_grad():
            want = attend(*clean, enc, at=at, backend="reference")
            for backend in backends:
                got = attend(*given, enc, at=at, backend=backend)
                assert got[rows].isnan().all(), (backend, which, token)
                assert torch.allclose(got[~rows], want[~rows], atol=1e-9), (backend, which, token)


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("spec", SPECS)
def test_gradients_of_the_other_rows_are_those_without_the_token(spec, layout, backend):
    enc, at = made(spec), LAYOUTS[layout]
    for which, token in (("k", 30), ("v", 30), ("q", 30)):
        given = [t.requires_grad_() for t in broken_at(which, token, float("nan"))]
        clean = [drawn(s).requires_grad_() for s in range(3)]
        rows = rows_that_see(which, token, at)
        weight = drawn(7).masked_fill(rows[..., None], 0.0)
        got = attend(*given, enc, at=at, backend=backend)
        want = attend(*clean, enc, at=at, backend="reference")
        learned = list(enc.parameters())
        got_grads = torch.autograd.grad((got.nan_to_num() * weight).sum(), [*given, *learned], allow_unused=True)
        want_grads = torch.autograd.grad((want * weight).sum(), [*clean, *learned], allow_unused=True)
        for g, w in zip(got_grads, want_grads, strict=True):
            assert (g is None) == (w is None) and (g is None or torch.allclose(g, w, atol=1e-9)), (which, token)


def test_the_case_of_the_report():
    q, k, v = (torch.randn(1, 4, 64, 16) for _ in range(3))
    k[:, :, 40] = float("nan")
    for spec in ("alibi", "nope"):
        got = attend(q, k, v, build(spec, heads=4))
        assert got[:, :, :40].isfinite().all() and got[:, :, 40:].isnan().all()


@pytest.mark.parametrize("spec", ["nope", "alibi", "t5(mode='bidirectional')", "shaw"])
def test_without_a_causal_mask_every_row_of_the_text_sees_it(spec):
    enc = build("alibi(mode='symmetric')", heads=H) if spec == "alibi" else made(spec)
    given = [t.float() for t in broken_at("v", 10, float("nan"))]
    got = attend(*given, enc.float(), at=LAYOUTS["packed"], causal=False)
    assert torch.equal(got.isnan().any(-1), rows_that_see("v", 10, LAYOUTS["packed"], causal=False))


def test_logits_and_weights_are_nan_in_the_same_rows():
    given, at = broken_at("k", 30, float("nan")), LAYOUTS["whole"]
    out, logits, weights = attend(*given, made("alibi"), at=at, details=True)
    rows = rows_that_see("k", 30, at)
    for part in (out, logits, weights):
        assert part[rows].isnan().all() and not part[~rows].isnan().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [2, 7, 8, 9, 31, 33, 600, 1100])
def test_every_size_and_precision(length, dtype):
    enc = build("alibi", heads=2)
    for broken in {0, length // 2, length - 1}:
        q, k, v = (torch.randn(1, 2, length, 16).to(dtype) for _ in range(3))
        v[0, 1, broken, 2] = float("nan")
        for one in (enc, None):
            got = attend(q, k, v, one)
            assert (
                got[0, 1, broken:].isnan().all() and got[0, 1, :broken].isfinite().all() and got[0, 0].isfinite().all()
            )


def test_large_numbers_whose_sum_overflows_are_no_broken_tokens():
    q, k, v = (torch.randn(1, 2, 64, 8) for _ in range(3))
    v[:, :, 3] = 3e38
    got = attend(q, k, v, build("alibi", heads=2))
    assert got.isfinite().all() and torch.allclose(
        got, attend(q, k, v, build("alibi", heads=2), backend="reference"), rtol=1e-5
    )


@pytest.mark.parametrize("spec", ["nope", "rope", "alibi", "t5", "shaw"])
def test_a_compiled_graph_keeps_the_promise(spec):
    enc, at = made(spec), LAYOUTS["whole"]
    torch._dynamo.reset()
    compiled = torch.compile(lambda q, k, v: attend(q, k, v, enc, at=at), fullgraph=True)
    rows = rows_that_see("v", 30, at)
    with torch.no_grad():
        got, want = (
            compiled(*broken_at("v", 30, float("nan"))),
            attend(*(drawn(s) for s in range(3)), enc, at=at, backend="reference"),
        )
    assert got[rows].isnan().all() and torch.allclose(got[~rows], want[~rows], atol=1e-9)


@pytest.mark.parametrize("queries", [1, 12, L])
def test_a_key_row_keeps_the_promise(queries):
    hide = torch.zeros(B, 1, 1, L, dtype=torch.float64)
    hide[0, :, :, :5] = float("-inf")  # padding on the left
    for token, which in ((2, 1), (2, 2), (33, 1), (33, 2)):
        given = [drawn(0, queries), drawn(1), drawn(2)]
        clean = [t.clone() for t in given]
        given[which][0, 1, token, 3] = float("nan")
        leaves, same = [t.requires_grad_() for t in given], [t.requires_grad_() for t in clean]
        rows = torch.zeros(B, H, queries, dtype=torch.bool)
        if token >= 5:
            rows[0, 1] = torch.arange(L - queries, L) >= token
        blind = torch.zeros(B, H, queries, dtype=torch.bool)
        blind[0] = torch.arange(L - queries, L) < 5  # what such a row gives means nothing, but is finite
        got, want = key_row(*leaves, hide, scale=0.3), key_row(*same, hide, scale=0.3)
        assert got[rows].isnan().all() and got[blind].isfinite().all()
        assert torch.allclose(got[~rows & ~blind], want[~rows & ~blind], atol=1e-9)
        weight = drawn(5, queries).masked_fill((rows | blind)[..., None], 0.0)
        grads = (
            torch.autograd.grad((got.nan_to_num() * weight).sum(), leaves),
            torch.autograd.grad((want * weight).sum(), same),
        )
        assert all(torch.allclose(g, w, atol=1e-9) for g, w in zip(*grads, strict=True))


@torch.no_grad()
def test_room_of_a_cache_that_holds_no_token_yet_is_never_read():
    enc = build("alibi", heads=H)
    cache = KVCache(enc, capacity=64)
    q, k, v = (drawn(s).float() for s in range(3))
    cache.decode(q[:, :, :10], k[:, :, :10], v[:, :, :10])
    assert cache._k is not None and cache._v is not None
    cache._k[:, :, 10:] = cache._v[:, :, 10:] = float("nan")
    got = torch.cat([cache.decode(*(t[:, :, n : n + 1] for t in (q, k, v))) for n in range(10, L)], dim=2)
    assert torch.allclose(got, attend(q, k, v, enc)[:, :, 10:], atol=1e-5)
