"""attend() compiles whole, with at most two graphs over three lengths, and gives the same numbers and gradients."""

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from milepost import Layout, attend, build
from milepost.testing import randomised_copy

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "spec",
    [
        "rope",
        "alibi",
        "t5",
        "kerple",
        "sandwich(size=8)",
        "rope + alibi",
        "fire",
        "shaw",
        "transformer_xl",
        "cope",
        "deberta(buckets=8, span=16)",
    ],
)
def test_attend_compiles_with_at_most_two_graphs_over_three_lengths(spec):
    torch._dynamo.reset()
    enc = randomised_copy(build(spec, heads=2, head_dim=8, width=16)).float()
    counter = CompileCounterWithBackend("aot_eager")

    def run(q, k, v):
        at = Layout.dense(q.shape[2])
        return attend(q, k, v, enc, at=at)

    compiled = torch.compile(run, fullgraph=True, dynamic=True, backend=counter)
    for n in (40, 56, 72):
        q, k, v = (torch.randn(1, 2, n, 8, requires_grad=True) for _ in range(3))
        one, two = run(q, k, v), compiled(q, k, v)
        assert torch.allclose(one, two, atol=2e-6)
        learn = [q, k, v, *enc.parameters()]
        weight = torch.randn_like(one)
        for a, b in zip(
            *(torch.autograd.grad((y * weight).sum(), learn, allow_unused=True) for y in (one, two)), strict=True
        ):
            if a is not None:
                assert torch.allclose(a, b, atol=1e-5 * max(1.0, a.abs().max().item()))
    assert counter.frame_count <= 2
    torch._dynamo.reset()


@pytest.mark.parametrize("spec", ["alibi", "t5"])
def test_inductor_gives_the_same_numbers(spec):
    torch._dynamo.reset()
    enc = build(spec, heads=2)

    def run(q):
        return attend(q, q, q, enc)

    compiled = torch.compile(run, fullgraph=True, dynamic=True)
    for n in (1100, 1300):
        q = torch.randn(1, 2, n, 8)
        assert torch.allclose(run(q), compiled(q), atol=2e-6)
    torch._dynamo.reset()
