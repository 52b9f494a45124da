"""FoX against a loop over pairs of tokens, x-transformers' data-dependent ALiBi, and ALiBi itself; and its fast path."""

import math

import pytest
import torch
from x_transformers.x_transformers import DataDependentAlibi

from milepost import ALiBi, FoX, KVCache, Layout, attend, build
from milepost.attention import explain
from milepost.attention.backends.keyed import STRIP
from milepost.testing import randomised_copy

EPS = 2.0**-52


def tokens(n, heads=3, width=12, batch=1, groups=None, dtype=torch.float64):
    generator = torch.Generator().manual_seed(n)
    shapes = [(batch, heads, n, 8), (batch, groups or heads, n, 8), (batch, groups or heads, n, 8), (batch, n, width)]
    return [torch.randn(s, generator=generator, dtype=torch.float64).to(dtype) for s in shapes]


def by_hand(enc, q, k, v, x, i):
    """The output of the query at i, one head after another, gates multiplied one by one as the paper's recurrence does."""
    rows = []
    for h in range(q.shape[1]):
        weights, faded = [], 1.0
        for j in range(i, -1, -1):
            weights.append(faded * math.exp(float(q[0, h, i] @ k[0, h, j]) / math.sqrt(8)))
            logit = float(enc.to_gates.weight[h] @ x[0, j] + enc.to_gates.bias[h])
            faded *= 1 / (1 + math.exp(-logit))  # the gate of j fades all before j
        total = sum(weights)
        rows.append(sum(w / total * v[0, h, i - d] for d, w in enumerate(weights)))
    return torch.stack(rows)


@pytest.mark.parametrize("i", [0, 1, 2, 255, 256, 257])
def test_a_row_is_what_multiplying_gates_one_by_one_gives(i):
    enc = randomised_copy(FoX(3, 12))
    q, k, v, x = tokens(258)
    with torch.no_grad():
        out = attend(q, k, v, enc, features=enc.features(x, torch.arange(258)))
        assert (out[0, :, i] - by_hand(enc, q, k, v, x, i)).abs().max() < 64 * 258 * EPS


def test_equal_gates_are_alibi():
    enc, slope = FoX(2, 4), 0.25
    torch.nn.init.zeros_(enc.to_gates.weight)
    torch.nn.init.constant_(enc.to_gates.bias, -math.log(math.exp(slope) - 1))  # log sigmoid = -slope
    q, k, v, x = tokens(40, heads=2, width=4, dtype=torch.float64)
    enc = enc.double()
    bias = ALiBi(2, slopes=(slope, slope))
    same = attend(q, k, v, enc, features=enc.features(x, torch.arange(40))) - attend(q, k, v, bias)
    assert same.abs().max() < 1e-6  # the bias of a float32 module, made float64


def test_logits_are_those_of_x_transformers():
    theirs = DataDependentAlibi(dim=12, heads=3)
    enc = FoX(3, 12, start=5.0)
    enc.to_gates.load_state_dict(theirs.to_forget_gates[0].state_dict())
    x, zero = torch.randn(2, 50, 12), torch.zeros(2, 3, 50, 8)
    logits = attend(zero, zero, zero, enc, features=enc.features(x, torch.arange(50)), details=True).logits
    wanted = theirs(x)
    seen = torch.ones(50, 50, dtype=torch.bool).tril()
    assert (logits - wanted)[..., seen].abs().max() < 50 * 2.0**-23 * wanted.abs().max()


def test_gates_open_where_the_bias_says():
    assert FoX(2, 4).to_gates.bias.tolist() == [0.0, 0.0] and FoX(2, 4, start=5.0).to_gates.bias.tolist() == [5.0, 5.0]


# -- the fast path ----------------------------------------------------------------------------------------------------


def test_auto_takes_the_row_of_gates_and_says_so():
    enc = FoX(4, 12)
    q, k, v, _ = tokens(30, heads=4, groups=2, dtype=torch.float32)
    assert explain(q, k, v, enc).backend == "keyed"
    assert explain(q, k, v, build("rope + fox", heads=4, head_dim=8, width=12)).backend == "keyed"
    assert "besides the gate, bias" in explain(q, k, v, build("alibi + fox", heads=4, width=12)).why
    window = Layout.dense(30, window=5)
    assert "sliding window" in explain(q, k, v, enc, at=window).why


@pytest.mark.slow
@pytest.mark.parametrize(
    ("queries", "keys"), [(STRIP + 70, STRIP + 70), (700, 2 * STRIP + 300), (2 * STRIP + 1, 2 * STRIP + 1)]
)
def test_strips_equal_the_reference_with_all_gradients(queries, keys):
    enc = randomised_copy(FoX(2, 6))
    at, to = Layout.dense(queries, start=keys - queries), Layout.dense(keys)
    generator, outs = torch.Generator().manual_seed(0), []
    q, k, v = (torch.randn(1, 2, n, 8, dtype=torch.float64, generator=generator) for n in (queries, keys, keys))
    x, weight = (torch.randn(s, dtype=torch.float64, generator=generator) for s in ((1, keys, 6), (1, 2, queries, 8)))
    for backend in ("reference", "keyed"):
        learn = [t.clone().requires_grad_() for t in (q, k, v, x)]
        g = enc.features(learn[3], to.pos)
        out = attend(*learn[:3], enc, at=at, to=to, features=(g[:, keys - queries :], g), backend=backend)
        outs.append([out, *torch.autograd.grad((out * weight).sum(), [*learn, *enc.parameters()])])
    for a, b in zip(*outs, strict=True):
        assert (a - b).abs().max() <= 64 * keys * EPS * max(1.0, a.abs().max().item())


def test_float32_stays_exact_however_long_the_sum_of_gates_has_become():
    """Gates of e^-3 a token: after 4000 tokens the sum is 12000, where float32 has steps of 1e-3."""
    enc = FoX(1, 2, start=-3.0)
    torch.nn.init.zeros_(enc.to_gates.weight)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 1, 4000, 8, generator=generator) for _ in range(3))
    f = enc.features(torch.zeros(1, 4000, 2), torch.arange(4000))
    with torch.no_grad():
        fast = attend(q, k, v, enc, features=f, backend="keyed")
        exact = attend(q.double(), k.double(), v.double(), enc.double(), features=f.double(), backend="reference")
        cache = KVCache(enc)
        cache.decode(q[:, :, :3900], k[:, :, :3900], v[:, :, :3900], features=f[:, :3900].float())
        last = [
            cache.decode(q[:, :, t : t + 1], k[:, :, t : t + 1], v[:, :, t : t + 1], features=f[:, t : t + 1].float())
            for t in range(3900, 4000)
        ]
    half_a_strip = STRIP / 2 * 3.05  # how far a gate may be from the strip's origin
    permitted = 2 * half_a_strip * 2.0**-24 * v.abs().max()
    assert (fast - exact).abs().max() < permitted
    assert (torch.cat(last, dim=2) - exact[:, :, 3900:]).abs().max() < permitted
    in_float32 = f[0, :, 0].cumsum(0).float()
    assert (in_float32.double() - f[0, :, 0].double().cumsum(0)).abs().max() > 1e-4  # the mistake that this is not


def test_a_shard_of_the_heads_equals_the_whole():
    enc = randomised_copy(FoX(4, 12))
    q, k, v, x = tokens(20, heads=4)
    f = enc.features(x, torch.arange(20))
    whole = attend(q, k, v, enc, features=f)
    for backend in ("auto", "reference", "chunked"):
        shard = attend(q[:, 2:], k[:, 2:], v[:, 2:], enc, features=f, first_head=2, backend=backend)
        assert (shard - whole[:, 2:]).abs().max() < 1e-14
