"""What holds for every scaling as a value: what it refuses, that it is frozen and hashable, its spec, its order in
the factor.
"""

import dataclasses
import itertools
import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from milepost import RoPE, build
from milepost.scaling import (
    NTK,
    SCALINGS,
    Dynamic,
    Hybrid,
    LargerBase,
    Linear,
    Llama3,
    LongRoPE,
    NTKByParts,
    Proportional,
    Staged,
    YaRN,
)
from milepost.spec import LONGEST
from milepost.spectrum import geometric

SOME = settings(max_examples=60, deadline=None, derandomize=True)
PAIRS = 32
WHOLE = {  # enough to make one of each, for 32 pairs
    "larger_base": {"base": 500000.0},
    "linear": {"factor": 4.0},
    "ntk": {"factor": 4.0},
    "ntk_by_parts": {"factor": 4.0, "trained": 4096, "fast": 32.0, "slow": 1.0},
    "dynamic": {"trained": 4096, "factor": 4.0, "length": 9000},
    "staged": {"trained": 4096, "factor": 4.0},
    "yarn": {"factor": 4.0, "trained": 4096, "beta_fast": 32.0, "beta_slow": 1.0},
    "llama3": {"factor": 8.0, "trained": 8192, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "longrope": {"short": (1.0,) * PAIRS, "long": (2.0,) * PAIRS, "trained": 4096, "factor": 32.0, "length": 9000},
    "proportional": {"share": 0.5, "factor": 2.0},
    "hybrid": {"edges": (4, 9), "scalings": (None, NTK(4.0), Linear(4.0))},
}
OPTIONAL = {
    "yarn": {"attention_factor": 1.0, "attn_factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0},
    "longrope": {"attention_factor": 1.0, "short_m": 1.0, "long_m": 1.0},
}
WRONG = [float("nan"), float("inf"), -float("inf"), 0, 0.0, -1, -4.0]
NUMBERS = [
    (name, word)
    for name in SCALINGS
    for word, value in (WHOLE[name] | OPTIONAL.get(name, {})).items()
    if isinstance(value, int | float)
]  # every number that a scaling takes


def cls(name: str) -> type:
    return SCALINGS[name]


def sample(name: str):
    return cls(name)(**WHOLE[name])


def test_the_table_above_names_every_number_of_every_scaling():
    for name in SCALINGS:
        numbers = {
            f.name for f in dataclasses.fields(cls(name)) if {"int", "float"} & set(f.type.replace(" ", "").split("|"))
        }
        assert numbers == {word for other, word in NUMBERS if other == name}, name


# -- what is refused
# -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", WRONG, ids=repr)
@pytest.mark.parametrize(("name", "word"), NUMBERS)
def test_no_number_may_be_nan_infinite_zero_or_negative(name, word, wrong):
    if (word, wrong) in (("mscale", 0), ("mscale_all_dim", 0)):  # zero says nothing there, as published
        assert cls(name)(**WHOLE[name] | {word: wrong}).m == sample(name).m
        return
    with pytest.raises(ValueError, match=r"got .*" + str(wrong).replace("-", r"\-")):
        cls(name)(**WHOLE[name] | {word: wrong})


@pytest.mark.parametrize("name", [name for name, word in NUMBERS if word == "factor"])
def test_a_quarter_is_taken_for_the_inverse_of_four(name):
    with pytest.raises(
        ValueError,
        match=rf"factor of {name} must be a finite number of at least 1, .*got 0.25 \(0.25 is the inverse of 4\)",
    ):
        cls(name)(**WHOLE[name] | {"factor": 0.25})


@pytest.mark.parametrize(("name", "word"), [(name, word) for name, word in NUMBERS if word in ("trained", "length")])
@pytest.mark.parametrize("wrong", [4096.5, 4096.0, "4096"])
def test_lengths_are_whole_numbers(name, word, wrong):
    with pytest.raises(ValueError, match=f"{word} of {name} is a whole number of tokens, at least 1, got 4096"):
        cls(name)(**WHOLE[name] | {word: wrong})


@pytest.mark.parametrize(("make", "said"), [
    (lambda: LargerBase(1.0), "base must be a finite number above 1"),
    (lambda: LargerBase(1e301), "base must be a finite number above 1"),
    (lambda: LargerBase.needed(2048, trained=4096), "trained=4096, length=2048"),
    (lambda: LargerBase.needed(4096, trained=6), "trained=6, length=4096"),
    (lambda: LargerBase.needed(float("inf"), trained=4096), "length=inf"),
    (lambda: LargerBase.needed(float("nan"), trained=4096), "length=nan"),
    (lambda: NTKByParts(4.0, 4096, fast=1.0, slow=1.0), "0 < slow < fast"),
    (lambda: NTKByParts(4.0, 4096, form="late"), 'form must be "paper" or "early"'),
    (lambda: NTKByParts(4.0, 4096, form="early", fast=16.0), "fixed bounds of its own"),
    (lambda: YaRN(4.0, 4096, beta_fast=1.0, beta_slow=2.0), "0 < beta_slow <= beta_fast"),
    (lambda: YaRN(4.0, 4096, beta_fast=2.0, beta_slow=2.0, preset="paper"), "wants beta_slow < beta_fast, got 2.0 for both"),
    (lambda: YaRN(4.0, 4096, preset="vllm"), 'preset must be "transformers", "gpt-oss" or "paper", got \'vllm\''),
    (lambda: YaRN(4.0, 4096, preset="paper", truncate=False), "no bounds to truncate"),
    (lambda: Llama3(low_freq_factor=4.5), "0 < low_freq_factor <= high_freq_factor, got 4.5 and 4.0"),
    (lambda: LongRoPE((), (), 4096), "a tuple of factors above 0"),
    (lambda: LongRoPE((1.0, float("nan")), (1.0, 1.0), 4096), "short of longrope is a tuple of factors above 0"),
    (lambda: LongRoPE((1.0, 1.0), (1.0, 0.0), 4096), "long of longrope is a tuple of factors above 0"),
    (lambda: LongRoPE((1.0, 1.0), (1.0, float("inf")), 4096), "long of longrope is a tuple of factors above 0"),
    (lambda: LongRoPE([1.0], [1.0], 4096), "short of longrope is a tuple"),
    (lambda: LongRoPE((1.0,), (1.0, 2.0), 4096), "as many short factors as long ones, got 1 and 2"),
    (lambda: LongRoPE((1.0,), (2.0,), 1, 4.0), "trained must be at least 2, got 1"),
    (lambda: LongRoPE((1.0,), (2.0,), 4096, attention_factor=1.0, long_m=1.0), "give one or the other"),
    (lambda: Proportional(1.5), "at most 1, got 1.5"),
    (lambda: Proportional(0.01)(geometric(64)), "turns none of them"),
    (lambda: Hybrid((), (None,)), "pair numbers above 0 that grow"),
    (lambda: Hybrid((0,), (None, None)), r"pair numbers above 0 that grow, got \(0,\)"),
    (lambda: Hybrid((4, 4), (None, None, None)), "pair numbers above 0 that grow"),
    (lambda: Hybrid((1.5,), (None, None)), r"pair numbers above 0 that grow, got \(1.5,\)"),
    (lambda: Hybrid((float("nan"),), (None, None)), "pair numbers above 0 that grow"),
    (lambda: Hybrid([4], (None, None)), "edges of hybrid is a tuple"),
    (lambda: Hybrid((4,), [None, None]), "scalings of hybrid is a tuple"),
    (lambda: Hybrid((4,), (None,)), "1 edges make 2 bands, got 1 scalings"),
    (lambda: Hybrid((4,), (None, "linear")), "scalings, or None to keep a band"),
    (lambda: Hybrid((4,), (None, Staged(4096))), "stage of each query"),
    (lambda: Hybrid((32,), (None, Linear(2.0)))(geometric(64)), "begins at pair 32, and there are 32 pairs"),
    (lambda: Hybrid((4,), (YaRN(4.0, 4096), Linear(4.0)))(geometric(64)), "different temperatures"),
    (lambda: Hybrid((4,), (Dynamic(4096), None))(geometric(64)), "depends on the length"),
    (lambda: Dynamic(4096)(geometric(64)), "depends on the length"),
    (lambda: Staged(4096)(geometric(64)), "depends on the length"),
    (lambda: LongRoPE((1.0,) * 32, (2.0,) * 32, 4096)(geometric(64)), "depends on the length"),
    (lambda: YaRN(4.0, 4, preset="gpt-oss")(geometric(64)), 'preset="gpt-oss" wants bounds inside'),
    (lambda: NTKByParts(4.0, 4, form="early")(geometric(64)), "cross"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused_with_a_sentence(make, said):
    with pytest.raises(ValueError, match=said):
        make()


# -- values
# ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCALINGS)
def test_a_scaling_is_frozen_hashable_and_equal_to_its_like(name):
    one, two = sample(name), sample(name)
    assert one is not two and one == two and hash(one) == hash(two) and len({one, two}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(one, dataclasses.fields(one)[0].name, 3)
    other = WHOLE[name] | (
        {"edges": (4, 10)} if name == "hybrid" else {"base": 3.0} if name == "larger_base" else {"factor": 3.0}
    )
    assert cls(name)(**other) != one


@pytest.mark.parametrize("name", SCALINGS)
def test_the_same_spectrum_comes_out_each_time_and_the_plain_one_is_left_alone(name):
    plain, kept = geometric(64, 10000.0), geometric(64, 10000.0)
    scaling = sample(name).at(9000)
    assert scaling(plain) == scaling(plain) and plain == kept
    assert scaling(plain) != plain


@pytest.mark.parametrize("name", SCALINGS)
def test_pairs_that_stand_still_stay_still(name):
    plain = geometric(64, pairs=24)
    scaled = sample(name).at(9000)(plain).frequencies
    assert scaled[24:] == (0.0,) * 8
    assert all(w > 0 for w in scaled[: 16 if name == "proportional" else 24])


numbers = st.floats(1.0, 1e6)
whole = st.integers(2, 10**7)
lists = st.lists(st.floats(1e-3, 1e3), min_size=PAIRS, max_size=PAIRS).map(tuple)
maybe = st.none() | st.floats(0.01, 100.0) | st.integers(1, 9)
between = st.tuples(st.floats(0.1, 10.0), st.floats(1.1, 90.0)).map(lambda two: (two[0], two[0] * two[1]))
any_yarn = st.builds(
    lambda factor, trained, b, preset, truncate, m, said: YaRN(
        factor,
        trained,
        b[1],
        b[0],
        preset,
        None if preset == "paper" else truncate,
        **({"mscale": m, "mscale_all_dim": said} if m else {"attn_factor": said}),
    ),
    numbers,
    whole,
    between,
    st.sampled_from(["transformers", "gpt-oss", "paper"]),
    st.sampled_from([None, True, False]),
    maybe,
    maybe,
)
simple = st.one_of(
    st.builds(LargerBase, st.floats(1.5, 1e300)),
    st.builds(Linear, numbers),
    st.builds(Linear, st.integers(1, 1000)),
    st.builds(NTK, numbers),
    st.builds(lambda f, n, b: NTKByParts(f, n, b[1], b[0]), numbers, whole, between),
    st.builds(lambda f, n: NTKByParts(f, n, form="early"), numbers, whole),
    st.builds(Dynamic, whole, numbers, st.none() | whole),
    any_yarn,
    st.builds(lambda f, n, b: Llama3(f, n, *b), numbers, whole, between),
    st.builds(LongRoPE, lists, lists, whole, numbers, maybe),
    st.builds(
        lambda s, n, a, b, at: LongRoPE(s, s, n, 1.0, None, a, b, at), lists, whole, maybe, maybe, st.none() | whole
    ),
    st.builds(Proportional, st.floats(0.04, 1.0), numbers),
)
bands = st.lists(st.integers(1, PAIRS - 1), min_size=1, max_size=3, unique=True).flatmap(
    lambda edges: st.tuples(
        st.just(tuple(sorted(edges))),
        st.lists(st.none() | simple, min_size=len(edges) + 1, max_size=len(edges) + 1).map(tuple),
    )
)
anything = simple | st.builds(Staged, whole, numbers) | bands.map(lambda both: Hybrid(*both))


@settings(SOME, max_examples=200)
@given(anything)
def test_every_scaling_is_its_spec(scaling):
    text = f"rope(head_dim=64, scaling={scaling!r})"
    try:
        made = RoPE(head_dim=64, scaling=scaling)
    except ValueError as error:  # a value that this head can't have: its spec can't be built either
        with pytest.raises(
            ValueError, match=re.escape(str(error)) if len(text) <= LONGEST else f"at most {LONGEST} characters"
        ):
            build(text)
        return
    assert repr(made) == text
    if len(text) > LONGEST:  # several long lists in one hybrid
        with pytest.raises(ValueError, match=f"at most {LONGEST} characters"):
            build(text)
        return
    again = build(text)
    assert again.scaling == scaling and repr(again) == text and hash(again.scaling) == hash(scaling)
    assert again.spectrum == made.spectrum


@pytest.mark.parametrize("name", SCALINGS)
def test_a_scaling_says_only_what_differs_from_its_defaults(name):
    assert repr(sample(name)).startswith(f"{name}(")
    assert build(f"rope(head_dim=64, scaling={sample(name)!r})").scaling == sample(name)
    assert repr(YaRN(4.0, 4096)) == "yarn(factor=4.0, trained=4096)" and repr(Llama3()) == "llama3()"


# -- when it depends on the length
# -------------------------------------------------------------------------------------------


def test_longrope_depends_on_the_length_where_its_lists_differ():
    one, two = (1.0,) * PAIRS, (2.0,) * PAIRS
    assert (
        LongRoPE(one, two, 4096).length_dependent and LongRoPE(one, one, 4096, short_m=1.0, long_m=1.5).length_dependent
    )
    assert (
        not LongRoPE(one, one, 4096, 4.0).length_dependent
        and not LongRoPE(one, two, 4096, length=5000).length_dependent
    )
    same = LongRoPE(one, one, 4096, 4.0, short_m=1.25, long_m=1.25)
    assert same.at(100) is same and same.at(5000) is same and same(geometric(64)).temperature == 1.25**2
    fixed = LongRoPE(one, two, 4096, length=5000)
    assert fixed.at(100) is fixed and fixed(geometric(64)).frequencies == tuple(
        w / 2 for w in geometric(64).frequencies
    )
    assert RoPE(head_dim=64, scaling=LongRoPE(two, two, 4096)).spectrum.frequencies == fixed(geometric(64)).frequencies


@pytest.mark.parametrize("name", SCALINGS)
def test_at_is_the_scaling_for_one_length_and_changes_no_fixed_one(name):
    scaling = sample(name)
    plain = scaling.at(9000)
    assert not plain.length_dependent and plain.at(1) == plain
    assert scaling.length_dependent or plain == scaling


def test_a_hybrid_waits_where_one_of_its_bands_does():
    waits = Hybrid((4,), (None, Dynamic(4096, 2.0)))
    assert waits.length_dependent and not Hybrid((4,), (None, Linear(2.0))).length_dependent
    for length in (4096, 4097, 16384):
        by_hand = geometric(64).frequencies[:4] + Dynamic(4096, 2.0, length)(geometric(64)).frequencies[4:]
        assert waits.at(length)(geometric(64)).frequencies == by_hand
    assert Hybrid((2,), (None, waits)).at(9000)(geometric(64)).frequencies == waits.at(9000)(geometric(64)).frequencies


def test_a_hybrid_has_the_temperature_of_its_scalings():
    yarn = YaRN(4.0, 4096)
    assert Hybrid((4,), (None, yarn))(geometric(64)).temperature == yarn(geometric(64)).temperature
    assert (
        Hybrid((4,), (YaRN(4.0, 4096, preset="paper"), yarn))(geometric(64)).temperature
        == yarn(geometric(64)).temperature
    )
    assert Hybrid((4,), (None, None))(geometric(64)) == geometric(64)


# -- order
# -------------------------------------------------------------------------------------------------------------------

STRETCH = {
    "linear": Linear,
    "ntk": NTK,
    "ntk_by_parts": lambda f: NTKByParts(f, 4096),
    "ntk_by_parts early": lambda f: NTKByParts(f, 4096, form="early"),
    "dynamic": lambda f: Dynamic(4096, f, 9000),
    "staged": lambda f: Staged(4096, f).at(9000),
    "yarn": lambda f: YaRN(f, 4096),
    "yarn gpt-oss": lambda f: YaRN(f, 4096, preset="gpt-oss"),
    "yarn paper": lambda f: YaRN(f, 4096, preset="paper"),
    "llama3": lambda f: Llama3(f, 4096),
    "proportional": lambda f: Proportional(0.5, f),
}


@pytest.mark.parametrize("name", STRETCH)
def test_a_larger_factor_slows_every_pair_more_or_not_at_all(name):
    @SOME
    @given(
        st.sampled_from([64, 72, 80, 96, 128, 192, 256]),
        st.lists(st.floats(1.0, 256.0), min_size=2, max_size=5, unique=True).map(sorted),
    )
    def holds(size, factors):
        plain = geometric(size, 150000.0)
        rows = [plain, *(STRETCH[name](f)(plain) for f in factors)]
        for a, b in itertools.pairwise(rows):
            live = [i for i, w in enumerate(b.frequencies) if w]
            # equal but for roundings where a pair is kept; never faster, and the slowest is slower by what the factor
            # grew
            assert all(b.frequencies[i] <= a.frequencies[i] * (1 + 1e-14) for i in live)
            assert b.temperature >= a.temperature
        for row in rows:
            assert all(a >= b * (1 - 1e-14) for a, b in itertools.pairwise(row.frequencies)), "fastest pair first"
            assert all(0 <= w <= 1 for w in row.frequencies)

    holds()


@pytest.mark.parametrize("name", [n for n in STRETCH if n not in ("linear", "proportional")])
def test_the_first_pair_is_never_slowed_and_the_last_by_the_factor(name):
    for size, factor in itertools.product((64, 96, 128), (2.0, 4.0, 32.0)):
        plain = geometric(size, 150000.0)
        scaled = STRETCH[name](factor)(plain)
        assert scaled.frequencies[0] == 1.0
        slower = plain.frequencies[-1] / scaled.frequencies[-1]
        stretch = {"dynamic": factor * 9000 / 4096 - (factor - 1), "staged": factor * 4 - (factor - 1)}.get(
            name, factor
        )
        assert math.isclose(slower, stretch, rel_tol=1e-13)


@pytest.mark.parametrize("size", [64, 72, 80, 96, 128, 192, 256])
def test_proportional_and_the_partial_rotation_of_that_name_are_one(size):
    for live in range(1, size // 2 + 1):
        scaled = Proportional(2 * live / size)(geometric(size))
        assert scaled.frequencies == RoPE(head_dim=size, rotary=2 * live, partial="proportional").spectrum.frequencies
        assert sum(w > 0 for w in scaled.frequencies) == live


def test_a_share_in_decimals_counts_as_published_code_counts():
    """0.58 is a little below 58/100 in binary: int(0.58 * 100 // 2) is 28, and so are the pairs that turn there and
    here.
    """
    assert int(0.58 * 100 // 2) == 28
    assert sum(w > 0 for w in Proportional(0.58)(geometric(100)).frequencies) == 28
