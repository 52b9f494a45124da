"""Shaw against its two sums written out: q · (k + a[r]) and p (v + b[r]) for every pair of tokens, r = clip(j - i)."""

import math

import pytest
import torch

from milepost import Layout, Shaw, attend, build

EPS = torch.finfo(torch.float64).eps
POSITIONS = [0, 1, 2, 3, 5, 255, 256, 257, 512, 131071, 1048575]
ROWS = [10, 2, 6, 4]  # the queries, in an order of their own


def randomised(heads: int, head_dim: int, **more) -> Shaw:
    enc = Shaw(heads, head_dim, **more).double()
    with torch.no_grad():
        for p in enc.parameters():
            p.normal_()
    return enc


def setting(heads: int, head_dim: int):
    to = Layout.dense(len(POSITIONS)).with_positions(torch.tensor(POSITIONS))
    q, k, v = (torch.randn(2, heads, len(POSITIONS), head_dim, dtype=torch.float64) for _ in range(3))
    return q[:, :, ROWS], k, v, to.take(torch.tensor(ROWS)), to


def row(i: int, j: int, clip: int) -> int:
    """The row of the tables: -K is row 0, +K row 2K, for the key's position minus the query's."""
    return min(max(j - i, -clip), clip) + clip


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("causal", [True, False])
def test_logits_are_queries_with_keys_moved_by_the_vector_of_their_distance(shared, causal):
    enc = randomised(3, 4, clip=3, shared=shared)
    q, k, v, at, to = setting(3, 4)
    logits = attend(q, k, v, enc, at=at, to=to, causal=causal, backend="reference", details=True).logits
    a = enc.a.tolist()
    for b in range(2):
        for h in range(3):
            for i, m in enumerate(ROWS):
                for j in range(len(POSITIONS)):
                    got = logits[b, h, i, j].item()
                    if causal and j > m:
                        assert got == -math.inf
                        continue
                    vector = a[0 if shared else h][row(POSITIONS[m], POSITIONS[j], 3)]
                    terms = [q[b, h, i, c].item() * (k[b, h, j, c].item() + vector[c]) / 2 for c in range(4)]
                    size = sum(
                        abs(q[b, h, i, c].item()) * (abs(k[b, h, j, c].item()) + abs(vector[c])) for c in range(4)
                    )
                    assert abs(got - sum(terms)) <= 8 * EPS * size, (b, h, m, j)


@pytest.mark.parametrize("shared", [True, False])
def test_outputs_are_weights_with_values_moved_by_the_vector_of_their_distance(shared):
    enc = randomised(2, 3, clip=2, values=True, shared=shared)
    q, k, v, at, to = setting(2, 3)
    done = attend(q, k, v, enc, at=at, to=to, causal=False, backend="reference", details=True)
    vectors = enc.b.tolist()
    for b in range(2):
        for h in range(2):
            for i, m in enumerate(ROWS):
                for c in range(3):
                    want = size = 0.0
                    for j in range(len(POSITIONS)):
                        p, moved = (
                            done.weights[b, h, i, j].item(),
                            vectors[0 if shared else h][row(POSITIONS[m], POSITIONS[j], 2)][c],
                        )
                        want += p * (v[b, h, j, c].item() + moved)
                        size += p * (abs(v[b, h, j, c].item()) + abs(moved))
                    assert abs(done.output[b, h, i, c].item() - want) <= 16 * EPS * size, (b, h, m, c)


def test_the_weights_are_the_softmax_of_those_logits():
    enc = randomised(2, 3, clip=2, values=True)
    q, k, v, at, to = setting(2, 3)
    done = attend(q, k, v, enc, at=at, to=to, backend="reference", details=True)
    for i, m in enumerate(ROWS):
        grown = [math.exp(done.logits[1, 1, i, j].item()) if j <= m else 0.0 for j in range(len(POSITIONS))]
        assert done.weights[1, 1, i].tolist() == pytest.approx([g / sum(grown) for g in grown], rel=64 * EPS)


def test_distances_past_the_clip_are_alike_and_the_clip_itself_is_not():
    enc = randomised(1, 2, clip=16)
    q, k = torch.randn(1, 1, 1, 2, dtype=torch.float64), torch.zeros(1, 1, 6, 2, dtype=torch.float64)
    i, j = torch.tensor(1048575), 1048575 - torch.tensor([14, 15, 16, 17, 255, 1048575])
    far = (
        enc.rescore(torch.zeros(1, 1, 1, 6, dtype=torch.float64), q, k, i.view(1, 1, 1, 1), j.view(1, 1, 1, 6))
        .flatten()
        .tolist()
    )
    assert far[2] == far[3] == far[4] == far[5]
    assert len({far[0], far[1], far[2]}) == 3


def test_before_and_after_are_told_apart():
    enc = randomised(1, 2, clip=4)
    assert enc._row(torch.tensor(5), torch.tensor(3)).item() == 2
    assert enc._row(torch.tensor(3), torch.tensor(5)).item() == 6


def test_without_values_there_is_no_second_table_and_no_output_term():
    enc = Shaw(2, 4)
    assert enc.b is None and enc.points == ("rescore",)
    assert Shaw(2, 4, values=True).points == ("rescore", "output")
    assert torch.equal(enc.output(torch.ones(1, 2, 3, 3), torch.arange(3)[:, None], torch.arange(3)), torch.zeros(()))
    assert [p.shape for p in Shaw(2, 4, clip=3, values=True, shared=False).parameters()] == [(2, 7, 4), (2, 7, 4)]


@pytest.mark.parametrize("heads", [1, 2])
def test_a_shard_of_heads_reads_its_own_tables_or_is_refused(heads):
    enc = randomised(4, 3, clip=2, values=True, shared=False)
    q, k, v = (torch.randn(1, 4, 5, 3, dtype=torch.float64) for _ in range(3))
    whole = attend(q, k, v, enc, backend="reference")[:, 2 : 2 + heads]
    try:
        part = attend(*(t[:, 2 : 2 + heads] for t in (q, k, v)), enc, first_head=2, backend="reference")
    except ValueError:  # a sentence is an answer, too
        return
    torch.testing.assert_close(part, whole, rtol=0, atol=64 * EPS)


def test_bad_use_is_refused():
    for sizes in ((0, 4, 2), (2, 0, 2), (2, 4, 0)):
        with pytest.raises(ValueError, match="must be at least 1"):
            Shaw(*sizes)
    x = torch.randn(1, 2, 3, 4)
    with pytest.raises(ValueError, match="is for 3 heads, q has 2"):
        attend(x, x, x, Shaw(3, 4))
    with pytest.raises(ValueError, match="is for head_dim=6, q has 4"):
        attend(x, x, x, Shaw(2, 6))
    with pytest.raises(ValueError, match="whole positions"):
        attend(x, x, x, Shaw(2, 4), at=Layout.dense(3).with_positions(torch.tensor([0.0, 0.5, 1.0])))


def test_its_text_builds_it_again():
    text = "shaw(heads=4, head_dim=8, clip=3, values=True, shared=False)"
    assert repr(build(text)) == text
