"""FIRE against the plain two-layer ReLU network, run for every pair of tokens: in Python numbers for values, in
torch for gradients.
"""

import math

import pytest
import torch

from milepost import FIRE, Layout, attend, build

EPS = torch.finfo(torch.float64).eps
L = 512
POSITIONS = [0, 1, 2, 255, 256, 257, L - 1, L, L + 1, 4 * L, 131071, 1048575]


def randomised(heads: int, **more) -> FIRE:
    enc = FIRE(heads, **more).double()
    with torch.no_grad():
        for weight in (enc.inner.weight, enc.inner.bias, enc.outer.weight, enc.outer.bias):
            weight.normal_()
        enc.inner.bias.copy_(
            -enc.inner.weight[:, 0] * torch.rand(enc.hidden, dtype=torch.float64)
        )  # every unit turns on or off between 0 and 1
        enc.inner.weight[0] = 0.0  # a dead weight: the unit is a constant
        enc.inner.bias[0] = 0.7
        enc.slant.fill_(0.23)
        enc.start.fill_(L + 0.5)
    return enc


def share(enc: FIRE, i: float, j: float) -> float:
    c, start = enc.slant.item(), abs(enc.start.item())
    return math.log1p(abs(c * (i - j))) / math.log1p(abs(c * max(i, start)))


def network(enc: FIRE, h: int, x: float) -> tuple[float, float]:
    """The output for head h, and the sum of sizes of what was added up."""
    row = 0 if enc.shared else h
    total = enc.outer.bias[row].item()
    size = abs(total)
    for u in range(enc.hidden):
        w, b, out = enc.inner.weight[u, 0].item(), enc.inner.bias[u].item(), enc.outer.weight[row, u].item()
        total += out * max(w * x + b, 0.0)
        size += abs(out) * (abs(w * x) + abs(b))
    return total, size


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("hidden", [1, 8, 32])
def test_the_bias_is_the_networks_for_every_head_and_pair(hidden, shared):
    enc, p = randomised(3, hidden=hidden, shared=shared), torch.tensor(POSITIONS)
    got = enc.bias(torch.arange(3)[:, None, None], p[:, None], p)
    for h in range(3):
        for a, i in enumerate(POSITIONS):
            for b, j in enumerate(POSITIONS[: a + 1]):
                want, size = network(enc, h, share(enc, i, j))
                assert abs(got[h, a, b].item() - want) <= (hidden + 16) * EPS * size, (
                    h,
                    i,
                    j,
                )  # a sum of `hidden` terms in another order


def test_the_threshold_separates_fixed_from_growing_reach():
    enc = randomised(1)
    h = torch.tensor(0)
    assert (
        enc.bias(h, torch.tensor(300), torch.tensor(200)).item()
        == enc.bias(h, torch.tensor(500), torch.tensor(400)).item()
    )
    assert (
        enc.bias(h, torch.tensor(600), torch.tensor(500)).item()
        != enc.bias(h, torch.tensor(700), torch.tensor(600)).item()
    )


def test_a_negative_slope_or_threshold_acts_by_its_size():
    enc, p = randomised(2), torch.tensor(POSITIONS)
    before = enc.bias(torch.arange(2)[:, None, None], p[:, None], p)
    with torch.no_grad():
        enc.slant.neg_()
        enc.start.neg_()
    assert torch.equal(enc.bias(torch.arange(2)[:, None, None], p[:, None], p), before)


def test_the_pieces_meet_at_their_edges():
    enc = randomised(2, hidden=8)
    edges, slope, offset = enc.pieces()
    for n, edge in enumerate(edges.tolist()):
        if math.isinf(edge):
            continue
        for h in range(2):
            want, size = network(enc, h, edge)
            for piece in (n, n + 1):
                assert abs((slope[h, piece] * edge + offset[h, piece]).item() - want) <= 24 * EPS * size


def test_the_starting_values_are_those_of_released_code():
    enc = FIRE(4)
    assert (enc.slant.item(), enc.start.item(), enc.hidden) == (pytest.approx(0.1, rel=1e-7), 512.0, 32)
    assert sum(p.numel() for p in enc.parameters()) == (4 + 2) * 32 + 4 + 2


def test_logits_in_attention_are_scores_plus_the_networks_output():
    enc, rows = randomised(2), [11, 3, 8]
    q, k, v = (torch.randn(1, 2, 12, 4, dtype=torch.float64) for _ in range(3))
    to = Layout.dense(12).with_positions(torch.tensor(POSITIONS))
    at, q = to.take(torch.tensor(rows)), q[:, :, rows]
    logits = attend(q, k, v, enc, at=at, to=to, backend="reference", details=True).logits
    for h in range(2):
        for i, row in enumerate(rows):
            for j in range(row + 1):
                score = sum(q[0, h, i, c].item() * k[0, h, j, c].item() for c in range(4)) / 2
                bias, size = network(enc, h, share(enc, POSITIONS[row], POSITIONS[j]))
                assert abs(logits[0, h, i, j].item() - score - bias) <= 64 * EPS * (size + 8)


def test_every_parameter_learns_as_in_the_plain_network():
    enc = randomised(3, hidden=8)
    i, j = torch.tensor(POSITIONS)[:, None].double(), torch.tensor(POSITIONS).double()
    seen, weight = (j <= i).double(), torch.randn(3, 12, 12, dtype=torch.float64)
    (enc.bias(torch.arange(3)[:, None, None], i, j) * weight * seen).sum().backward()
    ours = {name: p.grad.clone() for name, p in enc.named_parameters()}
    enc.zero_grad()
    x = torch.log((enc.slant * (i - j)).abs() + 1) / torch.log(
        (enc.slant * torch.maximum(i, enc.start.abs())).abs() + 1
    )
    plain = enc.outer(torch.relu(enc.inner(x[..., None]))).permute(2, 0, 1)
    (plain * weight * seen).sum().backward()
    assert ours.keys() == {"slant", "start", "inner.weight", "inner.bias", "outer.weight", "outer.bias"}
    for name, parameter in enc.named_parameters():
        room = (
            2 * 144 * 8 * EPS * max(1.0, parameter.grad.abs().max().item())
        )  # 144 pairs of 8 units are summed, in another order
        torch.testing.assert_close(
            ours[name], parameter.grad, rtol=0, atol=room, msg=lambda text, name=name: f"{name}: {text}"
        )


def test_fractional_positions_have_distances():
    enc = randomised(1)
    want, size = network(enc, 0, share(enc, 700.5, 3.25))
    got = enc.bias(
        torch.tensor(0), torch.tensor(700.5, dtype=torch.float64), torch.tensor(3.25, dtype=torch.float64)
    ).item()
    assert abs(got - want) <= 64 * EPS * size


@pytest.mark.parametrize(
    "argument", [{"threshold": 1e-320}, {"c": 1e-320}, {"threshold": 1e300}, {"c": 1e-30, "threshold": 1e-30}]
)
def test_numbers_that_float32_does_not_hold_are_refused(argument):
    with pytest.raises(ValueError, match="float32 holds no c="):
        FIRE(heads=4, **argument)


@pytest.mark.parametrize("argument", [{"heads": 0}, {"hidden": 0}, {"threshold": 0.0}, {"c": 0.0}, {"c": float("nan")}])
def test_bad_arguments_are_refused(argument):
    with pytest.raises(ValueError, match="FIRE needs heads, hidden >= 1 and threshold, c > 0"):
        FIRE(**{"heads": 1, **argument})


def test_bad_use_is_refused():
    x = torch.randn(1, 2, 3, 2)
    with pytest.raises(ValueError, match="causal=True"):
        attend(x, x, x, FIRE(2), causal=False)
    with pytest.raises(ValueError, match="is for 3 heads, q has 2"):
        attend(x, x, x, FIRE(3))
    with pytest.raises(ValueError, match="before position 0"):
        attend(x, x, x, FIRE(2), at=Layout.dense(3).with_positions(torch.tensor([-1, 0, 1])))


def test_its_text_builds_it_again():
    text = "fire(heads=4, hidden=8, threshold=64.0, c=0.5, shared=True)"
    assert repr(build(text)) == text
