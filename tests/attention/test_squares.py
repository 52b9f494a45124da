"""Texts that are short enough to hold all their weights: the same numbers as the reference, and as the bands of long texts."""

import pytest
import torch
from torch import Tensor

from milepost import Layout, attend, build
from milepost.attention.backends import squares

SPECS = (
    "shaw(clip=4, values=True)",
    "shaw(clip=300, values=True, shared=False)",
    "transformer_xl",
    "deberta(buckets=None, span=5)",
    "deberta(buckets=None, span=300, c2p=False)",
    "rope + deberta(buckets=4, span=9)",
    "relative_logits(extent=7)",
    "t5",
    "rope + kerple",
    "t5 + alibi",
)


def attended(spec: str, length: int, backend: str = "fast", batch: int = 3) -> list[Tensor]:
    """The output and every gradient, of drawn numbers."""
    generator = torch.Generator().manual_seed(length)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    torch.manual_seed(3)
    enc = build(spec, heads=4, head_dim=8, width=32).double()
    q, k, v = (drawn(batch, length, 4, 8).transpose(1, 2).requires_grad_() for _ in range(3))  # strided, as in a model
    x, weight, at = drawn(batch, length, 32), drawn(batch, 4, length, 8), Layout.dense(length)
    given = enc.features(x, at.pos) if enc.feature_count else None
    if backend == "fast":
        backend = "relative" if enc.content_dependent else "toeplitz"
    out = attend(q, k, v, enc, at=at, features=given, backend=backend)
    return [out.detach(), *torch.autograd.grad((out * weight).sum(), [q, k, v, *enc.parameters()])]


@pytest.mark.parametrize("length", [2, 3, 64, 128, 255, 256, 257])
@pytest.mark.parametrize("spec", SPECS)
def test_lengths_up_to_the_longest_and_past_it(spec, length, monkeypatch):
    seen: list[int] = []
    monkeypatch.setattr(squares, "squares", lambda q, *more: seen.append(q.shape[2]) or operator(q, *more))
    got, want = (attended(spec, length, name) for name in ("fast", "reference"))
    assert seen == ([length] if length <= squares.LONGEST else []), "the way that was meant was taken"
    for a, b in zip(got, want, strict=True):
        assert float((a - b).abs().max()) <= 1e-12 * max(1.0, float(b.abs().max()))


operator = squares.squares


@pytest.mark.parametrize("spec", SPECS)
def test_texts_that_are_done_together_do_not_meet(spec, monkeypatch):
    """Five texts by two, the last of them alone: what a view reads past its matrix belongs to another text."""
    whole = attended(spec, 33, "reference", batch=5)
    monkeypatch.setattr(squares, "TOGETHER", 2 * 4 * 33 * 33)
    for a, b in zip(attended(spec, 33, batch=5), whole, strict=True):
        assert float((a - b).abs().max()) <= 1e-12 * max(1.0, float(b.abs().max()))


def test_memory_that_was_never_written_reaches_no_number(monkeypatch):
    """Views of the terms read numbers of hidden pairs, which may be anything."""

    def filled(self: squares.Room, *shape: int) -> Tensor:
        return torch.full(shape, float("nan"), dtype=self.flat.dtype)

    want = [attended(spec, 40, "reference") for spec in SPECS]
    monkeypatch.setattr(squares.Room, "of", filled)
    for spec, numbers in zip(SPECS, want, strict=True):
        for a, b in zip(attended(spec, 40), numbers, strict=True):
            assert float((a - b).abs().max()) <= 1e-12 * max(1.0, float(b.abs().max())), spec


def test_weights_are_held_only_for_a_gradient():
    q = torch.randn(1, 2, 16, 8)
    vectors = torch.randn(2, 16, 8)
    _, held = operator(q, q, q, q, vectors, None, None, None, 0.3, 15, False)
    assert held.numel() == 0
    _, held = operator(q, q, q, q, vectors, None, None, None, 0.3, 15, True)
    assert held.shape == (1 * 2 * 16 * 16,)
    assert torch.allclose(held.view(2, 16, 16).sum(-1), torch.ones(2, 16))
    long = torch.randn(1, 2, 64, 8)
    _, held = operator(long, long, long, long, torch.randn(2, 64, 8), None, None, None, 0.3, 63, True)
    assert held.shape == (2 * (32 * 32 + 32 * 64),), "a quarter of all pairs is hidden from both steps, and not held"


def test_more_weights_than_may_be_held_go_by_bands(monkeypatch):
    monkeypatch.setattr(squares, "MOST", 3 * 4 * 40 * 40 - 1)
    monkeypatch.setattr(squares, "squares", None)
    attended("transformer_xl", 40)
    attended("t5", 40)


@pytest.mark.parametrize("spec", ["t5", "transformer_xl"])
@pytest.mark.parametrize("length", [5, 300])
def test_a_batch_without_texts_has_gradients_of_nothing(spec, length):
    enc = build(spec, heads=4, head_dim=8, width=32)
    q, k, v = (torch.randn(0, 4, length, 8, requires_grad=True) for _ in range(3))
    out = attend(q, k, v, enc)
    out.sum().backward()
    assert out.shape == q.shape == q.grad.shape
    assert all(p.grad is None or not p.grad.any() for p in enc.parameters())
