"""Sums against their parts worked out by hand: embeddings, queries and keys from left to right, biases added, scores
rewritten in turn.
"""

import cmath
import math

import pytest
import torch

from milepost import (
    FIRE,
    T5,
    ALiBi,
    CoPE,
    DeBERTa,
    Encoding,
    Integer,
    Layout,
    Learned,
    NoPE,
    RoPE,
    Sandwich,
    Shaw,
    Sinusoidal,
    Sum,
    Temperature,
    XPos,
    attend,
    build,
)

EPS = torch.finfo(torch.float64).eps
POSITIONS = [0, 1, 2, 255, 256, 257, 2048, 131071]


def pos() -> torch.Tensor:
    return torch.tensor(POSITIONS)


def test_rope_plus_alibi_turns_and_slopes():
    enc = RoPE(2) + ALiBi(2)
    q, k, v = (torch.randn(1, 2, 8, 2, dtype=torch.float64) for _ in range(3))
    at = Layout.dense(8).with_positions(pos())
    logits = attend(q, k, v, enc, at=at, backend="reference", details=True).logits
    for h in range(2):
        for i, m in enumerate(POSITIONS):
            for j, n in enumerate(POSITIONS[: i + 1]):
                zq, zk = complex(*q[0, h, i].tolist()), complex(*k[0, h, j].tolist())
                want = (zq * zk.conjugate() * cmath.exp(1j * (m - n))).real / math.sqrt(2) - (1 / 16, 1 / 256)[h] * (
                    m - n
                )
                room = 8 * EPS * (abs(zq * zk) + abs(want))  # frequency 1: the angles are whole numbers, and exact
                assert abs(logits[0, h, i, j].item() - want) <= room, (h, m, n)


def test_embeddings_are_mixed_from_left_to_right():
    x = torch.randn(2, 4, 4, dtype=torch.float64)
    table, code = Learned(8, 4).double(), Sinusoidal(6, how="concat")
    both = table + Integer(over=4) + code
    y = both.embed(x, torch.tensor([0, 3, 7, 1]))
    assert both.added_width == 6 and y.shape == (2, 4, 10)
    for t, p in enumerate([0, 3, 7, 1]):
        want = (x[:, t] + table.table[p]) + p / 4
        assert torch.equal(y[:, t, :4], want)
        assert torch.equal(y[1, t, 4:], code.code(torch.tensor(p)))
    widened = Sinusoidal(6, how="concat") + Integer()
    assert torch.equal(widened.embed(x, torch.tensor([0, 3, 7, 1]))[0, 1, :4], x[0, 1] + 3)
    assert torch.equal(
        widened.embed(x, torch.tensor([0, 3, 7, 1]))[0, 1, 4:], code.code(torch.tensor(3)) + 3
    )  # the right part sees what the left appended


def test_queries_pass_through_every_part_and_keys_too():
    rope, sharp, x = RoPE(4), Temperature(100, "logn"), torch.randn(1, 2, 8, 4, dtype=torch.float64)
    both = rope + sharp
    assert torch.equal(both.query(x, pos()), sharp.query(rope.query(x, pos()), pos()))
    assert torch.equal(both.key(x, pos()), rope.key(x, pos()))
    assert (both.query(x, pos()) - rope.query(x, pos())).abs().max() > 0.1
    slow, decay = RoPE(4, base=500.0), XPos(4)
    for one, other in ((slow, decay), (decay, slow), (sharp, slow)):
        near = pos()[:-1]
        assert torch.equal((one + other).query(x[:, :, :7], near), other.query(one.query(x[:, :, :7], near), near))
        assert torch.equal((one + other).key(x[:, :, :7], near), other.key(one.key(x[:, :, :7], near), near))


def test_biases_add_up_for_every_head():
    one, two = ALiBi(3, mode="symmetric"), T5(3, mode="bidirectional").double()
    h, i, j = torch.arange(3)[:, None, None], pos()[:, None], pos()
    got = (one + two + RoPE(4) + Sandwich(3)).bias(h, i, j)
    for a in range(3):
        for b, m in enumerate(POSITIONS):
            for c, n in enumerate(POSITIONS):
                at = torch.tensor(a), torch.tensor(m), torch.tensor(n)
                want = sum(e.bias(*at).item() for e in (one, two, Sandwich(3)))
                assert abs(got[a, b, c].item() - want) <= 4 * EPS * (abs(want) + 64), (a, m, n)


def test_scores_are_rewritten_in_turn():
    shaw, deberta = Shaw(2, 4, clip=2, values=True).double(), DeBERTa(2, 4, buckets=4, span=8).double()
    q, k, v = (torch.randn(1, 2, 5, 4, dtype=torch.float64) for _ in range(3))
    s, p = q @ k.transpose(-1, -2), torch.rand(1, 2, 5, 5, dtype=torch.float64)
    i, j = torch.arange(5).view(1, 1, 5, 1), torch.arange(5).view(1, 1, 1, 5)
    first, last = (shaw + deberta).rescore(s, q, k, i, j), (deberta + shaw).rescore(s, q, k, i, j)
    by_a = shaw.rescore(torch.zeros_like(s), q, k, i, j)
    by_table = deberta.rescore(torch.zeros_like(s), q, k, i, j)
    torch.testing.assert_close(first, (s + by_a) / math.sqrt(3) + by_table, rtol=0, atol=64 * EPS)
    torch.testing.assert_close(last, s / math.sqrt(3) + by_table + by_a, rtol=0, atol=64 * EPS)
    assert torch.equal((shaw + deberta).output(p, i, j), shaw.output(p, i, j))
    once, twice = (attend(q, k, v, e, backend="reference") for e in (shaw, shaw + NoPE()))
    assert torch.equal(once, twice)


def test_the_points_are_those_of_the_parts():
    assert (RoPE(4) + ALiBi(2)).points == ("query", "key", "bias")
    assert (Learned(8, 4) + Shaw(2, 4)).points == ("embed", "rescore")
    assert (Shaw(2, 4, values=True) + ALiBi(2)).points == ("bias", "rescore", "output")
    assert (NoPE() + NoPE()).points == ()


def test_what_a_sum_declares_follows_from_its_parts():
    both = RoPE(4) + ALiBi(2)
    assert both.shift_invariant and both.toeplitz and both.causal_only and both.rotation and not both.content_dependent
    assert not (RoPE(4) + ALiBi(2, mode="symmetric")).causal_only
    assert not (RoPE(4) + FIRE(2)).toeplitz
    assert not (RoPE(4) + Temperature(8)).rotation and not (RoPE(4) + Temperature(8)).shift_invariant
    assert (ALiBi(2) + Shaw(2, 4)).shift_invariant and not (RoPE(4) + Shaw(2, 4)).shift_invariant
    assert not (ALiBi(2) + T5(2)).rotation
    assert (RoPE(4) + Integer(over="length")).length_dependent
    assert (Learned(8, 4) + Learned(6, 4) + RoPE(4)).end == 6
    assert (Learned(8, 4) + RoPE(2) + CoPE(3, 2)).heads == 3
    assert not (RoPE(4) + T5(2)).fractional and not (RoPE(4) + Temperature(4)).negative


def test_at_a_length_every_part_is_its_plain_self():
    enc = (RoPE(4) + Integer(over="length")).at(8)
    assert repr(enc) == "rope(head_dim=4) + integer(over=8)"
    assert not enc.length_dependent


def test_sums_of_sums_are_flat_and_keep_their_order():
    enc = (RoPE(4) + ALiBi(2)) + (Temperature(8) + T5(2))
    assert [type(p) for p in enc.parts] == [RoPE, ALiBi, Temperature, T5]
    assert isinstance(enc, Sum) and isinstance(enc, Encoding)


def test_its_text_builds_it_again():
    text = "rope(head_dim=8, base=500000.0) + alibi(heads=2) + temperature(length=16)"
    assert repr(build(text)) == text
    assert repr(build("rope(base=5e5) + alibi + temperature", head_dim=8, heads=2, length=16)) == text


def test_a_positions_limits_are_those_of_every_part():
    enc, x = Learned(8, 4) + Sinusoidal(4), torch.zeros(1, 1, 4)
    with pytest.raises(ValueError, match="past the end of the learned table"):
        enc.embed(x, torch.tensor([8]))
    with pytest.raises(ValueError, match="before position 0"):
        (RoPE(4) + Temperature(8)).key(torch.zeros(1, 1, 1, 4), torch.tensor([-1]))
    q = torch.randn(1, 2, 3, 4)
    with pytest.raises(ValueError, match="whole positions"):
        attend(q, q, q, RoPE(4) + T5(2), at=Layout.dense(3).with_positions(torch.tensor([0, 0.5, 1])))


def test_parts_that_disagree_on_a_size_are_refused():
    with pytest.raises(ValueError, match=r"agree on heads, got 8 in alibi\(heads=8\), 4 in t5\(heads=4\)"):
        ALiBi(8) + T5(4)
    with pytest.raises(ValueError, match="agree on head_dim"):
        RoPE(8) + XPos(4)
    with pytest.raises(ValueError, match="agree on width"):
        Learned(8, 4) + Sinusoidal(6)
    assert (Learned(8, 4) + Sinusoidal(6, how="concat")).width == 4


def test_bad_use_is_refused():
    q = torch.randn(1, 2, 3, 4)
    with pytest.raises(ValueError, match="causal=True"):
        attend(q, q, q, RoPE(4) + ALiBi(2), causal=False)
    with pytest.raises(ValueError, match="is for 3 heads, q has 2"):
        attend(q, q, q, RoPE(4) + ALiBi(3))
    with pytest.raises(ValueError, match="made for head_dim=8"):
        (RoPE(8) + ALiBi(2)).query(q, torch.arange(3))
    with pytest.raises(TypeError, match="unsupported operand"):
        RoPE(4) + 3


def test_a_sum_without_a_bias_gives_zero_like_every_encoding():
    enc, i = RoPE(4) + Temperature(8), torch.arange(3)
    assert torch.equal(enc.bias(i[:, None, None], i[:, None], i), torch.zeros(()))
    assert torch.equal(enc.output(torch.ones(1, 1, 3, 3), i[:, None], i), torch.zeros(()))
