"""Features that meet vectors of the distance: the backend `relative` runs them, and equals the reference."""

import pytest
import torch

from milepost import KVCache, Layout, RelativeLogits, attend, build

SPECS = (
    "relative_logits(extent=20)",
    "relative_logits(extent=20, floor=8)",
    "rope + relative_logits(extent=200)",
    "alibi + relative_logits(extent=33)",
)
LAYOUTS = {
    "one text": Layout.dense(230),
    "a window": Layout.dense(230).windowed(50),
    "packed": Layout.packed([90, 140]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("spec", SPECS)
def test_output_and_gradients_are_the_references(spec, layout):
    torch.manual_seed(0)
    at, enc = LAYOUTS[layout], build(spec, heads=4, head_dim=16, width=32).double()
    q, k, v = (torch.randn(2, h, 230, 16, dtype=torch.double, requires_grad=True) for h in (4, 2, 2))
    x = torch.randn(2, 230, 32, dtype=torch.double, requires_grad=True)
    found = []
    for backend in ("relative", "reference"):
        y = attend(q, k, v, enc, at=at, features=enc.features(x, at.pos), backend=backend)
        found.append([y.detach(), *torch.autograd.grad(y.square().sum(), (q, k, v, x, *enc.parameters()))])
    for got, want in zip(*found, strict=True):
        assert (got - want).abs().max() <= 1e-12 * want.abs().max()


@pytest.mark.parametrize("spec", SPECS)
@torch.no_grad()
def test_a_decode_goes_the_same_way(spec):
    enc = build(spec, heads=4, head_dim=16, width=32)
    q, k, v = (torch.randn(1, 4, 260, 16) for _ in range(3))
    f = enc.features(torch.randn(1, 260, 32), torch.arange(260))
    whole, cache = attend(q, k, v, enc, features=f, backend="reference"), KVCache(enc)
    for t in range(260):
        row = cache.decode(*(a[:, :, t : t + 1] for a in (q, k, v)), features=f[:, t : t + 1])
        assert (row - whole[:, :, t : t + 1]).abs().max() <= 2e-5


def test_a_subclass_that_weighs_otherwise_is_not_taken_for_it():
    class Twice(RelativeLogits):
        def weigh(self, h, f, g, i, j):
            return 2 * super().weigh(h, f, g, i, j)

    enc = Twice(4, 32, extent=20)
    q, k, v = (torch.randn(1, 4, 40, 16) for _ in range(3))
    f = enc.features(torch.randn(1, 40, 32), torch.arange(40)).detach()
    with pytest.raises(ValueError, match="not made of vectors of the distance"):
        attend(q, k, v, enc, features=f, backend="relative")
    want = attend(q, k, v, enc, features=f, backend="reference")
    assert (attend(q, k, v, enc, features=f) - want).abs().max() <= 1e-5
