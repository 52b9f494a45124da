"""Layouts against lists of (index, segment) kept by hand, masks against the rule asked for every pair of tokens, and
runs against the tensors they summarise."""

import itertools

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milepost import ALiBi, Layout, attend
from milepost.layout import Run
from milepost.positions import grid, grouped, interpolate, randomised

CALM = settings(deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])


def allowed(at: Layout, to: Layout, causal: bool) -> list[list[list[bool]]]:
    """Who may see whom, pair by pair: the same text, not padding, not the future, inside the window."""
    rows = max(len(at.index), len(to.index))
    found = []
    for b in range(rows):
        mine = list(zip(at.index[b % len(at.index)].tolist(), at.segment[b % len(at.index)].tolist(), strict=True))
        theirs = list(zip(to.index[b % len(to.index)].tolist(), to.segment[b % len(to.index)].tolist(), strict=True))
        near = at.window or 10**9
        found.append(
            [[s == t != -1 and not (causal and j > i) and abs(i - j) <= near - 1 for j, t in theirs] for i, s in mine]
        )
    return found


def unfold(at: Layout) -> None:
    """Runs must say of every token what the tensors say, and leave only padding out."""
    assert at.rows is not None and len(at.rows) == len(at.index)
    for b, row in enumerate(at.rows):
        told = [(0, -1)] * at.length
        reached = 0
        for run in row:
            assert run.offset >= reached and run.length >= 0
            reached = run.offset + run.length
            for t in range(run.length):
                told[run.offset + t] = (run.first + t, run.segment)
        assert reached <= at.length
        segments = at.segment[b].tolist()
        assert [s for _, s in told] == segments
        assert [i for i, s in told if s >= 0] == [
            i for i, s in zip(at.index[b].tolist(), segments, strict=True) if s >= 0
        ]


def check(at: Layout, to: Layout | None = None) -> None:
    for causal in (True, False):
        assert at.mask(to, causal=causal)[:, 0].tolist() == allowed(at, to or at, causal)


# -- dense, decode ----------------------------------------------------------------------------------------------------


def test_a_dense_layout_counts_from_its_start():
    at = Layout.dense(5, start=1048571)
    assert at.index.tolist() == [[1048571, 1048572, 1048573, 1048574, 1048575]]
    assert at.segment.tolist() == [[0] * 5]
    assert at.pos is at.index and not at.remapped
    assert (at.length, at.batch, at.rows) == (5, 1, ((Run(0, 5, 0, 1048571),),))
    check(at)


def test_an_empty_layout_is_a_layout():
    at = Layout.dense(0)
    assert at.length == 0 and at.mask().shape == (1, 1, 0, 0)
    unfold(at)


def test_decoding_goes_on_after_the_past():
    at = Layout.decode(255, 3)
    assert at.index.tolist() == [[255, 256, 257]]
    unfold(at)
    one = Layout.decode(7)
    assert one.index.tolist() == [[7]]
    assert one.mask(Layout.dense(10)).tolist() == [[[[True] * 8 + [False] * 2]]]


def test_every_row_may_have_its_own_past():
    at = Layout.decode(torch.tensor([5, 0, 131071]), 2, window=4)
    assert at.index.tolist() == [[5, 6], [0, 1], [131071, 131072]]
    assert at.rows == ((Run(0, 2, 0, 5),), (Run(0, 2, 0, 0),), (Run(0, 2, 0, 131071),))
    assert at.batch == 3 and at.index.dtype == torch.int64
    unfold(at)
    check(at, Layout.dense(8))
    assert Layout.decode(torch.tensor([5, 0], dtype=torch.int32)).index.dtype == torch.int64


# -- packed, padded ---------------------------------------------------------------------------------------------------


def test_packed_texts_start_again_at_zero_and_never_meet():
    at = Layout.packed([3, 1, 2])
    assert at.index.tolist() == [[0, 1, 2, 0, 0, 1]]
    assert at.segment.tolist() == [[0, 0, 0, 1, 2, 2]]
    assert at.rows == ((Run(0, 3, 0, 0), Run(3, 1, 1, 0), Run(4, 2, 2, 0)),)
    check(at)
    assert at.mask()[0, 0].int().tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 0, 0],
        [0, 0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1, 1],
    ]


@given(lengths=st.lists(st.integers(0, 7), max_size=6))
@settings(CALM, max_examples=50)
def test_cumulative_lengths_say_the_same_as_lengths(lengths):
    edges = [sum(lengths[:n]) for n in range(len(lengths) + 1)]
    one, other = Layout.packed(lengths), Layout.packed(cu_seqlens=torch.tensor(edges, dtype=torch.int32))
    assert one.index.tolist() == other.index.tolist() == [[i for n in lengths for i in range(n)]]
    assert one.segment.tolist() == other.segment.tolist() == [[s for s, n in enumerate(lengths) for _ in range(n)]]
    assert one.rows == other.rows
    unfold(one)
    check(one)


@given(wide=st.integers(0, 9), data=st.data())
@settings(CALM, max_examples=50)
def test_padding_anywhere_is_never_counted_never_seen_and_never_sees(wide, data):
    mask = data.draw(st.lists(st.lists(st.booleans(), min_size=wide, max_size=wide), min_size=1, max_size=3))
    at = Layout.padded(torch.tensor(mask, dtype=torch.bool))
    for row, index, segment in zip(mask, at.index.tolist(), at.segment.tolist(), strict=True):
        assert segment == [0 if token else -1 for token in row]
        assert [i for i, token in zip(index, row, strict=True) if token] == list(range(sum(row)))
    unfold(at)
    check(at)
    assert not at.mask()[:, 0].mT[at.segment < 0].any() and not at.mask()[:, 0][at.segment < 0].any()


def test_left_and_right_padding_give_real_tokens_the_positions_they_have_alone():
    at = Layout.padded(torch.tensor([[0, 0, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1]]))
    assert at.index.tolist() == [[0, 0, 0, 1], [0, 1, 2, 0], [0, 1, 2, 3]]
    assert at.segment.tolist() == [[-1, -1, 0, 0], [0, 0, 0, -1], [0, 0, 0, 0]]
    assert at.rows == ((Run(2, 2, 0, 0),), (Run(0, 3, 0, 0),), (Run(0, 4, 0, 0),))
    assert at.batch == 3


# -- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1, 2, 3, 100])
def test_a_window_counts_the_token_itself(window):
    at = Layout.dense(6, window=window)
    check(at)
    assert at.mask()[0, 0].sum(-1).tolist() == [min(i + 1, window) for i in range(6)]
    both = Layout.dense(6).windowed(window)
    assert torch.equal(both.mask(causal=False), at.mask(causal=False))
    assert at.windowed(None).window is None
    for other in (
        Layout.packed([3, 4], window=window),
        Layout.padded(torch.tensor([[0, 1, 1, 1]]), window=window),
        Layout.decode(4, 2, window=window),
    ):
        assert other.window == window
        check(other)


def test_the_window_is_that_of_the_queries():
    check(Layout.dense(3, start=4, window=2), Layout.dense(7))
    assert Layout.dense(1, start=4, window=2).mask(Layout.dense(7, window=1)).int().tolist() == [
        [[[0, 0, 0, 1, 1, 0, 0]]]
    ]


# -- told -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [True, False])
def test_what_an_encoding_is_told_never_changes_the_mask(causal):
    at = Layout.packed([5, 4], window=3)
    before = at.mask(causal=causal)
    remaps = [
        grouped(at.index, 4),
        interpolate(at.index, 8),
        randomised(9, 100, batch=2),
        at.index.flip(-1),
        torch.zeros(9),
        grid(3, 3),
        at.index[0] * 1000,
    ]
    for pos in remaps:
        told = at.with_positions(pos)
        assert told.remapped and torch.equal(told.mask(causal=causal), before)
        assert torch.equal(told.pos, pos if pos.dim() > 1 else pos[None])
        assert told.index is at.index and told.rows == at.rows


def test_grouped_positions_do_not_let_a_query_see_the_future():
    at = Layout.dense(6)
    told = at.with_positions(grouped(at.index, 3))
    q, v = torch.zeros(1, 1, 6, 2), torch.arange(6.0).view(1, 1, 6, 1).expand(1, 1, 6, 2)
    weights = attend(q, q, v, ALiBi(1, slopes=(0.0,)), at=told, backend="reference", details=True).weights
    assert torch.equal(weights[0, 0] > 0, torch.ones(6, 6).tril().bool())


def test_told_positions_may_differ_from_row_to_row():
    at = Layout.dense(4).with_positions(randomised(4, 50, batch=3))
    assert at.batch == 3 and at.index.shape == (1, 4) and at.pos.shape == (3, 4)
    assert Layout.dense(4).with_positions(grid(2, 2)).batch == 1
    assert not Layout.dense(4).with_positions(torch.arange(4)).pos.is_floating_point()


# -- slices and shards ------------------------------------------------------------------------------------------------


@st.composite
def layouts(draw) -> Layout:
    """Any layout that knows its runs."""
    kind = draw(st.sampled_from(["dense", "packed", "padded", "decode"]))
    if kind == "dense":
        return Layout.dense(draw(st.integers(0, 9)), start=draw(st.integers(0, 5)))
    if kind == "packed":
        return Layout.packed(draw(st.lists(st.integers(0, 5), max_size=4)))
    if kind == "decode":
        return Layout.decode(
            torch.tensor(draw(st.lists(st.integers(0, 9), min_size=1, max_size=3))), draw(st.integers(0, 4))
        )
    wide = draw(st.integers(0, 8))
    return Layout.padded(
        torch.tensor(
            draw(st.lists(st.lists(st.booleans(), min_size=wide, max_size=wide), min_size=1, max_size=3)),
            dtype=torch.bool,
        )
    )


@given(at=layouts(), start=st.integers(-10, 10), stop=st.integers(-10, 10))
@settings(CALM, max_examples=150)
def test_a_slice_cuts_tensors_and_runs_alike(at, start, stop):
    cut = at[start:stop]
    assert cut.index.tolist() == [row[start:stop] for row in at.index.tolist()]
    assert cut.segment.tolist() == [row[start:stop] for row in at.segment.tolist()]
    assert cut.pos is cut.index
    unfold(cut)
    check(cut, at)


def test_a_slice_keeps_what_was_told_and_the_window():
    at = Layout.dense(6, window=2).with_positions(torch.arange(6) * 10)
    assert at[2:4].pos.tolist() == [[20, 30]] and at[2:4].index.tolist() == [[2, 3]] and at[2:4].window == 2
    axes = Layout.dense(6).with_positions(grid(2, 3))[1:4]
    assert axes.pos.tolist() == [[[0, 0, 1]], [[1, 2, 0]]]
    assert at[::2].pos.tolist() == [[0, 20, 40]] and at[::2].rows is None


@given(at=layouts(), data=st.data())
@settings(CALM, max_examples=80)
def test_a_part_is_some_tokens_of_one_row_or_of_all(at, data):
    row = data.draw(st.none() | st.integers(0, len(at.index) - 1))
    first = data.draw(st.integers(0, at.length))
    stop = data.draw(st.integers(first, at.length))
    part, which = at.part(row, first, stop), slice(None) if row is None else slice(row, row + 1)
    assert part.index.tolist() == [line[first:stop] for line in at.index.tolist()[which]]
    assert part.segment.tolist() == [line[first:stop] for line in at.segment.tolist()[which]]
    assert not part.remapped
    unfold(part)


def test_a_part_of_rows_that_differ_only_in_what_is_told_keeps_their_own():
    part = Layout.dense(9, window=3).with_positions(torch.arange(27).view(3, 9)).part(1, 2, 4)
    assert part.index.tolist() == [[2, 3]] and part.pos.tolist() == [[11, 12]]
    assert part.rows == ((Run(0, 2, 0, 2),),) and part.window == 3


@given(at=layouts(), data=st.data())
@settings(CALM, max_examples=80)
def test_a_shard_in_any_order_is_those_tokens_and_claims_no_runs(at, data):
    which = data.draw(st.lists(st.integers(0, at.length - 1), max_size=8)) if at.length else []
    part = at.take(torch.tensor(which, dtype=torch.long))
    assert part.index.tolist() == [[row[t] for t in which] for row in at.index.tolist()]
    assert part.segment.tolist() == [[row[t] for t in which] for row in at.segment.tolist()]
    assert part.rows is None and not part.remapped
    check(part, at)


def test_a_permuted_layout_keeps_every_pair_of_tokens():
    at, order = Layout.packed([3, 3]).with_positions(torch.arange(6) * 7), torch.tensor([5, 0, 3, 2, 4, 1])
    mixed = at.take(order)
    assert torch.equal(mixed.mask(), at.mask()[..., order, :][..., order])
    assert mixed.pos.tolist() == [[35, 0, 21, 14, 28, 7]]
    assert at.with_positions(grid(2, 3)).take(order).pos.tolist() == [[[1, 0, 1, 0, 1, 0]], [[2, 0, 0, 2, 1, 1]]]


# -- appending --------------------------------------------------------------------------------------------------------


@given(one=layouts(), other=layouts())
@settings(CALM, max_examples=200)
def test_appending_joins_tensors_and_runs_alike(one, other):
    rows = {len(one.index), len(other.index)}
    if len(rows) > 1 and 1 not in rows:
        return
    both, batch = one.then(other), max(rows)
    for word in ("index", "segment"):
        a, b = ((getattr(at, word).tolist() * batch)[:batch] for at in (one, other))
        assert getattr(both, word).tolist() == [x + y for x, y in zip(a, b, strict=True)]
    assert both.pos is both.index
    unfold(both)
    check(both)


@given(cuts=st.lists(st.integers(0, 12), max_size=4), start=st.integers(0, 300))
@settings(CALM, max_examples=50)
def test_a_text_appended_piece_by_piece_is_the_whole_text_again(cuts, start):
    whole = Layout.dense(12, start=start)
    edges = [0, *sorted(cuts), 12]
    again = whole[:0]
    for a, b in itertools.pairwise(edges):
        again = again.then(whole[a:b])
    assert torch.equal(again.index, whole.index)
    assert again.rows == whole.rows  # neighbours found each other: one run


def test_rows_with_their_own_past_go_on_in_one_run_each():
    past = Layout.padded(torch.tensor([[0, 1, 1], [1, 1, 1]]))
    both = past.then(Layout.decode(torch.tensor([2, 3]), 2))
    assert both.index.tolist() == [[0, 0, 1, 2, 3], [0, 1, 2, 3, 4]]
    assert both.rows == ((Run(1, 4, 0, 0),), (Run(0, 5, 0, 0),))


def test_runs_join_only_where_text_and_index_go_on():
    assert Layout.dense(3).then(Layout.dense(2, start=4)).rows == ((Run(0, 3, 0, 0), Run(3, 2, 0, 4)),)
    assert Layout.packed([0, 3]).then(Layout.dense(2, start=3)).rows[0][-2:] == (Run(0, 3, 1, 0), Run(3, 2, 0, 3))
    assert Layout.padded(torch.tensor([[1, 1, 0]])).then(Layout.decode(2)).rows == ((Run(0, 2, 0, 0), Run(3, 1, 0, 2)),)
    assert Layout.dense(4).take(torch.arange(4)).then(Layout.decode(4)).rows is None


def test_appending_keeps_what_each_was_told_and_the_first_window():
    both = Layout.dense(2, window=5).with_positions(torch.tensor([10, 20])).then(Layout.decode(2))
    assert (
        both.pos.tolist() == [[10, 20, 2]] and both.index.tolist() == [[0, 1, 2]] and both.remapped and both.window == 5
    )
    both = Layout.dense(2).then(Layout.decode(2).with_positions(torch.tensor([99])))
    assert both.pos.tolist() == [[0, 1, 99]]


def test_positions_told_row_by_row_can_be_appended():
    both = (
        Layout.dense(2)
        .with_positions(torch.tensor([[0, 5], [1, 7]]))
        .then(Layout.decode(2).with_positions(torch.tensor([[8], [9]])))
    )
    assert both.pos.tolist() == [[0, 5, 8], [1, 7, 9]]


@given(at=layouts())
@settings(CALM, max_examples=60)
def test_every_way_to_make_a_layout_keeps_runs_and_tensors_together(at):
    unfold(at)
    check(at)
    unfold(at.with_positions(at.index * 2))
    unfold(at.to("cpu"))


def test_moving_to_a_device_keeps_index_and_position_one_tensor():
    assert not Layout.dense(3).to("meta").remapped
    assert Layout.dense(3).to("meta").segment.device.type == "meta"
    assert Layout.dense(3).with_positions(torch.arange(3) * 2).to("cpu").pos.tolist() == [[0, 2, 4]]


# -- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Layout.dense(-1), "must not be negative, got length=-1"),
        (lambda: Layout.dense(3, start=-2), "start=-2"),
        (lambda: Layout.dense(3, window=0), "a window of 0 tokens sees nothing"),
        (lambda: Layout.dense(3).windowed(-1), "a window of -1"),
        (lambda: Layout.decode(-1), "must not be negative"),
        (lambda: Layout.decode(torch.tensor([1, -1])), "neither past nor length negative"),
        (lambda: Layout.decode(torch.tensor([1.0])), r"past must be an integer, or integers of shape \(B,\)"),
        (lambda: Layout.decode(torch.tensor([[1]])), r"shape \(1, 1\)"),
        (lambda: Layout.decode(torch.tensor([1]), window=0), "a window of 0"),
        (Layout.packed, "give either lengths"),
        (lambda: Layout.packed([1], cu_seqlens=torch.tensor([0, 1])), "give either lengths"),
        (lambda: Layout.packed([3, -1]), r"must not be negative, got \[3, -1\]"),
        (lambda: Layout.packed([3], window=0), "a window of 0"),
        (lambda: Layout.packed(cu_seqlens=torch.tensor([1, 4])), r"starts with 0, got \[1, 4\]"),
        (lambda: Layout.packed(cu_seqlens=torch.tensor([[0, 4]])), "must be one row"),
        (lambda: Layout.packed(cu_seqlens=torch.tensor([], dtype=torch.int32)), "starts with 0"),
        (lambda: Layout.packed(cu_seqlens=torch.tensor([0, 4, 2])), r"got \[4, -2\]"),
        (lambda: Layout.padded(torch.ones(3)), r"has shape \(B, L\), got \(3,\)"),
        (lambda: Layout.padded(torch.tensor([[0.0, -float("inf")]])), "an additive mask"),
        (lambda: Layout.padded(torch.tensor([[2, 1]])), "1 .a token. and 0 .padding. only"),
        (lambda: Layout.padded(torch.ones(1, 2), window=0), "a window of 0"),
        (lambda: Layout.dense(3).with_positions(torch.arange(3).bfloat16()), "256 from 257"),
        (lambda: Layout.dense(3).with_positions(torch.arange(3).half()), "float16"),
        (lambda: Layout.dense(3).with_positions(torch.tensor([0.0, float("nan"), 1.0])), "must be finite"),
        (lambda: Layout.dense(3).with_positions(torch.arange(4)), r"L = 3, got \(1, 4\)"),
        (
            lambda: Layout.decode(torch.tensor([1, 2])).with_positions(torch.zeros(3, 1)),
            "pos is for a batch of 3, index for one of 2",
        ),
        (lambda: Layout.dense(3)[1], r"cut with a slice, such as at\[:128\]"),
        (lambda: Layout.dense(3).take(torch.tensor([0.5])), "integer places"),
        (lambda: Layout.dense(3).take(torch.tensor([True, False, True])), "integer places"),
        (lambda: Layout.dense(3).take(torch.tensor([[0]])), r"shape \(1, 1\)"),
        (
            lambda: Layout(torch.zeros(1, 3).long(), torch.zeros(1, 2).long(), torch.zeros(1, 3)),
            "index and segment must both have shape",
        ),
    ],
)
def test_bad_input_is_refused_with_what_was_got(make, message):
    with pytest.raises(ValueError, match=message):
        make()
