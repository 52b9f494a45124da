"""No I x J tensor on the fast paths, watched at every operator; and extra memory that grows with the length alone."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from milepost import Layout, attend, build


class Largest(TorchDispatchMode):
    """Remembers the most bytes that any operator's own output has taken."""

    def __init__(self):
        super().__init__()
        self.numbers, self.where = 0, ""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for t in tree_leaves(out):
            if isinstance(t, torch.Tensor):
                held = t.untyped_storage().nbytes() // t.element_size()
                if held > self.numbers:
                    self.numbers, self.where = held, str(function)
        return out


def largest(enc, n, training):
    q, k, v = (torch.randn(1, 2, n, 16, requires_grad=training) for _ in range(3))
    at = Layout.dense(n)
    with Largest() as watch:
        out = attend(q, k, v, enc, at=at)
        if training:
            torch.autograd.grad(out.sum(), [q, k, v, *enc.parameters()])
    return watch.numbers, watch.where


@pytest.mark.parametrize("training", [False, True], ids=["forward", "training"])
@pytest.mark.parametrize(
    "spec", ["rope", "alibi", "t5", "kerple", "sandwich", "rope + alibi", "shaw", "transformer_xl", "deberta", "fire"]
)
def test_no_quadratic_tensor_is_allocated_on_a_fast_path(spec, training):
    n = 3000
    numbers, where = largest(build(spec, heads=2, head_dim=16, width=32), n, training)
    assert numbers < n * n / 4, f"{where} made {numbers} numbers, n x n is {n * n}"


@pytest.mark.parametrize("spec", ["alibi", "t5"])
def test_the_largest_tensor_grows_no_faster_than_the_length(spec):
    enc = build(spec, heads=2, head_dim=16)
    (short, _), (long, _) = largest(enc, 2048, True), largest(enc, 4096, True)
    assert long <= 2.1 * short


@pytest.mark.parametrize("spec", ["cope", "shaw + fire", "shaw + deberta(buckets=32, span=64)"])
def test_chunked_memory_is_a_chunk_of_rows_times_the_length(spec, monkeypatch):
    from milepost.attention.backends import chunked

    monkeypatch.setattr(chunked, "NUMBERS", 1 << 16)
    n = 1024
    numbers, where = largest(build(spec, heads=2, head_dim=16, width=32), n, True)
    assert numbers < 2 * n * n / 4, f"{where} made {numbers} numbers, H x n x n is {2 * n * n}"
