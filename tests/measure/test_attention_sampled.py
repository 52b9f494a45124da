"""Statistics of attention with a window, a scale, and of some queries in place of all."""

import pytest
import torch

from milepost.encoding import Encoding
from milepost.measure.attention import average, pick_queries, statistics

L, WINDOW = 150, 20


def given(length=L):
    draw = torch.Generator().manual_seed(0)
    return (
        torch.randn(2, 4, length, 8, dtype=torch.float64, generator=draw),
        torch.randn(2, 2, length, 8, dtype=torch.float64, generator=draw),
    )


def weights(q, k, window, scale):
    """Dense, by hand: heads 0 and 1 share the first keys, 2 and 3 the second."""
    scores = torch.einsum("bhid,bhjd->bhij", q, k[:, [0, 0, 1, 1]]) * scale
    i, j = torch.arange(q.shape[2])[:, None], torch.arange(q.shape[2])[None]
    hidden = (j > i) | (i - j >= window)
    return torch.softmax(scores.masked_fill(hidden, float("-inf")), -1)


@pytest.mark.parametrize("queries", [None, 7, 64, 1000])
@pytest.mark.parametrize("window", [WINDOW, None])
def test_they_are_those_of_the_dense_weights_of_the_queries_that_count(queries, window):
    q, k = given()
    rows = pick_queries(0, L, queries)
    p = weights(q, k, window or L, 0.3)[:, :, rows]
    back = rows[:, None] - torch.arange(L)[None]
    for head in statistics(q, k, Encoding(), 0, scale=0.3, window=window, queries=queries):
        mine, count = p[:, head.head], 2 * len(rows)
        assert head.mean == pytest.approx((mine * back.clamp(min=0)).sum().item() / count, rel=1e-12)
        assert head.entropy == pytest.approx(-torch.special.xlogy(mine, mine).sum().item() / count, rel=1e-12)
        assert head.sink == pytest.approx(mine[..., 0].sum().item() / count, rel=1e-12)
        assert sum(head.distance) == pytest.approx(1.0, abs=1e-12)
        for share, a, e in zip(head.distance, head.edges, head.edges[1:], strict=False):
            assert share == pytest.approx((mine * ((back >= a) & (back < e))).sum().item() / count, abs=1e-12)
            if window is not None and a >= WINDOW:
                assert share == 0.0


def test_queries_are_at_even_distances_and_all_where_there_are_few():
    assert (
        pick_queries(0, 8, 4).tolist() == [1, 3, 5, 7]
        and pick_queries(10, 14, 9).tolist() == [10, 11, 12, 13] == pick_queries(10, 14, None).tolist()
    )
    some = pick_queries(0, 4096, 256)
    assert len(some) == 256 and set((some[1:] - some[:-1]).tolist()) == {16} and some[0] >= 0 and some[-1] < 4096


def test_queries_to_count_are_some():
    q, k = given(16)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        statistics(q, k, Encoding(), 0, queries=0)


def test_texts_read_one_by_one_are_as_if_read_together():
    q, k = given()
    together = statistics(q, k, Encoding(), 3, queries=40)
    alone = average([statistics(q[n : n + 1], k[n : n + 1], Encoding(), 3, queries=40) for n in range(2)])
    for one, other in zip(together, alone, strict=True):
        assert (one.layer, one.head, one.edges) == (other.layer, other.head, other.edges)
        assert (*one.distance, one.mean, one.entropy, one.sink) == pytest.approx(
            (*other.distance, other.mean, other.entropy, other.sink), rel=1e-12
        )
