"""GRAPE against mpmath's exponential of its generator, which knows of no planes; and its special cases."""

import math

import mpmath
import numpy as np
import pytest
import torch

from milepost import GRAPE, ALiBi, FoX, GRAPEAdditive, KVCache, Layout, RoPE, attend
from milepost.testing import LAWS, check_encoding

EPS = torch.finfo(torch.float64).eps
POSITIONS = [0, 1, 2, 7, 63, 512, 4095, -3]


def learned(**named) -> GRAPE:
    """Planes as training may leave them: at random, not orthogonal."""
    torch.manual_seed(3)
    enc = GRAPE(**named).double()
    with torch.no_grad():
        enc.vectors.copy_(torch.randn_like(enc.vectors))
        enc.alpha.copy_(0.5 * torch.randn_like(enc.alpha))
    return enc


def generator(enc: GRAPE, head: int) -> mpmath.matrix:
    """L from the learned vectors, made orthonormal by Gram and Schmidt's own loop, to 40 digits."""
    basis = []
    for column in enc.vectors[head].detach().T.tolist():
        vector = mpmath.matrix(column)
        for earlier in basis:
            vector -= (vector.T * earlier)[0] * earlier
        basis.append(vector / mpmath.norm(vector))
    count = len(basis) // 2
    total = mpmath.zeros(enc.head_dim)
    for i, (a, b) in enumerate(zip(basis[:count], basis[count:], strict=True)):
        w = mpmath.mpf(enc.base) ** (-mpmath.mpf(i) / count) * mpmath.exp(enc.alpha[head, i].item())
        total += w * (b * a.T - a * b.T)
    return total


@pytest.mark.parametrize(("planes", "key_heads"), [(None, None), (1, None), (2, 1)])
def test_a_position_acts_as_the_exponential_of_its_generator(planes, key_heads):
    enc = learned(heads=2, head_dim=6, base=500.0, planes=planes, key_heads=key_heads)
    q, k = torch.randn(1, 2, len(POSITIONS), 6).double(), torch.randn(1, key_heads or 2, len(POSITIONS), 6).double()
    for x, y in ((q, enc.query(q, torch.tensor(POSITIONS))), (k, enc.key(k, torch.tensor(POSITIONS)))):
        for head in range(x.shape[1]):
            with mpmath.workdps(40):
                skew = generator(enc, head if key_heads is None else 0)
                acts = [mpmath.expm(p * skew) * mpmath.matrix(x[0, head, t].tolist()) for t, p in enumerate(POSITIONS)]
                speed = float(mpmath.norm(skew))
            for t, p in enumerate(POSITIONS):
                want = np.array([float(n) for n in acts[t]])
                error = np.abs(y[0, head, t].detach().numpy() - want).max()
                bound = (
                    (8 * abs(p) * speed + 64) * EPS * np.linalg.norm(want)
                )  # of an angle, and of an orthonormal basis
                assert error <= bound, (head, p)
                assert p == 0 or np.abs(want - x[0, head, t].numpy()).max() > 1e3 * bound


def test_one_plane_is_the_papers_closed_form():
    """exp(L) = 1 + sin(s)/s L + (1 - cos s)/s^2 L^2, with L = b a^T - a b^T and s^2 = |a|^2 |b|^2 - (a·b)^2."""
    enc = learned(heads=1, head_dim=5, planes=1)
    a, b = enc.vectors[0].detach().numpy().T
    s = math.sqrt(a @ a * (b @ b) - (a @ b) ** 2)
    skew = np.outer(b, a) - np.outer(a, b)
    x = torch.randn(1, 1, 1, 5).double()
    angle = 9 * math.exp(enc.alpha[0, 0].item())
    want = x[0, 0, 0].numpy() @ (np.eye(5) + math.sin(angle) / s * skew + (1 - math.cos(angle)) / s**2 * skew @ skew).T
    got = enc.key(x, torch.tensor([9])).detach()[0, 0, 0].numpy()
    assert np.abs(got - want).max() <= 64 * EPS * np.linalg.norm(want) * (1 + angle)


@pytest.mark.parametrize(("planes", "rotary"), [(None, None), (3, 6)])
def test_it_starts_as_rope(planes, rotary):
    x, pos = torch.randn(2, 4, 5, 16).double(), torch.tensor([0, 1, 257, 4096, 131071])
    rope, grape = RoPE(16, base=5e5, rotary=rotary), GRAPE(heads=4, head_dim=16, base=5e5, planes=planes).double()
    assert (grape.query(x, pos) - rope.query(x, pos)).abs().max() <= 131071 * 4 * EPS * x.abs().max()
    assert (grape.query(x, pos) - x)[:, :, 1:].abs().max() > 0.5


def test_learned_planes_pass_the_laws():
    enc = learned(heads=4, head_dim=8).float()
    assert check_encoding(enc, [law for law in LAWS if law.__name__ not in ("compiles", "backends_agree")]).ok


def test_planes_and_speeds_learn():
    enc = learned(heads=2, head_dim=6)
    q, k, v = (torch.randn(1, 2, 7, 6).double() for _ in range(3))
    attend(q, k, v, enc, at=Layout.dense(7)).square().sum().backward()
    assert enc.vectors.grad.abs().max() > 1e-4 and enc.alpha.grad.abs().max() > 1e-4
    with torch.no_grad():
        before = attend(q, k, v, enc, at=Layout.dense(7))
        step = 1e-6 * torch.randn_like(enc.vectors)
        wanted = (enc.vectors.grad * step).sum()
        enc.vectors += step
        change = attend(q, k, v, enc, at=Layout.dense(7)).square().sum() - before.square().sum()
    assert abs(change - wanted) <= 1e-4 * abs(wanted) + 1e-11


def test_casts_keep_planes_and_speeds():
    enc = learned(heads=2, head_dim=6).float()
    before = enc.basis()
    assert torch.equal(enc.to(torch.bfloat16).basis(), before) and enc.alpha.dtype == torch.float32
    assert enc.query(torch.randn(1, 2, 1, 6, dtype=torch.bfloat16), torch.tensor([5])).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"heads": 2, "head_dim": 6, "planes": 4}, "room for 1 to 3 planes, got 4"),
        ({"heads": 2, "head_dim": 1}, "room for 1 to 0 planes"),
        ({"heads": 4, "head_dim": 6, "key_heads": 3}, "must share 4 query heads evenly, got 3"),
        ({"heads": 0, "head_dim": 6}, "heads must be at least 1"),
    ],
)
def test_bad_arguments_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        GRAPE(**given)
    with pytest.raises(ValueError, match="planes for 4 heads that share 2, got 3 heads"):
        GRAPE(heads=4, head_dim=6, key_heads=2).query(torch.randn(1, 3, 1, 6), torch.tensor([0]))


# -- the additive half --------------------------------------------------------------------------------------------


def additive(gates: str, heads: int = 4, width: int = 8) -> tuple[GRAPEAdditive, torch.Tensor]:
    torch.manual_seed(5)
    enc = GRAPEAdditive(heads, width, gates).double()
    with torch.no_grad():
        enc.omega.copy_(torch.randn(heads))
        enc.to_gates.weight.copy_(torch.randn_like(enc.to_gates.weight))
    return enc, torch.randn(2, 9, width).double()


@pytest.mark.parametrize("gates", ["both", "query", "key"])
def test_logits_are_those_of_two_more_channels_moved_by_the_papers_group(gates):
    """q -> [q; 1; 0] and k -> [k; 0; 1], and 1 - (j - i) A^T with A = -rate e e^T between them (eq. 4.2 to 4.6)."""
    enc, x = additive(gates)
    f, i = enc.features(x, torch.arange(9)).detach(), torch.arange(9)
    got = enc.weigh(torch.arange(4), f, f, i[:, None], i[None, :]).detach()
    weight = enc.to_gates.weight.detach()
    mine, theirs = weight[:4], weight[-4:]
    soft = torch.nn.functional.softplus
    for b in range(2):
        for h in range(4):
            slope = 2.0 ** (-8 * (h + 1) / 4) * math.log1p(math.exp(enc.omega[h].item()))
            for query in range(9):
                for key in range(9):
                    rate = slope * (
                        (soft(x[b, query] @ mine[h]).item() if gates != "key" else 0.0)
                        + (soft(x[b, key] @ theirs[h]).item() if gates != "query" else 0.0)
                    )
                    lifted = np.eye(2)
                    lifted[0, 1] += (key - query) * rate
                    want = np.array([1.0, 0.0]) @ lifted @ np.array([0.0, 1.0])
                    assert abs(got[b, h, query, key] - want) <= 32 * EPS * (abs(want) + 1)


def test_gates_that_are_alike_are_alibi():
    enc, x = additive("both")
    with torch.no_grad():
        enc.to_gates.weight.zero_()  # softplus(0) twice
    q, k, v = (torch.randn(2, 4, 9, 6).double() for _ in range(3))
    f = enc.features(x, torch.arange(9))
    slopes = tuple(
        2.0 ** (-2 * (h + 1)) * math.log1p(math.exp(enc.omega[h].item())) * 2 * math.log(2) for h in range(4)
    )
    want = attend(q, k, v, ALiBi(4, slopes=slopes), at=Layout.dense(9))
    assert (attend(q, k, v, enc, at=Layout.dense(9), features=f) - want).abs().max() <= 1e-13
    assert (want - attend(q, k, v, FoX(4, 8).double(), at=Layout.dense(9), features=f[..., :4])).abs().max() > 1e-3


@pytest.mark.parametrize("gates", ["both", "query", "key"])
def test_a_cache_decodes_what_one_pass_reads(gates):
    enc, x = additive(gates)
    q, k, v = (torch.randn(2, 4, 9, 6).double() for _ in range(3))
    f = enc.features(x, torch.arange(9)).detach()
    whole, cache = attend(q, k, v, enc, at=Layout.dense(9), features=f), KVCache(enc)
    for t in range(9):
        row = cache.decode(*(a[:, :, t : t + 1] for a in (q, k, v)), features=f[:, t : t + 1])
        assert (row - whole[:, :, t : t + 1]).abs().max() <= 1e-13


def test_gates_have_three_kinds():
    with pytest.raises(ValueError, match="gates must be"):
        GRAPEAdditive(4, 8, "all")
