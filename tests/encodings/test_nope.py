"""NoPE against q·k / sqrt(D) summed channel by channel in plain Python, at positions that must not matter."""

import math

import pytest
import torch

from milepost import Encoding, Layout, NoPE, attend, build

EPS = torch.finfo(torch.float64).eps
FAR = torch.tensor([0, 1, 2, 255, 256, 257, 131071, 1048575])


def test_every_hook_hands_back_the_very_tensor_it_got():
    enc, x, q = NoPE(), torch.randn(2, 8, 6), torch.randn(2, 3, 8, 4)
    s = torch.randn(2, 3, 8, 8)
    assert enc.embed(x, FAR) is x
    assert enc.query(q, FAR) is q
    assert enc.key(q, FAR) is q
    assert enc.rescore(s, q, q, FAR[:, None], FAR) is s
    assert torch.equal(enc.bias(torch.arange(3)[:, None, None], FAR[:, None], FAR), torch.zeros(()))
    assert torch.equal(enc.output(s, FAR[:, None], FAR), torch.zeros(()))


def test_logits_are_plain_dot_products_whatever_the_positions_say():
    q, k, v = (torch.randn(2, 3, 8, 4, dtype=torch.float64) for _ in range(3))
    logits = attend(q, k, v, NoPE(), at=Layout.dense(8).with_positions(FAR), backend="reference", details=True).logits
    for b in range(2):
        for h in range(3):
            for i in range(8):
                for j in range(8):
                    terms = [q[b, h, i, c].item() * k[b, h, j, c].item() for c in range(4)]
                    want = sum(terms) / math.sqrt(4) if j <= i else -math.inf
                    got = logits[b, h, i, j].item()
                    assert got == want or abs(got - want) <= 4 * EPS * sum(map(abs, terms)), (
                        b,
                        h,
                        i,
                        j,
                    )  # four products, four roundings


def test_without_a_mask_the_order_of_tokens_is_invisible():
    q, k, v = (torch.randn(1, 2, 8, 4, dtype=torch.float64) for _ in range(3))
    order = torch.tensor([3, 0, 7, 1, 6, 2, 5, 4])
    straight = attend(q, k, v, NoPE(), causal=False, backend="reference")
    shuffled = attend(q[:, :, order], k[:, :, order], v[:, :, order], NoPE(), causal=False, backend="reference")
    torch.testing.assert_close(
        shuffled, straight[:, :, order], rtol=0, atol=32 * EPS * v.abs().max().item()
    )  # sums of 8 in another order
    under_a_mask = attend(q[:, :, order], k[:, :, order], v[:, :, order], NoPE(), backend="reference")
    assert not torch.allclose(under_a_mask, attend(q, k, v, NoPE(), backend="reference")[:, :, order], atol=1e-3)


def test_nope_is_the_base_class_and_names_no_point():
    assert NoPE().points == () == Encoding().points
    assert repr(NoPE()) == "nope()"
    assert isinstance(build("nope"), NoPE)
    assert attend(*(torch.randn(1, 1, 3, 2) for _ in range(3))).shape == (1, 1, 3, 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.bool])
def test_positions_that_cannot_count_are_refused_even_here(dtype):
    with pytest.raises(ValueError, match="positions"):
        NoPE().check(torch.ones(3).to(dtype))
