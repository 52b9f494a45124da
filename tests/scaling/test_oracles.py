"""Every scaling against its formula as the papers and the first releases have it, at 40 digits, with nothing of the
package's own helpers.

Each oracle goes another way than the page: wavelengths for frequencies, a ratio for a new base, branches for a clip.
"""

import math

import mpmath
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from mpmath import mpf

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
from milepost.spectrum import geometric

EPS = 2.0**-52
SOME = settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much])

sizes = st.sampled_from([64, 72, 80, 96, 128, 192, 256])
bases = st.sampled_from([10000.0, 150000.0, 500000.0, 1e6]) | st.floats(500.0, 1e7)
factors = st.sampled_from([1.5, 2.0, 4.0, 8.0, 32.0]) | st.floats(1.01, 128.0)
lengths = st.sampled_from([2048, 4096, 8192, 32768, 131072, 262144]) | st.integers(64, 1 << 20)
turns = st.tuples(st.floats(0.25, 4.0), st.floats(1.5, 40.0)).map(
    lambda both: (both[0], both[0] * both[1])
)  # slow, fast


@pytest.fixture(autouse=True, scope="module")
def _forty_digits():
    with mpmath.workdps(40):
        yield


def waves(size: int, base: float) -> list[mpf]:
    """Tokens in a turn of each pair: 2π base^(2i/d)."""
    return [2 * mpmath.pi * mpmath.exp(mpf(2 * i) / size * mpmath.log(mpf(base))) for i in range(size // 2)]


def roundings(base: float) -> float:
    """How far a frequency in float64 may be from the truth, relatively.

    The exponent 2i/d is off by half a rounding, which the power makes ln(base) times larger; power, quotients and
    products add half a rounding each, and no page has more than twelve of them for a pair.
    """
    return (math.log(base) + 12) * EPS


def near(got: tuple[float, ...], want: list[mpf], room: float) -> None:
    assert len(got) == len(want)
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        assert abs(mpf(a) - b) <= room * b, f"pair {i}: {a} is off by {float(mpf(a) / b - 1):.2e}, allowed {room:.2e}"


def blended(room: float, factor: float, share: float) -> float:
    """The room of w (1 - y)/f + w y where y is off by ``share``: that moves w by share (1 - 1/f), and what it moves
    is at least w/f.
    """
    return room + share * (factor - 1) * (1 + 1e-9) + 4 * EPS


def blend(wave: mpf, factor: float, kept: mpf) -> mpf:
    """The frequency between one turn in ``factor`` waves (kept 0) and one turn a wave (kept 1)."""
    slow, fast = 2 * mpmath.pi / (wave * mpf(factor)), 2 * mpmath.pi / wave
    return slow + kept * (fast - slow)


def pair_making(r: float, size: int, base: float, trained: int) -> mpf:
    """Solved for c: trained = r waves, where pair c has a wave of 2π base^(2c/d)."""
    return mpf(size) / 2 * mpmath.log(mpf(trained) / (mpf(r) * 2 * mpmath.pi), mpf(base))


def kept_over_pairs(
    size: int, base: float, trained: int, fast: float, slow: float, truncate: bool, most: mpf
) -> tuple[list[mpf], mpf] | None:
    """The shares that are kept and the width of the ramp, or None where its bounds cross."""
    low, high = pair_making(fast, size, base, trained), pair_making(slow, size, base, trained)
    if truncate:
        assume(all(abs(c - mpmath.nint(c)) > 1e-9 for c in (low, high)))  # float64 might take the other whole number
        low, high = mpmath.floor(low), mpmath.ceil(high)
    low, high = max(low, mpf(0)), min(high, mpf(most))
    if high < low:
        return None
    width = high - low if high > low else mpf("0.001")
    assume(width == mpf("0.001") or width > 0.05)
    shares = []
    for i in range(size // 2):
        if i <= low:
            shares.append(mpf(1))
        elif i >= low + width:
            shares.append(mpf(0))
        else:
            shares.append((low + width - i) / width)
    return shares, width


def share_room(size: int, base: float, truncate: bool, width: mpf) -> float:
    """Error of a share over pairs: whole bounds are exact and leave two roundings; others are each off by a few of
    d/2, over the width.
    """
    return 4 * EPS if truncate else 4 * EPS + float(2 * (3 * size / (2 * math.log(base)) + 2 * size) * EPS / width)


# -- one number for all pairs ------------------------------------------------------------------------------------------


@SOME
@given(sizes, bases, factors)
def test_linear_makes_every_wave_factor_times_longer(size, base, factor):
    got = Linear(factor)(geometric(size, base))
    near(got.frequencies, [2 * mpmath.pi / (wave * mpf(factor)) for wave in waves(size, base)], roundings(base))
    assert got.temperature == 1.0


@SOME
@given(sizes, bases, factors)
def test_ntk_divides_pair_i_by_a_power_of_the_factor(size, base, factor):
    got = NTK(factor)(geometric(size, base))
    want = [2 * mpmath.pi / wave / mpf(factor) ** (mpf(2 * i) / (size - 2)) for i, wave in enumerate(waves(size, base))]
    near(got.frequencies, want, roundings(got.base))
    assert got.frequencies[0] == 1.0 and got.temperature == 1.0


@SOME
@given(sizes, bases, st.floats(500.0, 1e9))
def test_a_larger_base_is_that_base_whatever_was_before(size, base, other):
    got = LargerBase(other)(geometric(size, base))
    near(got.frequencies, [2 * mpmath.pi / wave for wave in waves(size, other)], roundings(other))
    assert got.base == other


@SOME
@given(bases, st.integers(16, 1 << 18), st.floats(1.0, 64.0))
def test_the_base_for_a_length_lets_the_same_pair_make_its_one_turn(base, trained, times):
    length = int(trained * times)
    needed = LargerBase.needed(length, trained=trained, base=base)
    # the same number of pairs full circle: ln(trained / 2π) / ln(base) = ln(length / 2π) / ln(needed)
    before, after = (pair_making(1.0, 128, b, n) for b, n in ((base, trained), (needed, length)))
    assert abs(before / after - 1) < 32 * EPS
    assert needed >= base * (1 - 32 * EPS)


@SOME
@given(sizes, bases, factors, lengths, st.floats(0.1, 16.0))
def test_dynamic_is_ntk_by_as_much_as_the_text_has_outgrown(size, base, factor, trained, times):
    length = max(1, int(trained * times))
    got = Dynamic(trained, factor, length)(geometric(size, base))
    stretch = mpf(factor) * max(length, trained) / trained - (mpf(factor) - 1)
    want = [2 * mpmath.pi / wave / stretch ** (mpf(2 * i) / (size - 2)) for i, wave in enumerate(waves(size, base))]
    # the stretch is at least 1 and the difference of two numbers of at most factor * times + factor
    near(got.frequencies, want, roundings(got.base) + 3 * factor * (times + 1) * EPS)
    assert got.temperature == 1.0


@SOME
@given(sizes, bases, factors, lengths, st.floats(0.1, 40.0))
def test_staged_is_dynamic_for_the_power_of_two_that_holds_the_query(size, base, factor, trained, times):
    length = max(1, int(trained * times))
    room = trained
    while room < length:
        room *= 2
    got = Staged(trained, factor).at(length)(geometric(size, base))
    stretch = mpf(factor) * room / trained - (mpf(factor) - 1)
    want = [2 * mpmath.pi / wave / stretch ** (mpf(2 * i) / (size - 2)) for i, wave in enumerate(waves(size, base))]
    near(got.frequencies, want, roundings(got.base) + 6 * factor * (times + 1) * EPS)


# -- each pair by its turns
# ----------------------------------------------------------------------------------------------


@SOME
@given(sizes, bases, factors, lengths, turns)
def test_ntk_by_parts_blends_by_turns(size, base, factor, trained, bounds):
    slow, fast = bounds
    got = NTKByParts(factor, trained, fast=fast, slow=slow)(geometric(size, base))
    want = []
    for wave in waves(size, base):
        r = mpf(trained) / wave
        kept = mpf(1) if r > fast else mpf(0) if r < slow else (r - mpf(slow)) / (mpf(fast) - mpf(slow))
        want.append(blend(wave, factor, kept))
    near(got.frequencies, want, blended(roundings(base), factor, (roundings(base) + 4 * EPS) * fast / (fast - slow)))
    assert got.temperature == 1.0


@SOME
@given(sizes, bases, factors, lengths)
def test_the_early_ntk_by_parts_has_three_regimes_and_two_ramps(size, base, factor, trained):
    first = kept_over_pairs(size, base, trained, 1.25, 0.75, True, size - 1)
    second = kept_over_pairs(size, base, trained, 16.0, 2.0, True, size - 1)
    assert first is not None and second is not None
    got = NTKByParts(factor, trained, form="early")(geometric(size, base))
    want = []
    for i, wave in enumerate(waves(size, base)):
        plain = 2 * mpmath.pi / wave
        linear, ntk = plain / mpf(factor), plain / mpf(factor) ** (mpf(2 * i) / (size - 2))
        mixed = linear + first[0][i] * (ntk - linear)
        want.append(mixed + second[0][i] * (plain - mixed))
    near(got.frequencies, want, blended(2 * roundings(base * factor**1.1), factor, 8 * EPS))
    assert got.temperature == 1.0


@SOME
@given(
    sizes,
    bases,
    factors,
    lengths,
    turns,
    st.sampled_from([None, True, False]),
    st.sampled_from(["transformers", "gpt-oss", "paper"]),
)
def test_yarn_blends_over_pairs_or_turns_and_sharpens(size, base, factor, trained, bounds, truncate, preset):
    slow, fast = bounds
    scaling = YaRN(
        factor, trained, beta_fast=fast, beta_slow=slow, preset=preset, truncate=None if preset == "paper" else truncate
    )
    plain = geometric(size, base)
    if preset == "paper":
        shares = [
            min(mpf(1), max(mpf(0), (mpf(trained) / wave - mpf(slow)) / (mpf(fast) - mpf(slow))))
            for wave in waves(size, base)
        ]
        off = (roundings(base) + 4 * EPS) * fast / (fast - slow)
    else:
        whole = truncate if truncate is not None else preset == "transformers"
        found = kept_over_pairs(
            size, base, trained, fast, slow, whole, mpf(size - 1) if preset == "transformers" else mpf(size) / 2 - 1
        )
        raw = [pair_making(r, size, base, trained) for r in (fast, slow)]
        low, high = (mpmath.floor(raw[0]), mpmath.ceil(raw[1])) if whole else raw
        outside = found is None if preset == "transformers" else not 0 < low < high < mpf(size) / 2 - 1
        if outside:
            with pytest.raises(ValueError, match="bounds"):
                scaling(plain)
            return
        shares, width = found
        off = share_room(size, base, whole, width)
    got = scaling(plain)
    near(
        got.frequencies,
        [blend(wave, factor, y) for wave, y in zip(waves(size, base), shares, strict=True)],
        blended(roundings(base), factor, off),
    )
    m = 1 + mpmath.log(mpf(factor)) / 10
    assert abs(got.temperature / (m * m) - 1) <= 8 * EPS


@SOME
@given(sizes, bases, factors, lengths, turns)
def test_llama3_has_three_branches_by_wavelength(size, base, factor, trained, bounds):
    low, high = bounds
    got = Llama3(factor, trained, low_freq_factor=low, high_freq_factor=high)(geometric(size, base))
    want = []
    for wave in waves(size, base):
        if wave < mpf(trained) / mpf(high):
            want.append(2 * mpmath.pi / wave)
        elif wave > mpf(trained) / mpf(low):
            want.append(2 * mpmath.pi / wave / mpf(factor))
        else:
            smooth = (mpf(trained) / wave - mpf(low)) / (mpf(high) - mpf(low))
            want.append(((1 - smooth) / mpf(factor) + smooth) * 2 * mpmath.pi / wave)
    near(got.frequencies, want, blended(roundings(base), factor, (roundings(base) + 4 * EPS) * high / (high - low)))
    assert got.temperature == 1.0


# -- each pair by a list
# ---------------------------------------------------------------------------------------------------


@SOME
@given(st.data(), sizes, bases, factors, lengths, st.floats(0.5, 4.0))
def test_longrope_divides_by_its_list_and_sharpens_by_the_root(data, size, base, factor, trained, times):
    lists = st.lists(st.floats(0.5, 80.0), min_size=size // 2, max_size=size // 2).map(tuple)
    short, long = data.draw(lists), data.draw(lists)
    length = max(1, int(trained * times))
    got = LongRoPE(short, long, trained, factor).at(length)(geometric(size, base))
    mine = short if length <= trained else long
    near(
        got.frequencies,
        [2 * mpmath.pi / (wave * mpf(f)) for wave, f in zip(waves(size, base), mine, strict=True)],
        roundings(base),
    )
    squared = 1 + mpmath.log(mpf(factor), mpf(trained))  # m is its root, and goes on cos and on sin
    assert abs(got.temperature / squared - 1) <= 8 * EPS


@SOME
@given(sizes, bases, factors, st.data())
def test_proportional_stops_all_but_the_fastest(size, base, factor, data):
    live = data.draw(st.integers(1, size // 2))
    got = Proportional(2 * live / size, factor)(geometric(size, base))
    near(
        got.frequencies[:live],
        [2 * mpmath.pi / (wave * mpf(factor)) for wave in waves(size, base)[:live]],
        roundings(base),
    )
    assert got.frequencies[live:] == (0.0,) * (size // 2 - live)


@SOME
@given(sizes, bases, factors, st.data())
def test_a_hybrid_asks_for_each_pair_whose_band_it_is_in(size, base, factor, data):
    one = data.draw(st.integers(1, size // 2 - 2))
    two = data.draw(st.integers(one + 1, size // 2 - 1))
    got = Hybrid((one, two), (None, NTK(factor), Linear(factor)))(geometric(size, base))
    want = []
    for i, wave in enumerate(waves(size, base)):
        if i < one:
            want.append(2 * mpmath.pi / wave)
        elif i < two:
            want.append(2 * mpmath.pi / wave / mpf(factor) ** (mpf(2 * i) / (size - 2)))
        else:
            want.append(2 * mpmath.pi / wave / mpf(factor))
    near(got.frequencies, want, roundings(base * factor**1.1))


def test_every_scaling_has_an_oracle_here():
    assert {cls.__name__ for cls in SCALINGS.values()} <= set(globals())
