"""Numbers that are known: faults S1 to S18 of real software, as far as they are about the scalings themselves.

Golden values were worked out with the standard library, from the formulas; the file says again how, where that is
short.
"""

import itertools
import math

import pytest
import torch

from milepost import RoPE, Spectrum, build
from milepost.scaling import (
    NTK,
    Dynamic,
    Hybrid,
    Linear,
    Llama3,
    LongRoPE,
    NTKByParts,
    Proportional,
    Staged,
    YaRN,
    mscale,
)
from milepost.scaling.ramp import bounds, pair_with
from milepost.spectrum import geometric

L = 4096
PLACES = [0, 1, 2, 255, 256, 257, L - 1, L, L + 1, 4 * L, 131071, 1048575]


def ratios(scaled: Spectrum, plain: Spectrum) -> list[float]:
    return [a / b for a, b in zip(scaled.frequencies, plain.frequencies, strict=True)]


def multiplier(enc: RoPE) -> float:
    """What a logit of vectors that turn is multiplied by: at one and the same place a rotation changes no product."""
    q = torch.randn(1, 1, 1, enc.head_dim, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    k = torch.randn(1, 1, 1, enc.head_dim, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    q[..., enc.size :] = 0
    at = torch.tensor([257])
    return (enc.query(q, at) @ enc.key(k, at).transpose(-1, -2)).item() / (q @ k.transpose(-1, -2)).item()


# -- S1: linear ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [2.0, 4.0, 8.0])
def test_interpolated_rotations_at_f_p_are_the_plain_ones_at_p(factor):
    x = torch.randn(1, 2, len(PLACES), 64, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    at = torch.tensor(PLACES)
    plain, stretched = RoPE(head_dim=64), RoPE(head_dim=64, scaling=Linear(factor))
    for hook in ("query", "key"):  # a power of two divides exactly: the angles are the same to the bit
        assert torch.equal(getattr(stretched, hook)(x, at * int(factor)), getattr(plain, hook)(x, at))
        assert not torch.equal(getattr(stretched, hook)(x, at), getattr(plain, hook)(x, at))


@pytest.mark.parametrize("make", [
    Linear, NTK, lambda f: NTKByParts(f, L), lambda f: Dynamic(L, f), lambda f: Staged(L, f), lambda f: YaRN(f, L), lambda f: Llama3(f, L),
    lambda f: LongRoPE((1.0,), (2.0,), L, f), lambda f: Proportional(0.5, f),
])  # fmt: skip
@pytest.mark.parametrize(("inverse", "meant"), [(0.5, "2"), (0.25, "4"), (0.125, "8")])
def test_an_inverse_factor_is_refused_with_what_may_have_been_meant(make, inverse, meant):
    with pytest.raises(
        ValueError, match=rf"factor of .* must be .*at least 1.*got {inverse} \({inverse} is the inverse of {meant}\)"
    ):
        make(inverse)


# -- S2: NTK -------------------------------------------------------------------------------------------------------


def test_the_base_of_ntk_is_the_published_one():
    plain = geometric(128)
    scaled = NTK(4.0)(plain)
    assert round(scaled.base, 3) == 40889.942  # 10000 * 4 ** (128 / 126)
    assert scaled.frequencies[0] == plain.frequencies[0] == 1.0
    assert math.isclose(scaled.wavelengths[-1], 4 * plain.wavelengths[-1], rel_tol=1e-13)
    assert all(1 < b / a < 4 for a, b in zip(scaled.frequencies[1:-1], plain.frequencies[1:-1], strict=True))


@pytest.mark.parametrize("size", [4, 64, 72, 80, 96, 128, 192, 256])
@pytest.mark.parametrize("factor", [1.5, 2.0, 8.0, 64.0])
def test_ntk_slows_the_last_pair_by_the_factor_and_never_the_first(size, factor):
    plain = geometric(size, 500000.0)
    scaled = NTK(factor)(plain)
    assert scaled.frequencies[0] == 1.0
    assert math.isclose(plain.frequencies[-1] / scaled.frequencies[-1], factor, rel_tol=1e-13)


def test_ntk_of_a_single_pair_is_refused():
    with pytest.raises(ValueError, match="at least 4, got 2"):
        NTK(2.0)(geometric(2))


# -- S3, S4, S5: dynamic (more of it in test_dynamic.py) -----------------------------------------------------------


def test_dynamic_depends_on_the_length_beyond_the_trained_one_and_on_nothing_else():
    enc = RoPE(head_dim=128, scaling=Dynamic(trained=L, factor=2.0))
    known = {n: enc.at(n).spectrum for n in (1, 512, L - 1, L, L + 1, 4 * L, 131071)}
    assert known[1] == known[512] == known[L - 1] == known[L] == geometric(128)
    assert len({known[n].base for n in (L, L + 1, 4 * L, 131071)}) == 4
    for order in itertools.permutations(
        [131071, 512, L + 1, L]
    ):  # long, short, mid, exactly the trained length, in any order
        assert all(enc.at(n).spectrum == known[n] for n in order)


def test_a_length_below_the_trained_one_would_give_a_negative_inner_number():
    assert 2.0 * 512 / 2048 - (2.0 - 1) == -0.5  # what the bare formula would raise to the power 128/126
    assert Dynamic(trained=2048, factor=2.0, length=512)(geometric(128)) == geometric(128)


# -- S8: the ramp of YaRN ------------------------------------------------------------------------------------------

GPT_OSS = geometric(64, 150000.0)


def correction(d: int, base: float, trained: int, turns: float) -> float:
    return d * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))


def test_the_bounds_of_gpt_oss_are_the_published_ones():
    low, high = correction(64, 150000.0, L, 32), correction(64, 150000.0, L, 1)
    assert (round(low, 4), round(high, 4)) == (8.0928, 17.3980)
    assert math.isclose(pair_with(32, GPT_OSS, L), low, rel_tol=1e-14) and math.isclose(
        pair_with(1, GPT_OSS, L), high, rel_tol=1e-14
    )
    assert bounds(GPT_OSS, L, 32, 1, truncate=True, most=63) == (8, 18)
    kept = YaRN(32.0, L, preset="gpt-oss").kept(GPT_OSS)
    assert kept[:9] == [1.0] * 9 and kept[18:] == [0.0] * 14
    for i in range(9, 18):
        assert math.isclose(kept[i], (high - i) / (high - low), rel_tol=1e-12)


def test_the_presets_differ_between_the_bounds_as_their_pages_say():
    shares = {preset: YaRN(32.0, L, preset=preset).kept(GPT_OSS) for preset in ("paper", "gpt-oss", "transformers")}
    r15 = L * 150000.0 ** (-30 / 64) / (2 * math.pi)
    assert math.isclose(shares["paper"][15], (r15 - 1) / 31, rel_tol=1e-12)
    assert {preset: round(kept[15], 3) for preset, kept in shares.items()} == {
        "paper": 0.047,
        "gpt-oss": 0.258,
        "transformers": 0.3,
    }
    for kept in shares.values():  # they agree at both ends
        assert kept[:9] == [1.0] * 9 and kept[18:] == [0.0] * 14
        assert all(a >= b for a, b in itertools.pairwise(kept))
    assert YaRN(32.0, L, truncate=False).kept(GPT_OSS) == shares["gpt-oss"]
    assert YaRN(32.0, L, preset="gpt-oss", truncate=True).kept(GPT_OSS) == shares["transformers"]


@pytest.mark.parametrize(("d", "base", "trained", "want"), [
    (128, 10000.0, 4096, (20, 46)), (128, 1e6, 32768, (23, 40)), (64, 10000.0, 4096, (10, 23)), (96, 10000.0, 2048, (12, 31)),
])  # fmt: skip
def test_whole_bounds_of_known_models(d, base, trained, want):
    assert (math.floor(correction(d, base, trained, 32)), math.ceil(correction(d, base, trained, 1))) == want
    assert bounds(geometric(d, base), trained, 32, 1, truncate=True, most=d - 1) == want


def test_the_last_bound_is_clamped_to_channels_and_not_to_pairs():
    """d - 1 where there are d/2 pairs: in every engine but two. For (64, 131072) it matters."""
    plain = geometric(64)
    assert round(correction(64, 10000.0, 131072, 1), 4) == round(pair_with(1, plain, 131072), 4) == 34.5546
    low = math.floor(correction(64, 10000.0, 131072, 32))
    kept = YaRN(4.0, 131072).kept(plain)
    assert bounds(plain, 131072, 32, 1, truncate=True, most=63) == (low, 35)
    for i in range(32):
        assert math.isclose(kept[i], 1 - max(0, i - low) / (35 - low), abs_tol=1e-15)
    by_pairs = 1 - (31 - low) / (31 - low)  # clamped at d/2 - 1 the last pair would be interpolated whole
    assert kept[31] - by_pairs > 0.3
    with pytest.raises(
        ValueError,
        match=r'preset="gpt-oss" wants bounds inside 0 .. 31 pairs, got 22.5134 and 34.5546; use preset="transformers"',
    ):
        YaRN(4.0, 131072, preset="gpt-oss")(plain)


def test_bounds_that_meet_make_a_step():
    plain = geometric(64)
    scaled = YaRN(4.0, 6)(plain)  # c(1) = -0.16, up to 0; c(32) below 0, up to 0 as well
    assert bounds(plain, 6, 32, 1, truncate=True, most=63) == (0, 0)
    assert ratios(scaled, plain) == [1.0] + [0.25] * 31
    one = YaRN(4.0, 4096, beta_fast=8.0, beta_slow=8.0)  # equal turns: down and up are one pair apart
    low, high = math.floor(correction(64, 10000.0, 4096, 8)), math.ceil(correction(64, 10000.0, 4096, 8))
    assert high == low + 1 and ratios(one(plain), plain) == [1.0] * (low + 1) + [0.25] * (31 - low)
    none = YaRN(4.0, 4096, beta_fast=8.0, beta_slow=8.0, truncate=False)
    assert ratios(none(plain), plain) == [1.0] * (low + 1) + [0.25] * (31 - low)


@pytest.mark.parametrize(
    ("base", "trained", "truncate"), [(100.0, 10**8, None), (10000.0, 6, False), (10000.0, 3, None)]
)
def test_bounds_that_cross_are_refused(base, trained, truncate):
    """All pairs make more than 32 turns, or all fewer than one: the clamps would turn the ramp round."""
    with pytest.raises(ValueError, match=r"bounds of the ramp \(32 and 1 turns over \d+ tokens\) cross"):
        YaRN(4.0, trained, truncate=truncate)(geometric(64, base))


def test_the_direction_of_the_ramp():
    """Pairs 0, 30 and 63 of (32, 128, 4096): 1, 0.627 and 1/32. Inverted, they are 1/32, 0.404 and 1, as one engine
    has them.
    """
    plain = geometric(128)
    got = ratios(YaRN(32.0, L)(plain), plain)
    assert got[0] == 1.0 and got[63] == 1 / 32
    assert math.isclose(got[30], 16 / 26 + 10 / 26 / 32, rel_tol=1e-14) and round(got[30], 3) == 0.627


# -- S9: m ---------------------------------------------------------------------------------------------------------

S = 4.0
G = 0.1 * math.log(S) + 1  # 1.1386


def g(k: float) -> float:
    return 0.1 * k * math.log(S) + 1


MATRIX = [
    ({}, G),
    ({"attention_factor": 1.0}, 1.0),
    ({"attention_factor": 1}, 1.0),
    ({"attention_factor": 0.8}, 0.8),
    ({"attention_factor": 2}, 2.0),
    ({"attn_factor": 1.0}, G),
    ({"attn_factor": 1}, G),
    ({"attn_factor": 0.5}, 0.5 * G),
    ({"attn_factor": 2}, 2 * G),
    ({"mscale": 1.0}, G),  # one of the two says nothing
    ({"mscale": 0.707}, G),
    ({"mscale_all_dim": 1.0}, G),
    ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),  # equal: they cancel
    ({"mscale": 1, "mscale_all_dim": 1}, 1.0),
    ({"mscale": 0.707, "mscale_all_dim": 0.707}, 1.0),
    ({"mscale": 1.0, "mscale_all_dim": 0.707}, g(1.0) / g(0.707)),
    ({"mscale": 0.707, "mscale_all_dim": 1}, g(0.707) / g(1.0)),
    ({"mscale": 2, "mscale_all_dim": 1}, g(2) / g(1)),
    ({"mscale": 1.0, "mscale_all_dim": 0}, G),  # zero says nothing
    ({"mscale": 1.0, "mscale_all_dim": 0.0}, G),
    ({"mscale": 0, "mscale_all_dim": 1.0}, G),
    ({"mscale": 0.0, "mscale_all_dim": 0}, G),
    ({"mscale": 1.0, "mscale_all_dim": 0.5, "attention_factor": 1.25}, 1.25),  # m itself comes first
    ({"mscale": 2.0, "mscale_all_dim": 1.0, "attn_factor": 3.0}, g(2) / g(1)),
    ({"mscale": 1.0, "attn_factor": 0.5}, 0.5 * G),
]


@pytest.mark.parametrize(("given", "m"), MATRIX)
@pytest.mark.parametrize("preset", ["transformers", "gpt-oss", "paper"])
def test_every_way_to_say_m_multiplies_logits_by_its_square_once(given, m, preset):
    scaling = YaRN(S, L, preset=preset, **given)
    assert math.isclose(scaling.m, m, rel_tol=1e-15)
    enc = RoPE(head_dim=64, base=150000.0, scaling=scaling)
    assert math.isclose(enc.spectrum.temperature, m * m, rel_tol=1e-15)
    assert math.isclose(multiplier(enc), m * m, rel_tol=1e-12)


def test_keys_are_pure_rotations_under_any_m():
    k = torch.randn(1, 2, len(PLACES), 64, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    enc = RoPE(head_dim=64, scaling=YaRN(S, L))
    at = torch.tensor(PLACES)
    assert torch.allclose(enc.key(k, at).norm(dim=-1), k.norm(dim=-1), rtol=1e-14, atol=0)
    assert torch.allclose(enc.query(k, at).norm(dim=-1), G**2 * k.norm(dim=-1), rtol=1e-14, atol=0)
    assert enc.rotation is False and RoPE(head_dim=64, scaling=YaRN(S, L, attention_factor=1)).rotation is True


def test_two_factors_for_m_are_refused():
    with pytest.raises(
        ValueError,
        match=r"attention_factor=1.0 is m itself, attn_factor=0.5 multiplies the default m: give one of them",
    ):
        YaRN(S, L, attention_factor=1.0, attn_factor=0.5)


def test_the_scale_of_deepseek_is_the_square_of_g():
    assert mscale(40.0, 1.0) == 0.1 * math.log(40) + 1 and mscale(1.0, 5.0) == 1.0
    assert math.isclose(mscale(40.0) ** 2, 1.8738542, rel_tol=1e-7)


# -- S11: Llama 3 --------------------------------------------------------------------------------------------------


def test_the_pairs_of_llama_3_2_1b():
    plain = geometric(64, 500000.0)
    got = ratios(Llama3(factor=32.0, trained=8192, low_freq_factor=1.0, high_freq_factor=4.0)(plain), plain)
    assert got[:15] == [1.0] * 15
    assert all(1 / 32 < r < 1 for r in got[15:18])
    assert got[18:] == [1 / 32] * 14
    for i in (15, 16, 17):  # blended in frequency; a blend of wavelengths would give 1 / (32 (1 - t) + t)
        t = (8192 / (2 * math.pi * 500000.0 ** (2 * i / 64)) - 1) / 3
        assert math.isclose(got[i], (1 - t) / 32 + t, rel_tol=1e-13)
        assert abs(got[i] - 1 / (32 * (1 - t) + t)) > 0.05


# -- S12, S13: LongRoPE --------------------------------------------------------------------------------------------

SHORT = tuple(1.0 + 0.01 * i for i in range(48))
LONG = tuple(1.0 + 0.5 * i for i in range(48))


def longrope(**more) -> RoPE:
    return RoPE(head_dim=96, scaling=LongRoPE(SHORT, LONG, trained=L, factor=32.0, **more))


@pytest.mark.parametrize(
    ("length", "factors"), [(1, SHORT), (L - 1, SHORT), (L, SHORT), (L + 1, LONG), (4 * L, LONG), (131072, LONG)]
)
def test_longrope_switches_after_the_trained_length(length, factors):
    got = longrope().at(length).spectrum
    assert got.frequencies == tuple(w / f for w, f in zip(geometric(96).frequencies, factors, strict=True))
    assert longrope(length=length).spectrum == got
    m = math.sqrt(1 + math.log(32) / math.log(4096))  # 1.19024: of Phi-3-mini-128k
    assert round(m, 5) == 1.19024 and math.isclose(got.temperature, m * m, rel_tol=1e-15)
    assert math.isclose(multiplier(longrope().at(length)), m * m, rel_tol=1e-12)


def test_longrope_with_an_m_of_its_own():
    assert (
        longrope(attention_factor=1.25).at(L).spectrum.temperature
        == longrope(attention_factor=1.25).at(L + 1).spectrum.temperature
        == 1.25**2
    )
    two = longrope(short_m=1.0, long_m=1.5)
    assert (two.at(L).spectrum.temperature, two.at(L + 1).spectrum.temperature) == (1.0, 2.25)
    one = longrope(long_m=1.5)
    assert (
        math.isclose(one.at(L).spectrum.temperature, 1 + math.log(32) / math.log(4096), rel_tol=1e-15)
        and one.at(L + 1).spectrum.temperature == 2.25
    )
    assert longrope(attention_factor=1).at(L).spectrum.temperature == 1.0
    plain = RoPE(head_dim=96, scaling=LongRoPE(SHORT, LONG, trained=L)).at(L + 1)  # no factor: no longer context, m = 1
    assert plain.spectrum.temperature == 1.0


@pytest.mark.parametrize("count", [1, 47, 49, 96])
def test_longrope_wants_one_factor_for_each_pair(count):
    scaling = LongRoPE((1.0,) * count, (2.0,) * count, trained=L)
    with pytest.raises(ValueError, match=rf"{count} factors for 48 pairs \(rotary size 96\)"):
        RoPE(head_dim=96, scaling=scaling).at(L + 1)
    with pytest.raises(ValueError, match=f"as many short factors as long ones, got {count} and {count + 1}"):
        LongRoPE((1.0,) * count, (2.0,) * (count + 1), trained=L)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_keys_turned_again_from_short_to_long_are_the_raw_keys_turned_long(pairing):
    enc = RoPE(head_dim=128, rotary=96, pairing=pairing, scaling=LongRoPE(SHORT, LONG, trained=L, factor=32.0))
    short, long = enc.at(L), enc.at(L + 1)
    k = torch.randn(1, 2, len(PLACES), 128, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    at = torch.tensor(PLACES)
    again = long.rekey(short.key(k, at), at, short, at)
    # two float64 angles of up to p radians each, and the difference of them, are off by at most 4 p roundings
    room = (4 * at.double() + 16)[:, None] * 2.0**-52 * k.abs().max()
    assert ((again - long.key(k, at)).abs() <= room).all()
    assert torch.equal(again[..., 96:], k[..., 96:])
    assert ((short.key(k, at) - long.key(k, at)).abs().amax((0, 1, 3))[1:] > 0.1).all()


# -- S18: a factor of 1 --------------------------------------------------------------------------------------------

ONES = [
    Linear(1.0),
    Linear(1),
    NTK(1.0),
    NTKByParts(1.0, L),
    NTKByParts(1.0, L, form="early"),
    Dynamic(L, 1.0, length=L),
    Dynamic(L, 64.0, length=L - 1),
    YaRN(1.0, L),
    YaRN(1, L, preset="gpt-oss"),
    YaRN(1.0, L, preset="paper"),
    YaRN(1.0, L, truncate=False),
    YaRN(1.0, L, mscale=1.0, mscale_all_dim=2.0),
    Llama3(1.0),
    LongRoPE((1.0,) * 48, (1.0,) * 48, L),
    LongRoPE((1.0,) * 48, (2.0,) * 48, L, length=L),
    Proportional(1.0),
    Proportional(1.0, 1.0),
    Hybrid((3, 9), (None, NTK(1.0), Linear(1.0))),
    Hybrid((1,), (YaRN(1.0, L), None)),
]


@pytest.mark.parametrize("scaling", ONES, ids=repr)
@pytest.mark.parametrize("base", [10000.0, 500000.0])
def test_a_factor_of_one_changes_no_bit(scaling, base):
    plain = geometric(96, base)
    assert scaling(plain) == plain  # frequencies, base and temperature
    x = torch.randn(1, 1, len(PLACES), 96, generator=torch.Generator().manual_seed(6))
    one, other = RoPE(head_dim=96, base=base, scaling=scaling), RoPE(head_dim=96, base=base)
    for hook in ("query", "key"):
        assert torch.equal(getattr(one, hook)(x, torch.tensor(PLACES)), getattr(other, hook)(x, torch.tensor(PLACES)))


def test_staged_changes_no_bit_up_to_the_trained_length():
    for length in (1, L - 1, L):
        assert Staged(L, 8.0).at(length)(geometric(96)) == geometric(96)
    assert Staged(L, 8.0).at(L + 1)(geometric(96)).base > 10000.0


def test_a_spec_says_all_of_it():
    enc = build("rope(head_dim=64, base=150000.0, scaling=yarn(factor=32.0, trained=4096, preset='gpt-oss'))")
    assert enc.spectrum == YaRN(32.0, 4096, preset="gpt-oss")(GPT_OSS)


@pytest.mark.parametrize(("size", "turns"), [(128, 1.0), (64, 4.0)])
def test_equal_factors_of_llama3_make_a_step_at_so_many_turns(size, turns):
    """Llama 4 ships low_freq_factor = high_freq_factor = 1."""
    plain = geometric(size, 500000.0)
    got = Llama3(factor=16.0, trained=8192, low_freq_factor=turns, high_freq_factor=turns)(plain)
    for w, u in zip(plain.frequencies, got.frequencies, strict=True):
        wavelength = 2 * math.pi / w
        assert u == (w if wavelength <= 8192 / turns else w / 16)
    assert {u == w for w, u in zip(plain.frequencies, got.frequencies, strict=True)} == {True, False}
