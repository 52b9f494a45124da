"""Transformer-XL against the papers' own way: a dense table of sinusoids for every distance, multiplied, then shifted
into place row by row; and, where positions are no neighbours, against mpmath for every pair."""

import math

import mpmath
import pytest
import torch

from milepost import Layout, TransformerXL, attend, build

EPS = torch.finfo(torch.float64).eps
POSITIONS = [0, 1, 2, 255, 256, 257, 512, 2048, 131071, 1048575]


def randomised(heads: int, head_dim: int, width: int, **more) -> TransformerXL:
    enc = TransformerXL(heads, head_dim, width, **more).double()
    with torch.no_grad():
        for p in enc.parameters():
            p.normal_()
    return enc


def sinusoid(distance: int, width: int, base: float = 10000.0) -> list[float]:
    """All sines, then all cosines."""
    with mpmath.workdps(30):
        angles = [distance * mpmath.mpf(base) ** (-mpmath.mpf(2 * c) / width) for c in range(width // 2)]
        return [float(mpmath.sin(a)) for a in angles] + [float(mpmath.cos(a)) for a in angles]


def size_of(enc: TransformerXL, q: torch.Tensor, k: torch.Tensor) -> float:
    """A bound on the sum of the sizes of all products in one score."""
    biggest = (q.abs().max() + enc.v.abs().max()) * enc.project.abs().max() * enc.head_dim * enc.width
    return (biggest + (q.abs().max() + enc.u.abs().max()) * k.abs().max() * enc.head_dim).item()


@pytest.mark.parametrize("memory", [0, 3])
def test_causal_scores_are_the_papers_table_after_the_relative_shift(memory):
    enc, N, J = randomised(2, 4, 6), 5, 5 + memory
    q, k, v = (torch.randn(1, 2, n, 4, dtype=torch.float64) for n in (N, J, J))
    logits = attend(
        q, k, v, enc, at=Layout.dense(N, start=memory), to=Layout.dense(J), scale=1.0, backend="reference", details=True
    ).logits
    table = torch.tensor([sinusoid(d, 6) for d in range(J - 1, -1, -1)], dtype=torch.float64)  # the farthest first
    for h in range(2):
        content = (q[0, h] + enc.u[h]) @ k[0, h].T
        place = (q[0, h] + enc.v[h]) @ (table @ enc.project[h].T).T  # N x J, every row for the same distances
        padded = torch.cat([torch.zeros(N, 1, dtype=torch.float64), place], dim=1)
        shifted = padded.reshape(J + 1, N)[1:].reshape(N, J)
        for i in range(N):
            for j in range(J):
                want = (content + shifted)[i, j].item() if j <= i + memory else -math.inf
                got = logits[0, h, i, j].item()
                assert got == want or abs(got - want) <= 64 * EPS * size_of(enc, q, k), (h, i, j)


def test_two_sided_scores_are_xlnets_table_after_the_relative_shift():
    enc, N = randomised(3, 2, 4, base=500.0), 6
    q, k, v = (torch.randn(1, 3, N, 2, dtype=torch.float64) for _ in range(3))
    logits = attend(q, k, v, enc, at=Layout.dense(N), causal=False, scale=1.0, backend="reference", details=True).logits
    table = torch.tensor([sinusoid(d, 4, 500.0) for d in range(N, -N, -1)], dtype=torch.float64)  # klen .. -qlen + 1
    for h in range(3):
        place = (q[0, h] + enc.v[h]) @ (table @ enc.project[h].T).T  # N x 2N
        shifted = place.reshape(2 * N, N)[1:].reshape(N, 2 * N - 1)[:, :N]
        want = (q[0, h] + enc.u[h]) @ k[0, h].T + shifted
        torch.testing.assert_close(logits[0, h], want, rtol=0, atol=64 * EPS * size_of(enc, q, k))


def test_far_positions_in_any_order_meet_the_sinusoid_of_their_signed_distance():
    enc, rows = randomised(2, 3, 4), [9, 2, 6]
    to = Layout.dense(10).with_positions(torch.tensor(POSITIONS)).take(torch.tensor([4, 9, 0, 7, 2, 5, 1, 8, 3, 6]))
    at = Layout.dense(10).with_positions(torch.tensor(POSITIONS)).take(torch.tensor(rows))
    q, k, v = (torch.randn(2, 2, n, 3, dtype=torch.float64) for n in (3, 10, 10))
    logits = attend(q, k, v, enc, at=at, to=to, causal=False, backend="reference", details=True).logits
    for b in range(2):
        for h in range(2):
            for i, m in enumerate(rows):
                for j in range(10):
                    distance = POSITIONS[m] - to.pos[0, j].item()
                    R = sinusoid(distance, 4)
                    want = 0.0
                    for d in range(3):
                        qd = q[b, h, i, d].item()
                        want += (qd + enc.u[h, d].item()) * k[b, h, j, d].item()
                        want += (qd + enc.v[h, d].item()) * sum(enc.project[h, d, c].item() * R[c] for c in range(4))
                    room = (
                        (2 * 1.5 * 1048575 + 64) * EPS * size_of(enc, q, k)
                    )  # two angles of up to 1048575, each off by 1.5 roundings
                    assert abs(logits[b, h, i, j].item() - want / math.sqrt(3)) <= room, (b, h, m, j)


def test_in_float32_a_shift_by_a_million_moves_no_logit():
    enc, pos = randomised(2, 8, 16).float(), torch.arange(6)
    q, k = torch.randn(1, 2, 6, 8), torch.randn(1, 2, 6, 8)
    s = q @ k.transpose(-1, -2)
    here, there = (enc.rescore(s, q, k, p.view(1, 1, 6, 1), p.view(1, 1, 1, 6)) for p in (pos, pos + 1048575))
    assert (here - there).abs().max() <= 64 * torch.finfo(torch.float32).eps * size_of(enc, q, k)


def test_frequencies_survive_every_cast_bit_for_bit():
    before = TransformerXL(2, 4, 16).frequencies
    with torch.device("meta"):
        lazy = TransformerXL(2, 4, 16)
    for enc in (TransformerXL(2, 4, 16).bfloat16(), TransformerXL(2, 4, 16).half(), lazy.to_empty(device="cpu")):
        assert torch.equal(enc.frequencies, before)
    assert before.tolist() == pytest.approx([10000.0 ** (-c / 8) for c in range(8)], rel=4 * EPS)


@pytest.mark.parametrize("heads", [1, 2])
def test_a_shard_of_heads_reads_its_own_parameters_or_is_refused(heads):
    enc = randomised(4, 3, 4)
    q, k, v = (torch.randn(1, 4, 5, 3, dtype=torch.float64) for _ in range(3))
    whole = attend(q, k, v, enc, backend="reference")[:, 2 : 2 + heads]
    try:
        part = attend(*(t[:, 2 : 2 + heads] for t in (q, k, v)), enc, first_head=2, backend="reference")
    except ValueError:  # a sentence is an answer, too
        return
    torch.testing.assert_close(part, whole, rtol=0, atol=1e-12)


def test_bad_use_is_refused():
    for sizes in ((0, 4, 8), (2, 0, 8)):
        with pytest.raises(ValueError, match="heads and head_dim must be at least 1"):
            TransformerXL(*sizes)
    with pytest.raises(ValueError, match="must be even"):
        TransformerXL(2, 4, 7)
    with pytest.raises(ValueError, match="base must be"):
        TransformerXL(2, 4, 8, base=1.0)
    x = torch.randn(1, 2, 3, 4)
    with pytest.raises(ValueError, match="is for 3 heads, q has 2"):
        attend(x, x, x, TransformerXL(3, 4, 8))
    with pytest.raises(ValueError, match="is for head_dim=6, q has 4"):
        attend(x, x, x, TransformerXL(2, 6, 8))


def test_its_text_builds_it_again():
    assert repr(build("transformer_xl", heads=2, head_dim=4, width=8)) == "transformer_xl(heads=2, head_dim=4, width=8)"
