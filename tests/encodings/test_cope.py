"""CoPE against its sums written out for every pair: gates of all keys from position j on, counted one by one, in
layouts whose order in memory is shuffled."""

import math

import pytest
import torch

from milepost import CoPE, Layout, attend, build

EPS = torch.finfo(torch.float64).eps


def randomised(heads: int, head_dim: int, **more) -> CoPE:
    enc = CoPE(heads, head_dim, **more).double()
    with torch.no_grad():
        enc.e.normal_()
    return enc


def oracle(enc: CoPE, q: torch.Tensor, k: torch.Tensor, at: Layout, to: Layout) -> torch.Tensor:
    """Logits, by loops: who is seen is decided by index, segment and window; what is counted are the seen keys from
    position j on.
    """
    B, H, queries, D = q.shape
    out = torch.full((B, H, queries, k.shape[2]), -math.inf, dtype=torch.float64)
    for b in range(B):
        index, segment, place = (t[b % len(t)].tolist() for t in (to.index, to.segment, to.pos))
        for i in range(queries):
            m, text = at.index[b % len(at.index), i].item(), at.segment[b % len(at.index), i].item()
            seen = [
                t
                for t in range(k.shape[2])
                if segment[t] == text >= 0 and index[t] <= m and (at.window is None or m - index[t] < at.window)
            ]
            for h in range(H):
                table = enc.e[0 if enc.shared else h].tolist()
                score = {t: sum(q[b, h, i, c].item() * k[b, h, t, c].item() for c in range(D)) for t in seen}
                gate = {t: 1 / (1 + math.exp(-score[t] / math.sqrt(D))) for t in seen}
                for j in seen:
                    count = min(sum(gate[t] for t in seen if place[t] >= place[j]), enc.positions - 1)
                    low, share = math.floor(count), count - math.floor(count)
                    high = min(low + 1, enc.positions - 1)
                    vector = [(1 - share) * table[low][c] + share * table[high][c] for c in range(D)]
                    out[b, h, i, j] = score[j] / math.sqrt(D) + sum(q[b, h, i, c].item() * vector[c] for c in range(D))
    return out


def agree(enc: CoPE, at: Layout, to: Layout, batch: int = 2, heads: int = 2) -> None:
    D = enc.head_dim
    q = torch.randn(batch, heads, at.length, D, dtype=torch.float64)
    k, v = (torch.randn(batch, heads, to.length, D, dtype=torch.float64) for _ in range(2))
    done = attend(q, k, v, enc, at=at, to=to, backend="reference", details=True)
    want = oracle(enc, q, k, at, to)
    assert torch.equal(done.logits.isinf(), want.isinf())
    steepest = 2 * (q.abs().max() * enc.e.abs().max()).item() * D  # how fast q·e moves with the count
    room = EPS * (
        8 * to.length * steepest * to.length + 32 * q.abs().max().item() * D * 8
    )  # a count of n gates is off by n roundings of n
    seen = ~want.isinf()
    assert (done.logits[seen] - want[seen]).abs().max() <= room


@pytest.mark.parametrize("shared", [True, False])
def test_a_dense_text_counts_the_gates_from_key_to_query(shared):
    agree(randomised(2, 3, positions=12, shared=shared), Layout.dense(9), Layout.dense(9))


@pytest.mark.parametrize("shared", [True, False])
def test_the_order_in_memory_does_not_matter(shared):
    order = torch.tensor([4, 8, 0, 7, 2, 5, 1, 3, 6])
    agree(
        randomised(2, 3, positions=12, shared=shared), Layout.dense(9).take(order), Layout.dense(9).take(order.flip(0))
    )


def test_far_positions_count_keys_and_not_distance():
    far = torch.tensor([0, 1, 255, 256, 257, 2048, 131071, 1048575])
    to = Layout(far[None], torch.zeros(1, 8, dtype=torch.long), far[None])
    agree(
        randomised(2, 3, positions=6), to.take(torch.tensor([7, 2, 5])), to.take(torch.tensor([6, 0, 7, 3, 1, 5, 4, 2]))
    )


def test_what_is_told_decides_the_order_of_counting_and_not_who_is_seen():
    at = Layout.dense(8).with_positions(torch.tensor([3, 1048575, 0, 257, 256, 2, 131071, 5]))
    agree(randomised(2, 3, positions=6), at, at)


def test_keys_told_one_position_count_alike_in_any_order():
    enc, order = randomised(2, 3, positions=6), torch.tensor([3, 1, 5, 0, 2, 4])
    at = Layout.dense(6).with_positions(torch.arange(6) // 2)
    q, k, v = (torch.randn(1, 2, 6, 3, dtype=torch.float64) for _ in range(3))
    straight = attend(q, k, v, enc, at=at, backend="reference")
    shuffled = attend(q, k[:, :, order], v[:, :, order], enc, at=at, to=at.take(order), backend="reference")
    torch.testing.assert_close(shuffled, straight, rtol=0, atol=256 * EPS)


def test_packed_padded_and_windowed_texts_count_their_own_keys():
    enc = randomised(2, 3, positions=8)
    packed = Layout.packed([4, 5])
    agree(enc, packed, packed)
    order = torch.tensor([4, 8, 0, 7, 2, 5, 1, 3, 6])
    agree(enc, packed.take(order), packed.take(order))
    padded = Layout.padded(torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0]]))
    agree(enc, padded, padded)
    agree(enc, Layout.dense(8).windowed(3), Layout.dense(8))


def test_decoding_counts_the_cached_keys_too():
    agree(randomised(2, 3, positions=8), Layout.decode(torch.tensor([6, 4]), 1), Layout.dense(7))


def test_counts_stop_at_the_last_position():
    agree(randomised(2, 2, positions=2), Layout.dense(8), Layout.dense(8))
    open_gates = randomised(1, 1, positions=4)
    q, k, v = (
        torch.full((1, 1, 9, 1), 30.0, dtype=torch.float64),
        torch.ones(1, 1, 9, 1, dtype=torch.float64),
        torch.ones(1, 1, 9, 1, dtype=torch.float64),
    )
    last = attend(q, k, v, open_gates, backend="reference", details=True).logits[
        0, 0, 8
    ]  # gates within 1e-13 of 1: count 3 from j = 6 down
    expected = [30 + 30 * open_gates.e[0, n, 0].item() for n in (3, 3, 3, 3, 3, 3, 3, 2, 1)]
    assert last.tolist() == pytest.approx(
        expected, abs=30 * 4 * 2 * math.exp(-30) * open_gates.e.abs().max().item() + 1e-12
    )


def test_a_count_between_two_positions_mixes_their_vectors():
    enc = randomised(1, 1, positions=5)
    zero = torch.zeros(1, 1, 3, 1, dtype=torch.float64)
    q = torch.ones(1, 1, 3, 1, dtype=torch.float64)
    last = attend(q, zero, zero, enc, backend="reference", details=True).logits[0, 0, 2].tolist()  # every gate is 1/2
    e = enc.e[0, :, 0].tolist()
    assert last == pytest.approx([(e[1] + e[2]) / 2, e[1], (e[0] + e[1]) / 2], rel=8 * EPS)


def test_the_gates_learn_through_the_count():
    enc, at = randomised(2, 2, positions=6), Layout.dense(5).take(torch.tensor([2, 0, 4, 1, 3]))
    q, k, v = (torch.randn(1, 2, 5, 2, dtype=torch.float64, requires_grad=True) for _ in range(3))

    def run(q, k, v, e):
        return torch.func.functional_call(Attend(enc, at), {"enc.e": e}, (q, k, v))

    assert torch.autograd.gradcheck(run, (q, k, v, enc.e))


class Attend(torch.nn.Module):
    """Attention as a module, so that the table can be handed in."""

    def __init__(self, enc: CoPE, at: Layout):
        super().__init__()
        self.enc, self.at = enc, at

    def forward(self, q, k, v):
        return attend(q, k, v, self.enc, at=self.at, backend="reference")


@pytest.mark.parametrize("heads", [1, 2])
def test_a_shard_of_heads_reads_its_own_table_or_is_refused(heads):
    enc = randomised(4, 3, shared=False)
    q, k, v = (torch.randn(1, 4, 5, 3, dtype=torch.float64) for _ in range(3))
    whole = attend(q, k, v, enc, backend="reference")[:, 2 : 2 + heads]
    try:
        part = attend(*(t[:, 2 : 2 + heads] for t in (q, k, v)), enc, first_head=2, backend="reference")
    except ValueError:  # a sentence is an answer, too
        return
    torch.testing.assert_close(part, whole, rtol=0, atol=64 * EPS)


def test_bad_use_is_refused():
    for sizes in ((0, 4, 8), (2, 0, 8), (2, 4, 1)):
        with pytest.raises(ValueError, match="heads, head_dim >= 1 and positions >= 2"):
            CoPE(*sizes)
    x = torch.randn(1, 2, 3, 4)
    with pytest.raises(ValueError, match="causal=True"):
        attend(x, x, x, CoPE(2, 4), causal=False)
    with pytest.raises(ValueError, match="is for 3 heads, q has 2"):
        attend(x, x, x, CoPE(3, 4))
    with pytest.raises(ValueError, match="is for head_dim=6, q has 4"):
        attend(x, x, x, CoPE(2, 6))


def test_its_text_builds_it_again():
    text = "cope(heads=2, head_dim=4, positions=16, shared=False)"
    assert repr(build(text)) == text
