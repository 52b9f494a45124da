"""A bias that is not a function of i - j alone, strip by strip: the reference's numbers, on both sides of FIRE's threshold."""

import pytest
import torch
from torch import Tensor

from milepost import Encoding, KVCache, Layout, attend, build
from milepost.attention import explain
from milepost.attention.backends import by_row

B, L, D = 2, 150, 8
SPECS = (
    "fire(threshold=20.0)",
    "fire(threshold=5.0, shared=True)",
    "rope + fire(threshold=1000.0)",
    "fire(threshold=20.0) + t5",
)
ONE_TEXT = Layout.dense(L)
LAYOUTS = {
    "whole": (ONE_TEXT, ONE_TEXT),
    "window": (Layout.dense(L, window=37), ONE_TEXT),
    "packed": (Layout.packed([120, 3, 27]), Layout.packed([120, 3, 27])),
    "padded": (Layout.padded(torch.arange(L) >= torch.tensor([[0], [31]])),) * 2,
    "goes on": (Layout.dense(20, start=L - 20), ONE_TEXT),
    "one query": (Layout.decode(L - 1), ONE_TEXT),
    "all keys before": (Layout.dense(20, start=3 * L), ONE_TEXT),
    "keys in the middle": (ONE_TEXT, Layout.dense(120, start=20)),
}


def drawn(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def made(spec: str, dtype: torch.dtype = torch.float64) -> Encoding:
    torch.manual_seed(7)
    enc = build(spec, heads=4, head_dim=D).to(dtype)
    for p in enc.parameters():
        if p.dim():
            torch.nn.init.normal_(p, std=0.5)
    return enc


def differences(enc: Encoding, at: Layout, to: Layout, groups: int, dtype: torch.dtype = torch.float64) -> list[float]:
    """From the reference, over the reference's size: of the output, and of every gradient."""
    given = [
        drawn(s, B, heads, n, D, dtype=dtype).requires_grad_()
        for s, heads, n in ((1, 4, at.length), (2, groups, to.length), (3, groups, to.length))
    ]
    weight = drawn(4, B, 4, at.length, D, dtype=dtype)
    both = []
    for backend in ("by_row", "reference"):
        out = attend(*given, enc, at=at, to=to, backend=backend)
        both.append((out.detach(), *torch.autograd.grad((out * weight).sum(), [*given, *enc.parameters()])))
    return [float((x - y).double().abs().max() / max(1.0, float(y.abs().max()))) for x, y in zip(*both, strict=True)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("spec", SPECS)
def test_output_and_gradients_are_the_references(spec, layout, monkeypatch):
    monkeypatch.setattr(by_row, "ROWS", 48)
    monkeypatch.setattr(by_row, "HELD", 9000)  # a head at a time, or two
    for groups in (4, 2):
        assert max(differences(made(spec), *LAYOUTS[layout], groups)) < 1e-11, groups


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_types(dtype):
    """bfloat16 has 8 bits: a rounding is 2^-9 of its size, and an output or a gradient of q, k or v has a few of them. A
    parameter's gradient adds up those of all pairs, of both signs.
    """
    apart = differences(made("fire(threshold=20.0)", torch.float32), *LAYOUTS["whole"], 4, dtype)
    assert max(apart[:4]) < (2e-5 if dtype == torch.float32 else 2**-6)
    assert max(apart[4:]) < (2e-4 if dtype == torch.float32 else 2**-4)


@pytest.mark.parametrize("first", [0, 15, 255, 4090, 131_071, 1_048_575 - 64])
def test_a_strip_of_rows_is_the_bias(first):
    """Rows at which edges of pieces pass, and rows at which none does."""
    enc = made("fire(threshold=20.0)")
    h, i = torch.arange(4), torch.arange(first, first + 64)
    distance = torch.arange(min(first + 63, 5000), -1, -1)
    strip = enc.bias_by_row(i, distance)
    assert strip is not None
    got = strip(h, None)
    want = enc.bias(h[:, None, None], i[:, None], i[:, None] - distance)
    assert torch.allclose(got, want, atol=1e-12)
    room = torch.full((4, len(i), len(distance) + 7), 9.0, dtype=torch.float64)  # written into a part of wider rows
    with torch.no_grad():
        assert torch.allclose(strip(h, room[..., 5:-2]), want, atol=1e-12)
    assert (
        torch.allclose(room[..., 5:-2], want, atol=1e-12) and (room[..., :5] == 9).all() and (room[..., -2:] == 9).all()
    )


def test_a_decode_is_the_whole():
    enc, cache = made("fire(threshold=20.0)"), KVCache(made("fire(threshold=20.0)"), capacity=4)
    q, k, v = (drawn(s, B, 4, L, D) for s in range(3))
    with torch.no_grad():
        whole = attend(q, k, v, enc, backend="reference")
        for n in range(L):
            got = cache.decode(*(t[:, :, n : n + 1] for t in (q, k, v)))
            assert torch.allclose(got, whole[:, :, n : n + 1], atol=1e-12), n


def test_explain_says_why_it_was_taken_or_not():
    q = torch.randn(1, 4, 16, D)
    assert "strip of rows" in explain(q, q, q, made("fire")).why
    moved = Layout.dense(16).with_positions(torch.arange(16) * 2)
    passed = explain(q, q, q, made("fire"), at=moved)
    assert passed.backend == "chunked" and "not by_row: the encoding is told other positions" in passed.why
    with pytest.raises(ValueError, match=r"backend 'by_row' can't do this for cope.*no part that depends on content"):
        attend(q, q, q, build("cope", heads=4, head_dim=D), backend="by_row")
