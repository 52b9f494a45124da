"""Bad input to encodings, layouts and attend: a ValueError that says what was wanted, what came, and what to do;
never another error.
"""

from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from milepost import Encoding, Layout, attend, build
from milepost.encodings import NAMES

SIZES = {"heads": 4, "head_dim": 8, "width": 16, "length": 32}
QUICK = settings(max_examples=30, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ALL = {name: build(name, **SIZES) for name in NAMES} | {
    "binary": build("binary(width=4)"),
    "rope + learned": build("rope + learned(width=16)", **SIZES),
    "sinusoidal + t5": build("sinusoidal + t5", **SIZES),
}
AT_HOOKS = [name for name, enc in ALL.items() if {"embed", "query", "key"} & set(enc.points)]
every = pytest.mark.parametrize("name", ALL)
with_hooks = pytest.mark.parametrize("name", AT_HOOKS)
UNCOUNTABLE = (torch.bfloat16, torch.float16, torch.bool, torch.complex64)


def said(attempt: Callable[[], object], *words: object) -> str:
    """The text of the ValueError that ``attempt`` must raise, which has all ``words``."""
    with pytest.raises(ValueError) as caught:
        attempt()
    text = str(caught.value)
    assert not [word for word in words if str(word) not in text], text
    return text


def width_of(enc: Encoding) -> int:
    return enc.width or 16


def x_for(enc: Encoding, tokens: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(1, tokens, width_of(enc), dtype=dtype)


def q_for(enc: Encoding, tokens: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(1, enc.heads or 4, tokens, enc.head_dim or 8, dtype=dtype)


def hooks(enc: Encoding, pos: torch.Tensor, dtype: torch.dtype = torch.float32) -> list[Callable[[], torch.Tensor]]:
    """A call of every hook of points 1 and 2 that this encoding overrides, at ``pos``."""
    tokens = pos.shape[-1]
    calls = {
        "embed": lambda: enc.embed(x_for(enc, tokens, dtype), pos),
        "query": lambda: enc.query(q_for(enc, tokens, dtype), pos),
        "key": lambda: enc.key(q_for(enc, tokens, dtype), pos),
    }
    return [call for hook, call in calls.items() if hook in enc.points]


def features_of(enc: Encoding, length: int) -> torch.Tensor | None:
    return torch.ones(1, length, enc.feature_count) if enc.feature_count else None


def attention(enc: Encoding, pos: torch.Tensor) -> Callable[[], torch.Tensor]:
    q, f = q_for(enc, pos.shape[-1]), features_of(enc, pos.shape[-1])
    return lambda: attend(q, q, q, enc, at=Layout.dense(pos.shape[-1]).with_positions(pos), features=f)


# -- sizes --------------------------------------------------------------------------------------------------------

odd = st.integers(0, 40).map(lambda n: 2 * n + 1)


@pytest.mark.parametrize(
    "spec",
    [
        "rope(head_dim={})",
        "xpos(head_dim={})",
        "sinusoidal(width={})",
        "sandwich(heads=2, size={})",
        "rope(head_dim=90, rotary={})",
    ],
)
def test_an_odd_rotary_size_is_refused_with_its_number(spec):
    @QUICK
    @given(odd)
    def try_it(n):
        said(lambda: build(spec.format(n)), "even", n)

    try_it()


@pytest.mark.parametrize("size", [0, -2])
@pytest.mark.parametrize(
    "spec",
    ["rope(head_dim={})", "xpos(head_dim={})", "sinusoidal(width={})", "transformer_xl(heads=2, head_dim=4, width={})"],
)
def test_a_rotary_size_below_two_is_refused(spec, size):
    said(lambda: build(spec.format(size)), "at least 2" if "rope" not in spec else "from 2", size)


@QUICK
@given(st.integers(1, 20).map(lambda n: 2 * n), st.integers(1, 20).map(lambda n: 2 * n))
def test_more_rotary_channels_than_the_head_has_are_refused(head_dim, more):
    said(
        lambda: build("rope", head_dim=head_dim) and build(f"rope(rotary={head_dim + more})", head_dim=head_dim),
        head_dim,
        head_dim + more,
        "even",
    )


@pytest.mark.parametrize("name", [name for name, enc in ALL.items() if enc.heads])
def test_a_wrong_number_of_heads_is_refused_with_both_numbers(name):
    enc = ALL[name]

    @settings(QUICK, max_examples=10)
    @given(st.integers(1, 12).filter(lambda n: n != enc.heads))
    def try_it(heads):
        q = torch.ones(1, heads, 3, 8)
        said(
            lambda: attend(q, q, q, enc), f"for {enc.heads} heads", f"q has {heads}", "make the encoding for q's heads"
        )

    try_it()


@pytest.mark.parametrize("first", [-1, 1, 3, 4, 100])
def test_a_shard_of_heads_outside_the_encodings_heads_is_refused(first):
    q = torch.ones(1, 4, 3, 8)
    said(lambda: attend(q, q, q, ALL["alibi"], first_head=first), "4 heads", f"from head {first}", "first_head")


@with_hooks
def test_a_wrong_size_of_the_last_dimension_is_refused_with_both_numbers(name):
    enc = ALL[name]

    @settings(QUICK, max_examples=10)
    @given(st.integers(1, 40))
    def try_it(size):
        if "embed" in enc.points and enc.width not in (None, size):
            said(lambda: enc.embed(torch.ones(1, 3, size), torch.arange(3)), enc.width, size)
        for hook in {"query", "key"} & set(enc.points):
            if enc.head_dim not in (None, size):
                said(
                    lambda hook=hook: getattr(enc, hook)(torch.ones(1, 2, 3, size), torch.arange(3)), enc.head_dim, size
                )

    try_it()


@pytest.mark.parametrize("name", [name for name, enc in ALL.items() if enc.content_dependent and enc.head_dim])
def test_attention_refuses_a_head_size_that_a_content_dependent_encoding_was_not_made_for(name):
    enc, q = ALL[name], torch.ones(1, 4, 3, 6)
    said(lambda: attend(q, q, q, enc, features=features_of(enc, 3)), "head_dim=8", "6")


# -- positions ----------------------------------------------------------------------------------------------------


@every
def test_a_position_below_zero_is_refused_where_it_has_no_meaning(name):
    enc = ALL[name]

    @settings(QUICK, max_examples=10)
    @given(st.integers(-(10**6), -1), st.integers(0, 2))
    def try_it(low, place):
        pos = torch.arange(3)
        pos[place] = low
        for attempt in [lambda: enc.check(pos), attention(enc, pos), *hooks(enc, pos)]:
            if enc.negative:
                attempt()
            else:
                said(attempt, "before position 0", f"got position {low}", "start at 0")

    try_it()


@every
def test_a_fractional_position_is_refused_where_positions_are_counted(name):
    enc = ALL[name]

    @settings(QUICK, max_examples=10)
    @given(st.floats(0, 10, width=32), st.sampled_from([torch.float32, torch.float64]))
    def try_it(p, dtype):
        pos = torch.tensor([0.0, 1.0, p], dtype=dtype)
        for attempt in [lambda: enc.check(pos), attention(enc, pos), *hooks(enc, pos)]:
            if enc.fractional:
                attempt()
            else:
                said(attempt, "whole positions", f"got {str(dtype)[6:]}", "int64")

    try_it()


@every
def test_positions_that_are_not_finite_are_refused(name):
    enc = ALL[name]
    for bad in (float("nan"), float("inf"), -float("inf")):
        pos = torch.tensor([0.0, bad, 2.0])
        for attempt in [lambda pos=pos: enc.check(pos), *hooks(enc, pos)]:
            text = said(attempt)
            assert ("finite" in text and str(bad) in text) or "whole positions" in text
        said(lambda pos=pos: Layout.dense(3).with_positions(pos), "finite", bad)


@every
@pytest.mark.parametrize("dtype", UNCOUNTABLE, ids=str)
def test_positions_in_a_dtype_that_can_not_count_are_refused(name, dtype):
    enc, pos = ALL[name], torch.arange(3).to(dtype)
    for attempt in [lambda: enc.check(pos), *hooks(enc, pos)]:
        said(attempt, "positions", str(dtype)[6:])
    text = said(lambda: Layout.dense(3).with_positions(pos), str(dtype)[6:])
    assert dtype.is_complex or dtype == torch.bool or "int64" in text


@every
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.uint16, torch.int32], ids=str)
def test_positions_in_a_small_integer_dtype_count_as_int64_does_or_are_refused(name, dtype):
    enc, wide = ALL[name], torch.tensor([0, 3, 1])
    if enc.causal_only and "bias" in enc.points:
        wide = torch.tensor([0, 1, 3])
    narrow = wide.to(dtype)
    for ours, theirs in zip(
        [attention(enc, narrow), *hooks(enc, narrow)], [attention(enc, wide), *hooks(enc, wide)], strict=True
    ):
        try:
            got = ours()
        except ValueError as error:
            assert str(dtype)[6:] in str(error)
            continue
        assert torch.equal(got, theirs())


def test_unsigned_positions_do_not_wrap_below_zero():
    enc, pos = build("alibi(heads=4, mode='symmetric')"), torch.tensor([0, 3], dtype=torch.uint8)
    try:
        enc.check(pos)
    except ValueError:
        return
    got = enc.bias(torch.tensor(0), pos[:, None], pos[None, :])
    assert torch.equal(got, got.T)


@pytest.mark.parametrize(("name", "end"), [("learned", 32), ("binary", 16), ("rope + learned", 32)])
def test_a_position_past_the_end_is_refused_with_its_number(name, end):
    enc = ALL[name]

    @settings(QUICK, max_examples=15)
    @given(st.integers(end, 2**62))
    def try_it(p):
        pos = torch.tensor([0, p])
        for attempt in [
            lambda: enc.check(pos),
            lambda: enc.check(Layout.dense(2).with_positions(pos)),
            attention(enc, pos),
            *hooks(enc, pos)[:1],
        ]:
            text = said(attempt, "past the end", end - 1)
            assert str(p) in text or f"{float(p):.12g}" in text or p > 10**11

    try_it()


def test_xpos_refuses_the_position_where_its_decay_leaves_the_number_format():
    enc = ALL["xpos"]
    said(lambda: enc.check(torch.tensor([enc.end])), enc.end, "float32", "larger scale_base")
    enc.query(torch.ones(1, 4, 1, 8), torch.tensor([enc.end - 1]))
    narrow = torch.ones(1, 4, 1, 8, dtype=torch.float16)
    said(lambda: enc.query(narrow, torch.tensor([20000])), 20000, "float16", "bfloat16")


@every
def test_positions_must_be_a_tensor(name):
    enc = ALL[name]
    for bad in ([0, 1, 2], 3, None, "012", (0, 1)):
        said(lambda bad=bad: enc.check(bad), "tensor", type(bad).__name__, "torch.arange")
        for hook in set(enc.points) & {"embed", "query", "key"}:
            x = x_for(enc, 3) if hook == "embed" else q_for(enc, 3)
            said(lambda bad=bad, hook=hook, x=x: getattr(enc, hook)(x, bad), "tensor", type(bad).__name__)


# -- shapes and dtypes --------------------------------------------------------------------------------------------

small_shape = st.lists(st.integers(0, 4), max_size=5).map(tuple)


@with_hooks
def test_any_shapes_fit_or_are_refused(name):
    enc = ALL[name]

    @settings(QUICK, max_examples=60)
    @given(
        st.sampled_from(sorted(set(enc.points) & {"embed", "query", "key"})), small_shape, st.booleans(), small_shape
    )
    def try_it(hook, shape, right_size, where):
        if right_size and shape:
            shape = (*shape[:-1], width_of(enc) if hook == "embed" else enc.head_dim or 8)
        x, pos = torch.ones(shape), torch.zeros(where, dtype=torch.long)
        try:
            got = getattr(enc, hook)(x, pos)
        except ValueError as error:
            assert str(shape) in str(error) or str(where) in str(error)
        else:
            assert got.shape[:-1] == x.shape[:-1] and got.isfinite().all()

    try_it()


@with_hooks
@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64], ids=str)
def test_a_tensor_that_is_not_of_real_numbers_is_refused(name, dtype):
    for attempt in hooks(ALL[name], torch.arange(3), dtype):
        said(attempt, str(dtype)[6:])


@with_hooks
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_every_real_dtype_is_taken_and_given_back(name, dtype):
    for call in hooks(ALL[name], torch.arange(3), dtype):
        assert call().dtype == dtype


@settings(QUICK, max_examples=150)
@given(st.tuples(small_shape, small_shape, small_shape), st.booleans(), st.sampled_from(["reference", "auto"]))
def test_any_shapes_of_q_k_and_v_fit_or_are_refused(shapes, alike, backend):
    q, k, v = (torch.ones(shapes[0] if alike else shape) for shape in shapes)
    try:
        got = attend(q, k, v, backend=backend)
    except ValueError as error:
        assert any(str(tuple(t.shape)) in str(error) or any(str(n) in str(error) for n in t.shape) for t in (q, k, v))
    else:
        assert got.shape == (*q.shape[:3], v.shape[-1]) and got.isfinite().all()


@pytest.mark.parametrize("shape", [(), (4,), (4, 8), (2, 4, 8), (1, 1, 2, 4, 8)], ids=str)
@pytest.mark.parametrize("which", ["q", "k", "v"])
def test_a_tensor_of_another_rank_is_refused_with_its_shape(which, shape):
    given = {name: torch.ones(1, 2, 4, 8) for name in "qkv"} | {which: torch.ones(shape)}
    said(lambda: attend(*given.values()), f"{which} must have shape (B, H, L, D)", shape)


@pytest.mark.parametrize(
    "dtypes",
    [
        ("float32", "float64", "float32"),
        ("float32", "float32", "bfloat16"),
        ("int64",) * 3,
        ("complex64",) * 3,
        ("bool",) * 3,
    ],
    ids=str,
)
def test_q_k_and_v_share_one_real_dtype(dtypes):
    q, k, v = (torch.ones(1, 2, 4, 8).to(getattr(torch, dtype)) for dtype in dtypes)
    said(lambda: attend(q, k, v), "one floating dtype", *dtypes)


@pytest.mark.parametrize(
    ("q", "k", "v", "words"),
    [
        ((1, 2, 4, 8), (2, 2, 4, 8), (2, 2, 4, 8), "shapes do not fit"),
        ((1, 2, 4, 8), (1, 2, 4, 6), (1, 2, 4, 6), "shapes do not fit"),
        ((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 5, 8), "shapes do not fit"),
        ((1, 2, 4, 8), (1, 2, 4, 8), (1, 1, 4, 8), "shapes do not fit"),
        ((1, 3, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8), "3 query heads can't share 2 key heads"),
        ((1, 2, 6, 8), (1, 2, 4, 8), (1, 2, 4, 8), "6 queries can't be the last of 4 keys"),
    ],
)
def test_shapes_that_do_not_fit_together_are_refused(q, k, v, words):
    said(lambda: attend(torch.ones(q), torch.ones(k), torch.ones(v)), words)


def test_layouts_of_another_length_or_batch_are_refused():
    q = torch.ones(2, 2, 4, 8)
    said(lambda: attend(q, q, q, at=Layout.dense(5)), "`at`", "1 x 5", "2 x 4")
    said(lambda: attend(q, q, q, at=Layout.dense(4), to=Layout.dense(3)), "`to`", "1 x 3", "2 x 4")
    said(lambda: attend(q, q, q, at=Layout.padded(torch.ones(3, 4))), "`at`", "3 x 4", "2 x 4")
    said(lambda: attend(q, q, q, to=Layout.dense(4)), "`at`")


@every
def test_positions_of_several_axes_are_refused_by_an_encoding_of_one(name):
    enc = ALL[name]
    at = Layout.dense(4).with_positions(torch.zeros(2, 1, 4, dtype=torch.long))
    q = q_for(enc, 4)
    for hook in set(enc.points) & {"embed", "query", "key"}:
        x = x_for(enc, 4) if hook == "embed" else q
        said(lambda hook=hook, x=x: getattr(enc, hook)(x, at.pos), "(2, 1, 4)")
    if {"bias", "rescore", "output"} & set(enc.points):
        said(lambda: attend(q, q, q, enc, at=at), "ax")


# -- modes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, enc in ALL.items() if enc.causal_only])
def test_an_encoding_of_the_past_refuses_attention_both_ways(name):
    enc = ALL[name]
    q = q_for(enc, 3)
    said(
        lambda: attend(q, q, q, enc, causal=False, features=features_of(enc, 3)),
        repr(enc), "keys after the query", "causal=True",
    )  # fmt: skip


def test_an_encoding_that_depends_on_the_length_wants_a_length():
    enc = build("integer(over='length')")
    said(lambda: enc.embed(torch.ones(1, 3, 8), torch.arange(3)), "length", "enc.at(length)")
    for bad in (0, -3):
        said(lambda bad=bad: enc.at(bad), bad)


def test_an_unknown_backend_is_refused_with_the_known_ones():
    q = torch.ones(1, 2, 3, 8)
    said(lambda: attend(q, q, q, backend="flash"), "'flash'", "reference")


def test_sums_refuse_parts_that_do_not_agree():
    said(lambda: build("alibi(heads=2)") + build("t5(heads=3)"), "heads", "2 in", "3 in")
    said(lambda: build("sinusoidal(width=8)") + build("learned(width=6, length=4)"), "width", "8 in", "6 in")


# -- layouts ------------------------------------------------------------------------------------------------------

number = st.integers(-3, 6)


def held(make: Callable[[], Layout]) -> None:
    try:
        at = make()
    except ValueError as error:
        assert str(error)
        return
    assert at.index.dtype == torch.int64 and at.index.shape == at.segment.shape == (at.index.shape[0], at.length)
    assert at.mask().shape[-2:] == (at.length, at.length)


@settings(QUICK, max_examples=80)
@given(number, number, st.none() | number)
def test_any_whole_numbers_make_a_dense_layout_or_are_refused(length, start, window):
    held(lambda: Layout.dense(length, start=start, window=window))
    held(lambda: Layout.decode(start, length, window=window))


@settings(QUICK, max_examples=80)
@given(st.lists(number, max_size=4))
def test_any_lengths_make_a_packed_layout_or_are_refused(numbers):
    held(lambda: Layout.packed(numbers))
    held(lambda: Layout.packed(cu_seqlens=torch.tensor(numbers, dtype=torch.long)))
    held(lambda: Layout.packed(cu_seqlens=torch.tensor([0, *numbers])))


@settings(QUICK, max_examples=80)
@given(
    st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), min_size=1, max_size=3),
    st.sampled_from(["bool", "int64", "float32", "float64"]),
)
def test_any_mask_makes_a_padded_layout_or_is_refused(rows, dtype):
    held(lambda: Layout.padded(torch.tensor(rows).to(getattr(torch, dtype))))


@settings(QUICK, max_examples=80)
@given(st.lists(number, max_size=4), st.sampled_from([0, 1, 2]))
def test_any_past_makes_a_decoding_layout_or_is_refused(past, dims):
    tensor = torch.tensor(past, dtype=torch.long)
    tensor = tensor if dims == 1 else tensor[None] if dims == 2 else tensor.sum()
    held(lambda: Layout.decode(tensor))


@settings(QUICK, max_examples=80)
@given(small_shape, st.sampled_from([torch.int64, torch.float32]))
def test_any_shape_of_told_positions_fits_or_is_refused(shape, dtype):
    held(lambda: Layout.dense(3).with_positions(torch.zeros(shape, dtype=dtype)))


@settings(QUICK, max_examples=80)
@given(st.lists(st.integers(-6, 6), max_size=4))
def test_any_places_are_taken_or_refused(places):
    held(lambda: Layout.dense(4).take(torch.tensor(places, dtype=torch.long)))


BAD_LAYOUTS: dict[str, tuple[Callable[[], Layout], tuple[str, ...]]] = {
    "a negative length": (lambda: Layout.dense(-1), ("negative", "length=-1")),
    "a negative start": (lambda: Layout.dense(4, start=-2), ("negative", "start=-2")),
    "an empty window": (lambda: Layout.dense(4, window=0), ("window of 0", "at least 1")),
    "decoding a negative number": (lambda: Layout.decode(3, -1), ("negative", "-1")),
    "decoding a negative number for each row": (lambda: Layout.decode(torch.tensor([1, 2]), -1), ("negative", "-1")),
    "a fractional past": (lambda: Layout.decode(torch.tensor([1.5])), ("integer", "float32")),
    "a past of two dimensions": (lambda: Layout.decode(torch.tensor([[1]])), ("(B,)", "(1, 1)")),
    "a negative packed length": (lambda: Layout.packed([3, -1]), ("negative", "[3, -1]")),
    "packed without lengths": (Layout.packed, ("either", "cu_seqlens")),
    "packed with both": (lambda: Layout.packed([1], cu_seqlens=torch.tensor([0, 1])), ("either", "cu_seqlens")),
    "cu_seqlens that start late": (lambda: Layout.packed(cu_seqlens=torch.tensor([1, 3])), ("starts with 0", "[1, 3]")),
    "cu_seqlens of two rows": (lambda: Layout.packed(cu_seqlens=torch.tensor([[0, 3]])), ("one row", "[[0, 3]]")),
    "cu_seqlens in float": (lambda: Layout.packed(cu_seqlens=torch.tensor([0.0, 3.0])), ("integers", "[0.0, 3.0]")),
    "a mask of one dimension": (lambda: Layout.padded(torch.ones(3)), ("(B, L)", "(3,)")),
    "an additive mask": (
        lambda: Layout.padded(torch.tensor([[0.0, -float("inf")]])),
        ("1 (a token) and 0 (padding)", "additive"),
    ),
    "too many positions": (lambda: Layout.dense(3).with_positions(torch.arange(4)), ("L = 3", "(1, 4)")),
    "a position without a dimension": (lambda: Layout.dense(3).with_positions(torch.tensor(1)), ("pos", "()")),
    "positions in a list": (lambda: Layout.dense(3).with_positions([0, 1, 2]), ("tensor", "list")),
    "positions of another batch": (
        lambda: Layout.padded(torch.ones(3, 4)).with_positions(torch.zeros(2, 4)),
        ("batch of 2", "3"),
    ),
    "a token by its number": (lambda: Layout.dense(3)[1], ("slice", "take", "1")),
    "a place past the end": (lambda: Layout.dense(3).take(torch.tensor([0, 5])), ("0 to 2", "5")),
    "a place in float": (lambda: Layout.dense(3).take(torch.tensor([0.0])), ("integer", "float32")),
    "places as a mask": (lambda: Layout.dense(3).take(torch.tensor([True, False, True])), ("integer", "bool")),
    "appending another batch": (
        lambda: Layout.padded(torch.ones(3, 4)).then(Layout.padded(torch.ones(2, 4))),
        ("3", "2"),
    ),
    "appending other axes": (
        lambda: Layout.dense(3).with_positions(torch.zeros(2, 1, 3, dtype=torch.long)).then(Layout.dense(1)),
        ("ax",),
    ),
    "a negative window": (lambda: Layout.dense(3).windowed(-1), ("window of -1", "at least 1")),
    "an index in float": (
        lambda: Layout(torch.zeros(1, 3), torch.zeros(1, 3), torch.zeros(1, 3)),
        ("index", "float32"),
    ),
    "a segment in float": (
        lambda: Layout(torch.arange(3)[None], torch.zeros(1, 3), torch.arange(3)[None]),
        ("segment", "float32"),
    ),
    "an index of one dimension": (
        lambda: Layout(torch.arange(3), torch.arange(3), torch.arange(3)),
        ("(B, L)", "(3,)"),
    ),
    "a segment of another length": (
        lambda: Layout(torch.arange(3)[None], torch.zeros(1, 4, dtype=torch.long), torch.arange(3)[None]),
        ("(1, 3)", "(1, 4)"),
    ),
}


@pytest.mark.parametrize("what", BAD_LAYOUTS)
def test_a_layout_says_what_was_wrong(what):
    make, words = BAD_LAYOUTS[what]
    said(make, *words)
