"""PoPE against plain sums over channels with mpmath, and against x-transformers."""

import importlib
import math

import mpmath
import pytest
import torch

from milepost import Layout, PoPE, attend, build

EPS = torch.finfo(torch.float64).eps
PLACES = [0, 1, 2, 255, 256, 257, 131071, 1048575]


def drawn(heads: int, head_dim: int, **given) -> PoPE:
    enc = PoPE(heads, head_dim, **given).double()
    with torch.no_grad():
        enc.delta.copy_(-2 * math.pi * torch.rand(heads, head_dim))
    return enc


def test_a_logit_is_the_sum_of_sizes_times_the_cosine_of_the_offset():
    enc, heads, D = drawn(2, 5, base=500.0), 2, 5
    q, k, v = (torch.randn(1, heads, len(PLACES), D, dtype=torch.float64) for _ in range(3))
    at = Layout.dense(len(PLACES)).with_positions(torch.tensor(PLACES))
    logits = attend(q, k, v, enc, at=at, backend="reference", details=True).logits.detach()
    for h in range(heads):
        for a, m in enumerate(PLACES):
            for b, n in enumerate(PLACES[: a + 1]):
                want, size = mpmath.mpf(0), 0.0
                for c in range(D):
                    big = mpmath.log1p(mpmath.exp(q[0, h, a, c].item())) * mpmath.log1p(
                        mpmath.exp(k[0, h, b, c].item())
                    )
                    w = mpmath.mpf(500) ** (-mpmath.mpf(c) / D)
                    want += big * mpmath.cos((m - n) * w - mpmath.mpf(enc.delta[h, c].item()))
                    size += float(big)
                off = abs(logits[0, h, a, b].item() - float(want) / math.sqrt(D))
                assert off <= (4 * m + 64) * EPS * size, (h, m, n)


def test_x_transformers_scores_as_we_do():
    xt = importlib.import_module("x_transformers.x_transformers")
    peer, ours, n, D = xt.PolarEmbedding(16, 3), PoPE(3, 16), 40, 16
    with torch.no_grad():
        ours.delta.copy_(-2 * math.pi * torch.rand(3, D))
        peer.learned_bias.copy_(ours.delta[:, None])
    q, k, v = (torch.randn(2, 3, n, D) for _ in range(3))
    freqs, bias = peer(torch.arange(n) * 3)
    theirs = xt.apply_polar_pos_emb(q, freqs) @ xt.apply_polar_pos_emb(k, freqs + bias).transpose(-1, -2)
    at = Layout.dense(n).with_positions(torch.arange(n) * 3)
    got = attend(q, k, v, ours, at=at, causal=False, scale=1.0, backend="reference", details=True).logits.detach()
    size = torch.nn.functional.softplus(q) @ torch.nn.functional.softplus(k).transpose(-1, -2)
    room = (4 * 3 * n + 16) * 2**-24 * size  # their angles are float32: 4 roundings of the largest, 120
    assert ((got - theirs.detach()).abs() <= room).all()
    assert (got - size).abs().max() > 1.0  # positions matter


def test_content_has_no_phase():
    enc, n = PoPE(1, 8).double(), 6
    q, k, v = (torch.full((1, 1, n, 8), value, dtype=torch.float64) for value in (0.3, -2.0, 1.0))
    logits = attend(q, k, v, enc, at=Layout.dense(n), backend="reference", details=True).logits[0, 0].detach()
    assert logits.diagonal().max() - logits.diagonal().min() <= 64 * EPS
    assert (logits.diagonal() >= logits[-1]).all() and (logits[-1] > -math.inf).all()  # the peak stays where it is


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heads": 0, "head_dim": 8}, "heads and head_dim must be at least 1"),
        ({"heads": 2, "head_dim": 8, "base": 1.0}, "base must be a finite number above 1"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        PoPE(**arguments)


def test_its_text_builds_it_again():
    assert repr(build("pope(base=500.0)", heads=2, head_dim=7)) == "pope(heads=2, head_dim=7, base=500.0)"
