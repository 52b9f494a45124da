"""ALiBi against the authors' recursive slope function and a plain loop over heads and pairs of tokens."""

import math

import pytest
import torch

from milepost import ALiBi, Layout, attend, build
from milepost.encodings.alibi import slopes
from milepost.positions import grid

EPS = torch.finfo(torch.float64).eps
POSITIONS = [0, 1, 2, 255, 256, 257, 511, 512, 513, 2048, 131071, 1048575]


def published(heads: int) -> list[float]:
    """`get_slopes` as the authors wrote it."""

    def power_of_two(n: int) -> list[float]:
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(heads).is_integer():
        return power_of_two(heads)
    closest = 2 ** math.floor(math.log2(heads))
    return power_of_two(closest) + published(2 * closest)[0::2][: heads - closest]


def all_bias(enc: ALiBi) -> torch.Tensor:
    p = torch.tensor(POSITIONS)
    return enc.bias(torch.arange(enc.heads)[:, None, None], p[:, None], p)


@pytest.mark.parametrize("heads", [1, 2, 3, 8, 12, 14, 16, 40, 71, 112])
def test_slopes_are_the_authors_for_any_number_of_heads(heads):
    assert slopes(heads) == pytest.approx(
        published(heads), rel=(heads + 4) * EPS
    )  # the authors multiply up to `heads` times
    assert tuple(ALiBi(heads).past_slopes.tolist()) == slopes(heads)


def test_golden_slopes_of_eight_heads():
    assert slopes(8) == (1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256)
    assert slopes(1) == (1 / 256,)


def test_golden_slopes_of_twelve_heads_are_not_the_naive_geometric_ones():
    assert slopes(12)[:8] == slopes(8)
    assert slopes(12)[8:] == pytest.approx([0.707107, 0.353553, 0.176777, 0.088388], abs=5e-7)  # printed to six places
    assert all(abs(m - 0.629961) > 1e-3 for m in slopes(12))


@pytest.mark.parametrize("heads", [12, 14, 40, 71])
def test_slopes_are_the_set_that_mpt_makes_from_the_power_of_two_above(heads):
    above = 2 ** math.ceil(math.log2(heads))
    every = [2 ** (-8 * h / above) for h in range(1, above + 1)]
    assert sorted(slopes(heads)) == pytest.approx(sorted((every[1::2] + every[0::2])[:heads]), rel=4 * EPS)


@pytest.mark.parametrize("heads", [4, 6])
def test_the_bias_is_minus_slope_times_distance_for_every_head_and_pair(heads):
    got, m = all_bias(ALiBi(heads)), published(heads)
    for h in range(heads):
        for a, i in enumerate(POSITIONS):
            for b, j in enumerate(POSITIONS):
                want = -m[h] * abs(i - j)
                assert abs(got[h, a, b].item() - want) <= 8 * EPS * abs(want), (h, i, j)


def test_the_bias_falls_with_distance_and_the_diagonal_is_zero():
    got = ALiBi(8).bias(torch.arange(8)[:, None], torch.tensor(1048575), torch.arange(1048570, 1048576))
    assert (got.diff(dim=-1) > 0).all()  # nearer keys have more
    assert torch.equal(got[:, -1], torch.zeros(8, dtype=torch.float64))


def test_logits_in_attention_are_scores_minus_slope_times_distance():
    q, k, v = (torch.randn(2, 6, 12, 4, dtype=torch.float64) for _ in range(3))
    to = Layout.dense(12).with_positions(torch.tensor(POSITIONS))
    rows = [11, 3, 8]
    at, q = to.take(torch.tensor(rows)), q[:, :, rows]
    logits, m = attend(q, k, v, ALiBi(6), at=at, to=to, backend="reference", details=True).logits, published(6)
    for b in range(2):
        for h in range(6):
            for i, row in enumerate(rows):
                for j in range(12):
                    got = logits[b, h, i, j].item()
                    if j > row:
                        assert got == -math.inf
                        continue
                    score = sum(q[b, h, i, c].item() * k[b, h, j, c].item() for c in range(4)) / 2
                    want = score - m[h] * (POSITIONS[row] - POSITIONS[j])
                    assert abs(got - want) <= 8 * EPS * (8 + abs(want)), (b, h, row, j)


def test_a_shard_of_heads_takes_the_slopes_of_its_own_heads():
    q, k, v = (torch.randn(1, 12, 5, 4, dtype=torch.float64) for _ in range(3))
    whole = attend(q, k, v, ALiBi(12), backend="reference")
    for first in (0, 3, 9):
        part = attend(*(t[:, first : first + 3] for t in (q, k, v)), ALiBi(12), first_head=first, backend="reference")
        torch.testing.assert_close(part, whole[:, first : first + 3], rtol=0, atol=16 * EPS)


def test_the_bias_keeps_4095_and_4096_apart_whatever_the_models_dtype():
    enc = ALiBi(8).to(torch.bfloat16)
    h = torch.arange(8)
    near, far = (enc.bias(h, torch.tensor(4096), torch.tensor(4096 - d)) for d in (4095, 4096))
    assert torch.equal(near - far, torch.tensor([2.0**-n for n in range(1, 9)], dtype=torch.float64))
    zero = torch.zeros(1, 8, 1, 4, dtype=torch.bfloat16)
    both = torch.zeros(1, 8, 2, 4, dtype=torch.bfloat16)
    at, to = Layout.dense(1, start=4096), Layout.dense(2)
    logits = attend(zero, both, both, enc, at=at, to=to, backend="reference", details=True).logits
    assert logits.dtype == torch.float32
    assert torch.equal(
        logits[0, :, 0].double(), torch.stack([far, near], dim=-1)
    )  # halves, quarters, ... of 4096: exact in float32


def test_slopes_survive_every_cast_bit_for_bit():
    before = all_bias(ALiBi(12))
    with torch.device("meta"):
        lazy = ALiBi(12)
    for enc in (ALiBi(12).bfloat16(), ALiBi(12).half(), lazy.to_empty(device="cpu")):
        assert torch.equal(all_bias(enc), before)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(all_bias(ALiBi(12)), before)


def test_symmetric_mode_is_the_same_bias_on_both_sides():
    got, m = all_bias(ALiBi(3, mode="symmetric")), published(3)
    assert torch.equal(got, got.transpose(-1, -2))
    assert got[1, 0, 11].item() == got[1, 11, 0].item() == -m[1] * 1048575


def test_asymmetric_mode_has_slopes_of_its_own_for_keys_after_the_query():
    past, future = (0.5, 0.25, 0.125), (1.0, 2.0, 4.0)
    got = all_bias(ALiBi(3, mode="asymmetric", slopes=past, future=future))
    turned = all_bias(ALiBi(3, mode="asymmetric", slopes=past))
    for h in range(3):
        for a, i in enumerate(POSITIONS):
            for b, j in enumerate(POSITIONS):
                m = past[h] if j <= i else future[h]
                assert got[h, a, b].item() == -m * abs(i - j)
                m = past[h] if j <= i else past[2 - h]
                assert turned[h, a, b].item() == -m * abs(i - j)


def test_the_row_vector_shortcut_is_right_under_a_causal_mask_and_refused_without():
    q, k, v = (torch.randn(1, 4, 9, 4, dtype=torch.float64) for _ in range(3))
    scores = q @ k.transpose(-1, -2) / 2
    row = torch.tensor(published(4), dtype=torch.float64)[:, None, None] * torch.arange(
        9
    )  # m_h j, the same for every query
    hidden = torch.ones(9, 9).triu(1).bool()
    shortcut = torch.softmax((scores + row).masked_fill(hidden, -math.inf), dim=-1)
    weights = attend(q, k, v, ALiBi(4), backend="reference", details=True).weights
    torch.testing.assert_close(shortcut, weights, rtol=64 * EPS, atol=EPS)  # logits up to 8 lose 8 roundings each way
    symmetric = attend(q, k, v, ALiBi(4, mode="symmetric"), causal=False, backend="reference", details=True).weights
    assert (torch.softmax(scores + row, dim=-1) - symmetric).abs().max() > 0.01
    with pytest.raises(ValueError, match=r"causal=True, or choose a two-sided mode"):
        attend(q, k, v, ALiBi(4), causal=False)


def test_fractional_and_negative_positions_have_distances():
    got = ALiBi(2).bias(torch.tensor([0, 1]), torch.tensor(0.5), torch.tensor(-1.25))
    assert got.tolist() == [-1.75 / 16, -1.75 / 256]


def test_your_own_slopes_are_used_head_by_head():
    got = ALiBi(3, slopes=(1, 0, 0.5)).bias(torch.tensor([0, 1, 2]), torch.tensor(7), torch.tensor(3))
    assert got.tolist() == [-4, 0, -2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"heads": 0}, "heads must be at least 1"),
        ({"heads": 4, "mode": "both"}, "mode must be"),
        ({"heads": 4, "slopes": (1.0, 2.0)}, "slopes must be 4 finite numbers"),
        ({"heads": 2, "slopes": (1.0, -2.0)}, "none negative"),
        ({"heads": 2, "slopes": (1.0, float("inf"))}, "finite"),
        ({"heads": 2, "future": (1.0, 2.0)}, "future slopes are for"),
        ({"heads": 2, "mode": "asymmetric", "future": (1.0,)}, "future must be 2 finite numbers"),
        ({"heads": 2, "slopes": ()}, "slopes must be 2"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        ALiBi(**arguments)


def test_another_number_of_heads_is_refused():
    with pytest.raises(ValueError, match="is for 8 heads, q has 4 from head 0"):
        attend(*(torch.randn(1, 4, 3, 2) for _ in range(3)), ALiBi(8))
    with pytest.raises(ValueError, match="is for 8 heads, q has 4 from head 6"):
        attend(*(torch.randn(1, 4, 3, 2) for _ in range(3)), ALiBi(8), first_head=6)


def test_positions_of_several_axes_are_refused():
    x = torch.randn(1, 2, 4, 2)
    with pytest.raises(ValueError, match="positions"):
        attend(x, x, x, ALiBi(2), at=Layout.dense(4).with_positions(grid(2, 2)), backend="reference")


def test_its_text_builds_it_again():
    assert repr(build("alibi", heads=8)) == "alibi(heads=8)"
    text = "alibi(heads=2, mode='asymmetric', slopes=(0.5, 0.25), future=(1.0, 2.0))"
    assert repr(build(text)) == text
