"""A bias of the key alone: against a softmax written out in float64, in every dtype, with and without the kernel."""

import math

import pytest
import torch
from torch import Tensor

from milepost.attention.backends.key_row import _by_chunks, key_row

BUDGET = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(3)


def written_out(q: Tensor, k: Tensor, v: Tensor, row: Tensor, causal: bool, scale: float) -> Tensor:
    """Attention as a loop over heads and queries; a query that sees nothing gives NaN, and is not compared."""
    out = torch.full((*q.shape[:3], v.shape[-1]), math.nan, dtype=torch.float64)
    ahead = k.shape[2] - q.shape[2]
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            g = h * k.shape[1] // q.shape[1]
            bias = row[b % row.shape[0], h % row.shape[1], 0].double()
            for i in range(q.shape[2]):
                keys = [j for j in range(k.shape[2]) if (not causal or j <= ahead + i) and bias[j] > -math.inf]
                if keys:
                    logits = scale * (k[b, g, keys].double() @ q[b, h, i].double()) + bias[keys]
                    out[b, h, i] = torch.softmax(logits, 0) @ v[b, g, keys].double()
    return out


def made(heads: tuple[int, int], lengths: tuple[int, int], dtype: torch.dtype, width: int = 8) -> tuple[Tensor, ...]:
    B, (H, G), (I, J) = 2, heads, lengths
    q, k, v = torch.randn(B, H, I, 8), torch.randn(B, G, J, 8), torch.randn(B, G, J, width)
    row = torch.linspace(0, 3, H)[:, None] * torch.arange(J) * torch.ones(B, 1, 1)
    row[0, :, : J // 3] = -math.inf  # padded on the left: more than the cached part, where there is one
    return q.to(dtype), k.to(dtype), v.to(dtype), row[:, :, None]


@pytest.mark.parametrize("dtype", BUDGET, ids=str)
@pytest.mark.parametrize(
    ("lengths", "causal"), [((21, 21), True), ((1, 21), True), ((16, 21), True), ((9, 21), False), ((21, 9), False)]
)
@pytest.mark.parametrize("heads", [(6, 6), (6, 1), (6, 2)])
def test_equals_a_softmax_written_out(dtype, lengths, causal, heads):
    q, k, v, row = made(heads, lengths, dtype)
    ours, want = key_row(q, k, v, row, scale=0.4, causal=causal).double(), written_out(q, k, v, row, causal, 0.4)
    seen = want.isfinite()
    assert ours.isfinite().all() and seen.any()
    assert (ours - want)[seen].abs().max() < BUDGET[dtype]


@pytest.mark.parametrize("lengths", [(300, 300), (260, 300)])
def test_gradients_are_those_of_a_softmax_written_out_and_those_without_the_kernel(lengths):
    I, J = lengths
    q, k, v, row = made((6, 1), lengths, torch.float64)
    grad = torch.randn(2, 6, I, 8, dtype=torch.float64)
    grad[0, :, : I - J + J // 3] = 0  # what padding gives means nothing
    found = []
    for run in (key_row, _by_chunks, plain):
        leaves = [t.clone().requires_grad_() for t in (q, k, v)]
        wide = leaves if run is not _by_chunks else [leaves[0], *(t.expand(-1, 6, -1, -1) for t in leaves[1:])]
        run(*wide, row.double().clamp(min=-1e30), scale=0.4, causal=True).backward(grad)
        found.append([t.grad for t in leaves])
    for other in found[1:]:
        for ours, theirs in zip(found[0], other, strict=True):
            assert (ours - theirs).abs().max() < 1e-10


def plain(q: Tensor, k: Tensor, v: Tensor, row: Tensor, *, scale: float, causal: bool) -> Tensor:
    logits = scale * q @ k.transpose(-1, -2) + row
    future = torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1 + k.shape[2] - q.shape[2])
    return torch.softmax(logits.masked_fill(future, -math.inf), -1) @ v


def test_values_of_another_width_go_without_the_kernel():
    q, k, v, row = made((6, 6), (200, 200), torch.float32, width=12)
    want = plain(q, k, v, row, scale=0.4, causal=True)  # row 1 of the batch has no padding
    assert (key_row(q, k, v, row, scale=0.4) - want)[1].abs().max() < 1e-5


def test_it_compiles_whole():
    q, k, v, row = made((4, 1), (40, 40), torch.float32)
    q.requires_grad_()
    run = torch.compile(lambda q: key_row(q, k, v, row, scale=0.4), fullgraph=True, backend="aot_eager")
    assert torch.allclose(run(q), key_row(q, k, v, row, scale=0.4))


def test_what_does_not_fit_is_said():
    q, k, v, row = made((6, 6), (9, 9), torch.float32)
    with pytest.raises(ValueError, match=r"shape \(1 or 2, 1 or 6, 1, 9\), got \(2, 6, 1, 8\)"):
        key_row(q, k, v, row[..., :8], scale=1.0)
    with pytest.raises(ValueError, match="requires a gradient"):
        key_row(q, k, v, row.nan_to_num().requires_grad_(), scale=1.0)
    with pytest.raises(ValueError, match="9 queries can't be the last of 8 keys"):
        key_row(q, k[:, :, :8], v[:, :, :8], row[..., :8], scale=1.0)
