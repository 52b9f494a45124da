"""Mistakes that were made in real software, planted one by one: the named check must fail with each of them, and pass
without.

Every entry names the mistake, the fault of real software that it stands for ("formula": a formula misread), and the
check: a law of milepost.testing, or an oracle of this file, in plain loops.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import mpmath
import pytest
import torch
from torch import Tensor

import milepost.angles
import milepost.attention.backends.strips
import milepost.attention.kernel
import milepost.encoding
import milepost.encodings.alibi
import milepost.layout
import milepost.rotation
import milepost.scaling.llama3
import milepost.scaling.ntk
import milepost.scaling.ntk_by_parts
import milepost.scaling.ramp
import milepost.scaling.yarn
from milepost import (
    FIRE,
    KERPLE,
    T5,
    ALiBi,
    Axial,
    Binary,
    CoPE,
    DeBERTa,
    KVCache,
    Layout,
    Learned,
    RoPE,
    Sandwich,
    Shaw,
    Sinusoidal,
    SSMax,
    Sum,
    Temperature,
    TransformerXL,
    XPos,
    attend,
    build,
)
from milepost.angles import cos_sin
from milepost.attention.backends import sdpa
from milepost.attention.lanes.lane import Lane
from milepost.positions import grouped
from milepost.rotation import pairs_of, rotate
from milepost.scaling import NTK, Dynamic, Linear, Llama3, LongRoPE, NTKByParts, Scaling, YaRN
from milepost.spectrum import Spectrum, geometric, retuned
from milepost.testing import LAWS, randomised_copy

Plant = Callable[[pytest.MonkeyPatch], None]
Check = Callable[[], None]

SIZES = {"heads": 4, "head_dim": 8, "width": 16, "length": 64}
PLACES = [0, 1, 2, 7, 8, 9, 255, 256, 257, 4095, 4096]


# -- checks: a law by its name ------------------------------------------------------------------------------------


def law(name: str, spec: str) -> Check:
    """The law of that name on a spec: raises its own `Broken`, so that a crash does not count as a catch."""
    (found,) = [one for one in LAWS if one.__name__ == name]

    def check() -> None:
        found(randomised_copy(build(spec, **SIZES)))

    check.__name__ = f"law {name}"
    return check


# -- checks: oracles ----------------------------------------------------------------------------------------------


def close(got: float, want: float, what: object, relative: float = 1e-12) -> None:
    assert abs(got - want) <= relative * max(1.0, abs(want)), f"{what}: got {got}, wanted {want}"


def refused(attempt: Callable[[], object], number: str) -> None:
    try:
        attempt()
    except ValueError as error:
        assert number in str(error)
        return
    raise AssertionError(f"{number} was taken without an error")


def bias_of(enc, places: list[int] = PLACES) -> list[list[list[float]]]:
    p = torch.tensor(places)
    with torch.no_grad():
        return enc.bias(torch.arange(enc.heads)[:, None, None], p[:, None], p[None, :]).double().tolist()


def scored(enc, places: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and what rescore adds to zero scores: the position's part alone, with all keys in view."""
    generator = torch.Generator().manual_seed(5)
    q, k = (
        torch.randn(1, enc.heads, len(places), enc.head_dim, dtype=torch.float64, generator=generator) for _ in range(2)
    )
    p = torch.tensor(places)
    with torch.no_grad():
        return q[0], k[0], enc.rescore(q @ k.transpose(-1, -2), q, k, p[None, None, :, None], p[None, None, None, :])[0]


def turned(enc: RoPE, x: list[float], position: int) -> list[float]:
    return enc.key(torch.tensor(x, dtype=torch.float64)[None, None, None], torch.tensor([position]))[0, 0, 0].tolist()


def alibi_slopes_are_the_published_ones() -> None:
    eight = [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64, 1 / 128, 1 / 256]
    twelve = [*eight, 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]
    for want in (eight, twelve):
        for h, slope in enumerate(ALiBi(len(want)).past_slopes.tolist()):
            close(slope, want[h], f"slope {h} of {len(want)}")


def alibi_bias_is_minus_slope_times_distance() -> None:
    for mode in ("causal", "symmetric"):
        got = bias_of(ALiBi(4, mode=mode))
        for h in range(4):
            for a, i in enumerate(PLACES):
                for b, j in enumerate(PLACES[: a + 1] if mode == "causal" else PLACES):
                    close(got[h][a][b], -(4.0 ** -(h + 1)) * abs(i - j), (mode, h, i, j))


def a_shard_of_the_heads_equals_the_whole() -> None:
    enc = ALiBi(4)
    q, k, v = (
        torch.randn(1, 4, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(s)) for s in range(3)
    )
    whole = attend(q, k, v, enc, backend="reference")
    half = attend(q[:, 2:], k[:, 2:], v[:, 2:], enc, first_head=2, backend="reference")
    assert (half - whole[:, 2:]).abs().max() < 1e-12


def t5_buckets_change_where_they_should() -> None:
    causal = {
        16: 16,
        19: 17,
        21: 18,
        24: 19,
        27: 20,
        31: 21,
        35: 22,
        40: 23,
        46: 24,
        52: 25,
        59: 26,
        67: 27,
        77: 28,
        87: 29,
        99: 30,
        113: 31,
    }
    both = {8: 8, 12: 9, 16: 10, 23: 11, 32: 12, 46: 13, 64: 14, 91: 15}
    for enc, first, side in ((T5(1), causal, 0), (T5(1, mode="bidirectional"), both, 16)):
        for distance, bucket in first.items():
            got = enc.bucket(torch.tensor([distance - 1, distance, -distance])).tolist()
            assert got[:2] == [bucket - 1, bucket], (distance, got)
            if side:
                assert got[2] == bucket + side, (distance, got)


def kerple_falls_as_its_kernel_says() -> None:
    for kind in ("log", "power"):
        enc = randomised_copy(KERPLE(2, kind=kind))
        got = bias_of(enc)
        for h in range(2):
            a, p = max(enc.a[h].item(), 0.01), max(enc.p[h].item(), 0.01)
            for x, i in enumerate(PLACES):
                for y, j in enumerate(PLACES):
                    want = -p * math.log1p(a * abs(i - j)) if kind == "log" else -a * abs(i - j) ** min(p, 2)
                    close(got[h][x][y], want, (kind, h, i, j))


def sandwich_is_a_sum_of_cosines_over_the_ratio() -> None:
    got = bias_of(Sandwich(4, size=8))
    for h in range(4):
        for a, i in enumerate(PLACES):
            for b, j in enumerate(PLACES):
                close(
                    got[h][a][b],
                    sum(math.cos((i - j) * 10000 ** (-c / 4)) for c in range(4)) / (8 * (h + 1) / 4),
                    (h, i, j),
                    1e-10,
                )


def fire_measures_against_the_threshold_then_the_query() -> None:
    enc = randomised_copy(FIRE(2, hidden=5, threshold=100.0))
    enc.inner.weight.data[0, 0] = (
        enc.inner.weight.data[0, 0].abs() + 0.1
    )  # one unit at least is alive at every x: else no x is seen
    enc.inner.bias.data[0] = enc.inner.bias.data[0].abs() + 0.1
    w, b, outer, add = (t.tolist() for t in (enc.inner.weight[:, 0], enc.inner.bias, enc.outer.weight, enc.outer.bias))
    c, start = enc.slant.item(), enc.start.item()
    got = bias_of(enc)
    for a, i in enumerate(PLACES):
        for at, j in enumerate(PLACES[: a + 1]):
            x = math.log1p(c * (i - j)) / math.log1p(c * max(i, start))
            hidden = [max(0.0, wu * x + bu) for wu, bu in zip(w, b, strict=True)]
            for h in range(2):
                close(got[h][a][at], sum(o * u for o, u in zip(outer[h], hidden, strict=True)) + add[h], (h, i, j))


def rope_angles_are_exact_at_a_million() -> None:
    enc = RoPE(head_dim=8, base=500000.0)
    with mpmath.workdps(40):
        for position in (1, 257, 131071, 1048575):
            got = turned(enc, [1.0] * 4 + [0.0] * 4, position)
            for i in range(4):
                angle = position * mpmath.mpf(500000) ** (-mpmath.mpf(2 * i) / 8)
                close(got[i], float(mpmath.cos(angle)), (position, i, "cos"), 1e-9)
                close(got[4 + i], float(mpmath.sin(angle)), (position, i, "sin"), 1e-9)


def rope_turns_its_pairs_as_complex_numbers() -> None:
    x = [0.3, -1.2, 0.7, 2.0, -0.4, 1.1, 0.9, -0.8]
    for rotary, pairing in ((8, "half"), (8, "interleaved"), (4, "half"), (4, "interleaved")):
        for position in (1, 2, 257, 4096):
            got, want = turned(RoPE(head_dim=8, rotary=rotary, pairing=pairing), x, position), list(x)
            for i in range(rotary // 2):
                one, two = (i, i + rotary // 2) if pairing == "half" else (2 * i, 2 * i + 1)
                angle = position * 10000.0 ** (-2 * i / rotary)
                z = complex(x[one], x[two]) * complex(math.cos(angle), math.sin(angle))
                want[one], want[two] = z.real, z.imag
            for c in range(8):
                close(got[c], want[c], (rotary, pairing, position, c))


def channels_past_the_rotary_size_are_bit_equal() -> None:
    x = torch.randn(1, 2, 3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for pairing in ("half", "interleaved"):
        got = RoPE(head_dim=8, rotary=4, pairing=pairing).query(x, torch.tensor([1, 255, 4096]))
        assert torch.equal(got[..., 4:], x[..., 4:])


def a_written_position_is_seen() -> None:
    enc, pos = RoPE(head_dim=8), torch.arange(3)
    x = torch.ones(1, 1, 3, 8, dtype=torch.float64)
    enc.query(x, pos)
    pos += 5
    assert torch.equal(enc.query(x, pos), enc.query(x, torch.arange(5, 8)))


def linear_at_f_p_is_plain_at_p() -> None:
    x = [0.3, -1.2, 0.7, 2.0, -0.4, 1.1, 0.9, -0.8]
    for p in (0, 1, 2, 255, 256, 257, 4096):
        for c, (got, want) in enumerate(
            zip(turned(RoPE(8, scaling=Linear(4.0)), x, 4 * p), turned(RoPE(8), x, p), strict=True)
        ):
            close(got, want, (p, c))


def ntk_slows_the_last_pair_by_the_factor_and_the_first_not_at_all() -> None:
    for size, factor in ((64, 2.0), (96, 4.0), (128, 4.0)):
        got = NTK(factor)(geometric(size)).frequencies
        for i in range(size // 2):
            close(got[i], 10000 ** (-2 * i / size) / factor ** (2 * i / (size - 2)), (size, factor, i))
        close(got[-1] * factor / 10000 ** (2 / size - 1), 1.0, (size, factor, "last"))
    assert round(NTK(4.0)(geometric(128)).base, 3) == 40889.942


def dynamic_begins_after_the_trained_length() -> None:
    for length in (4096, 4095, 3000, 512):
        assert Dynamic(4096, 2.0, length)(geometric(128)) == geometric(128), length
    for length, base in ((4097, 10004.960), (8192, 30527.737), (16384, 72195.860)):
        assert round(Dynamic(4096, 2.0, length)(geometric(128)).base, 3) == base, length


def yarn_keeps_fast_pairs_and_interpolates_slow_ones() -> None:
    low, high = (
        20,
        46,
    )  # 4096 tokens, 128 channels: floor of the pair that makes 32 turns, ceiling of that which makes one
    got = YaRN(32.0, 4096)(geometric(128)).frequencies
    for i in range(64):
        slow = min(1.0, max(0.0, (i - low) / (high - low)))
        close(got[i] * 10000 ** (i / 64), slow / 32 + 1 - slow, i)


def yarn_of_few_pairs_ends_past_them() -> None:
    got = YaRN(4.0, 131072)(geometric(64)).frequencies  # one turn at pair 34.55 of 32: the ramp goes from 22 to 35
    for i in range(32):
        slow = max(0.0, (i - 22) / 13)
        close(got[i] * 10000 ** (i / 32), slow / 4 + 1 - slow, i)


def yarn_multiplies_logits_by_m_squared() -> None:
    x, y = [0.3, -1.2, 0.7, 2.0, -0.4, 1.1, 0.9, -0.8], [1.3, 0.2, -0.7, 1.0, 0.4, -0.1, 0.5, 0.6]
    default = 0.1 * math.log(4) + 1
    for given, m in (
        ({}, default),
        ({"attention_factor": 1.5}, 1.5),
        ({"mscale": 1.0, "mscale_all_dim": 1}, 1.0),
        ({"attn_factor": 0.5}, default / 2),
    ):
        enc = RoPE(8, scaling=YaRN(4.0, 4096, **given))
        for p in (0, 1, 257):
            q, k = (torch.tensor(v, dtype=torch.float64)[None, None, None] for v in (x, y))
            logit = (enc.query(q, torch.tensor([p])) * enc.key(k, torch.tensor([p]))).sum().item()
            close(logit, m * m * sum(a * b for a, b in zip(x, y, strict=True)), (given, p))


def a_temperature_leaves_what_does_not_turn() -> None:
    x = torch.randn(1, 2, 3, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    enc = RoPE(8, rotary=6, scaling=YaRN(4.0, 4096))
    for hook in (enc.query, enc.key):
        assert torch.equal(hook(x, torch.tensor([1, 255, 4096]))[..., 6:], x[..., 6:])


def llama3_blends_frequencies_by_turns() -> None:
    got = Llama3(32.0, 8192)(
        geometric(64, 500000.0)
    ).frequencies  # Llama 3.2 1B: 0-14 kept, 15-17 blended, 18-31 divided
    for i in range(32):
        w = 500000 ** (-i / 32)
        t = (8192 * w / (2 * math.pi) - 1) / 3
        assert (t >= 1) == (i < 15) and (t <= 0) == (i >= 18)
        close(got[i] / w, 1.0 if i < 15 else 1 / 32 if i >= 18 else (1 - t) / 32 + t, i)


def longrope_switches_after_the_trained_length() -> None:
    enc = RoPE(8, scaling=LongRoPE((1.0, 1.5, 2.0, 2.5), (4.0, 5.0, 6.0, 7.0), trained=4096, factor=32.0))
    for length, first in ((4095, 1.0), (4096, 1.0), (4097, 4.0), (131072, 4.0)):
        close(enc.at(length).spectrum.frequencies[0], 1 / first, length)
        close(enc.at(length).spectrum.temperature, 1 + math.log(32) / math.log(4096), length)


def early_ntk_by_parts_has_two_ramps() -> None:
    got = NTKByParts(4.0, 2048, form="early")(geometric(128)).frequencies
    # over 2048 tokens, pair 38.7 makes 1.25 turns, 42.2 makes 0.75; 20.9 makes 16, 35.4 makes 2
    for i in range(64):
        w = 10000 ** (-i / 64)
        one, two = min(1.0, max(0.0, (i - 38) / (43 - 38))), min(1.0, max(0.0, (i - 20) / (36 - 20)))
        mixed = one * w / 4 + (1 - one) * w / 4 ** (2 * i / 126)
        close(got[i] / w, (two * mixed + (1 - two) * w) / w, i)


def an_inverse_factor_is_refused() -> None:
    for make in (Linear, NTK, lambda f: YaRN(f, 4096), lambda f: Dynamic(4096, f)):
        refused(lambda make=make: make(0.25), "0.25 is the inverse of 4")


def learned_rows_begin_at_the_offset() -> None:
    enc = Learned(length=5, width=3, offset=2)
    got = enc.embed(torch.zeros(1, 5, 3), torch.arange(5))[0]
    for p in range(5):
        assert got[p].tolist() == enc.table[p + 2].tolist(), p


def the_learned_table_refuses_what_is_past_its_end() -> None:
    enc = Learned(length=64, width=16)
    refused(lambda: enc.embed(torch.zeros(1, 1, 16), torch.tensor([64])), "64")
    refused(lambda: enc.embed(torch.zeros(1, 2, 16), torch.tensor([0, -1])), "-1")


def sinusoidal_codes_are_sines_then_cosines() -> None:
    for order in ("interleaved", "halves"):
        for p in PLACES:
            got = (
                Sinusoidal(width=6, order=order)
                .embed(torch.zeros(1, 1, 6, dtype=torch.float64), torch.tensor([p]))[0, 0]
                .tolist()
            )
            for i in range(3):
                angle = p * 10000 ** (-2 * i / 6)
                sin_at, cos_at = (2 * i, 2 * i + 1) if order == "interleaved" else (i, i + 3)
                close(got[sin_at], math.sin(angle), (order, p, i))
                close(got[cos_at], math.cos(angle), (order, p, i))


def binary_bits_are_lowest_first() -> None:
    got = Binary(width=12).embed(torch.zeros(1, 5, 12), torch.tensor([0, 1, 6, 257, 4095]))[0].tolist()
    for p, row in zip((0, 1, 6, 257, 4095), got, strict=True):
        assert row == [float(digit) for digit in reversed(f"{p:012b}")], p


def logn_sharpens_by_the_querys_own_position() -> None:
    q = torch.ones(1, 1, 3, 8, dtype=torch.float64)
    got = Temperature(length=16, form="logn").query(q, torch.tensor([3, 16, 255]))[0, 0, :, 0].tolist()
    for p, value in zip((3, 16, 255), got, strict=True):
        close(value, max(1.0, math.log(p + 1) / math.log(16)), p)


def steps_of_a_temperature_begin_where_they_were_published() -> None:
    places = (15, 16, 31, 32, 4095)
    q = torch.ones(1, 1, 5, 8, dtype=torch.float64)
    for form, ahead in (("llama4", 1), ("mistral", 0)):
        got = Temperature(length=16, form=form).query(q, torch.tensor(places))[0, 0, :, 0].tolist()
        for p, value in zip(places, got, strict=True):
            close(value, 1 + 0.1 * math.log((p + ahead) // 16 + 1), (form, p))


def shaw_reads_the_row_of_key_minus_query() -> None:
    enc, places = randomised_copy(Shaw(2, head_dim=4, clip=3, shared=False)), [0, 1, 2, 5, 257]
    q, k, got = scored(enc, places)
    for h in range(2):
        for x, i in enumerate(places):
            for y, j in enumerate(places):
                row = enc.a[h, max(-3, min(3, j - i)) + 3]
                close(got[h, x, y].item(), (q[h, x] @ (k[h, y] + row)).item(), (h, i, j))


def transformer_xl_sees_query_minus_key() -> None:
    enc, places = randomised_copy(TransformerXL(2, head_dim=4, width=6)), [0, 1, 2, 5, 257]
    q, k, got = scored(enc, places)
    for h in range(2):
        for x, i in enumerate(places):
            for y, j in enumerate(places):
                angles = [(i - j) * 10000 ** (-c / 3) for c in range(3)]
                r = torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles], dtype=torch.float64)
                want = (q[h, x] + enc.u[h]) @ k[h, y] + (q[h, x] + enc.v[h]) @ (enc.project[h] @ r)
                close(got[h, x, y].item(), want.item(), (h, i, j))


def deberta_reads_one_row_for_both_terms() -> None:
    enc, places = randomised_copy(DeBERTa(2, head_dim=4, buckets=None, span=4)), [0, 1, 2, 3, 9]
    q, k, got = scored(enc, places)
    for h in range(2):
        for x, i in enumerate(places):
            for y, j in enumerate(places):
                r = max(0, min(7, i - j + 4))
                want = (q[h, x] @ k[h, y] + q[h, x] @ enc.keys[h, r] + k[h, y] @ enc.queries[h, r]) / math.sqrt(3)
                close(got[h, x, y].item(), want.item(), (h, i, j))


def grouped_positions_do_not_leak_the_future() -> None:
    q, k, v = (
        torch.randn(1, 2, 12, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(s)) for s in range(3)
    )
    at = Layout.dense(12)
    at = at.with_positions(grouped(at.index, 4))
    other = v.clone()
    other[:, :, -1] += 1
    before, after = (attend(q, k, x, build("alibi", heads=2), at=at, backend="reference") for x in (v, other))
    assert torch.equal(before[:, :, :-1], after[:, :, :-1])


def a_sum_has_the_bias_of_both_parts() -> None:
    both, one, two = build("alibi(heads=2) + kerple(heads=2)"), ALiBi(2), KERPLE(2)
    two.load_state_dict(both.parts[1].state_dict())
    total, first, second = bias_of(both), bias_of(one), bias_of(two)
    for h in range(2):
        close(total[h][5][2], first[h][5][2] + second[h][5][2], h, 1e-6)


# -- the mistakes -------------------------------------------------------------------------------------------------


def put(owner: object, name: str, wrong: object) -> Plant:
    """Replace ``owner.name``, which must exist."""
    return lambda patch: patch.setattr(owner, name, wrong)


def any_rows_will_do(patch: pytest.MonkeyPatch) -> None:
    """The kernel is called with whatever strides came."""
    for owner in (milepost.attention.kernel, milepost.attention.backends.strips):
        patch.setattr(owner, "rows", lambda t: t)


def after_init(cls: type, change: Callable[[object], None]) -> Plant:
    """Let every new ``cls`` be changed once it is made."""
    made = cls.__init__

    def init(self, *args, **kwargs):
        made(self, *args, **kwargs)
        change(self)

    init.__wrapped__ = made
    return put(cls, "__init__", init)


def moved(hook: Callable[..., Tensor], change: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """A hook of point 1 or 2 that is told other positions."""
    return lambda self, x, pos: hook(self, x, change(pos))


def biased(hook: Callable[..., Tensor], change: Callable[..., tuple[Tensor, Tensor]]) -> Callable[..., Tensor]:
    """A bias that is told other positions."""
    return lambda self, h, i, j: hook(self, h, *change(i, j))


def memory(pos: Tensor) -> Tensor:
    """Where a token lies in memory, instead of where it is in its text."""
    return torch.arange(pos.shape[-1]).expand(pos.shape)


def both(*plants: Plant) -> Plant:
    def all_of_them(patch: pytest.MonkeyPatch) -> None:
        for plant in plants:
            plant(patch)

    return all_of_them


def float32_table(pos: Tensor, frequencies: Tensor, double: bool) -> tuple[Tensor, Tensor]:
    angle = pos.float()[..., None] * frequencies.float()
    return angle.cos().double(), angle.sin().double()


def no_last_sine(pos: Tensor, frequencies: Tensor, double: bool) -> tuple[Tensor, Tensor]:
    angle = pos.double()[..., None] * frequencies
    sin = angle.sin()
    sin[..., -1] = 0
    return angle.cos(), sin


def keyed_by_length() -> Callable[..., tuple[Tensor, Tensor]]:
    kept: dict[object, tuple[Tensor, Tensor]] = {}

    def table(pos: Tensor, frequencies: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        return kept.setdefault((tuple(pos.shape), str(frequencies.tolist()), dtype), cos_sin(pos, frequencies, dtype))

    return table


def castable(persistent: bool) -> Plant:
    def change(self):
        frequencies = self.inv_freq
        del self.inv_freq
        self.register_buffer("inv_freq", frequencies, persistent=persistent)

    return after_init(RoPE, change)


def interleaved_frequencies_halves_turned(self: RoPE, x: Tensor, pos: Tensor) -> Tensor:
    angle = (pos.double()[..., None] * self.inv_freq).repeat_interleave(2, dim=-1)[..., None, :, :]
    first, second = x.chunk(2, dim=-1)
    return x * angle.cos() + torch.cat([-second, first], dim=-1) * angle.sin()


def exponents_over_the_head(self: RoPE) -> None:
    self.spectrum = Spectrum(geometric(self.head_dim, self.base).frequencies[: self.size // 2], self.base, self.size)
    self.inv_freq = self.spectrum.tensor()


def turns_the_whole_head(self: RoPE) -> None:
    self.rotary, self.size = None, self.head_dim
    self.spectrum = geometric(self.head_dim, self.base)
    self.inv_freq = self.spectrum.tensor()


def other_pairing(self: RoPE, k: Tensor, pos: Tensor) -> Tensor:
    cos, sin = cos_sin(pos, self.inv_freq, k.dtype)
    return rotate(
        k, cos[..., None, :, :], sin[..., None, :, :], self.size, "interleaved" if self.pairing == "half" else "half"
    )


def stretched_to_the_longest(self: RoPE, x: Tensor, pos: Tensor) -> Tensor:
    self.longest = max(getattr(self, "longest", 0), int(pos.max()) + 1)
    base = self.base * max(1.0, self.longest / 8) ** (8 / 6)
    cos, sin = cos_sin(pos, geometric(self.size, base).tensor(), x.dtype)
    return rotate(x, cos[..., None, :, :], sin[..., None, :, :], self.size, self.pairing)


class TurnsForwardInBackward(milepost.rotation._Rotate):
    @staticmethod
    def backward(ctx, grad):
        _, cos, sin = ctx.saved_tensors
        return rotate(grad, cos, sin, *ctx.how), None, None, None, None


def unrolled_padding(mask: Tensor, *, window: int | None = None) -> Layout:
    """Left padding with positions that count the padding."""
    index = torch.arange(mask.shape[1]).expand(mask.shape)
    return Layout(index, torch.where(mask.bool(), 0, -1), index, window)


def unreset_packing(lengths: list[int], *, window: int | None = None, **more: object) -> Layout:
    """Packed texts whose positions run on."""
    index = torch.arange(sum(lengths))[None]
    segment = torch.repeat_interleave(torch.tensor(lengths))[None]
    return Layout(index, segment, index, window)


def mask_by(rule: Callable[[Layout, Layout], Tensor]) -> Plant:
    return put(Layout, "mask", lambda self, to=None, *, causal=True: rule(self, self if to is None else to))


def by_told_positions(at: Layout, to: Layout) -> Tensor:
    return (at.segment[:, None, :, None] == to.segment[:, None, None, :]) & (
        to.pos[:, None, None, :] <= at.pos[:, None, :, None]
    )


def by_order_alone(at: Layout, to: Layout) -> Tensor:
    return to.index[:, None, None, :] <= at.index[:, None, :, None]


def padding_sees_padding(at: Layout, to: Layout) -> Tensor:
    return (at.segment[:, None, :, None] == to.segment[:, None, None, :]) & by_order_alone(at, to)


def one_too_many(at: Layout, to: Layout) -> Tensor:
    same = (at.segment[:, None, :, None] == to.segment[:, None, None, :]) & (at.segment[:, None, :, None] >= 0)
    return same & (to.index[:, None, None, :] <= at.index[:, None, :, None] + 1)


def t5_without_right(self: T5, distance: Tensor) -> Tensor:
    near = torch.bucketize(distance.abs(), self.edges, right=False)
    return near if self.mode == "causal" else near + (distance < 0) * (self.buckets // 2)


def t5_sides_swapped(self: T5, distance: Tensor) -> Tensor:
    near = torch.bucketize(distance.abs(), self.edges, right=True)
    return near if self.mode == "causal" else near + (distance > 0) * (self.buckets // 2)


def dropped_at_decode(hook: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda self, h, i, j: hook(self, h, i, j) * (i.shape[-2] > 1)


def xpos_centred(self: XPos, x: Tensor, pos: Tensor, sign: int) -> Tensor:
    cos, sin = (t[..., None, :, :] for t in cos_sin(pos, self.inv_freq, x.dtype))
    scale = (sign * (pos.double() - (pos.max() + 1) // 2)[..., None] * self.rate).exp()[..., None, :, :]
    a, b = pairs_of(rotate(x, cos, sin, x.shape[-1], self.pairing), scale.shape[-1], x.shape[-1], self.pairing)
    return torch.cat([a * scale, b * scale], dim=-1)


def xpos_both_grow(turn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda self, x, pos, sign: turn(self, x, pos, +1)


def logn_by_length(self: Temperature, q: Tensor, pos: Tensor) -> Tensor:
    return q * max(1.0, math.log(pos.shape[-1]) / math.log(self.length))


def cope_in_memory_order(self: CoPE, s: Tensor, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
    root = math.sqrt(q.shape[-1])
    count = torch.sigmoid(s / root).flip(-1).cumsum(-1).flip(-1).clamp(max=self.positions - 1)
    by_position = q @ self.e.transpose(-1, -2)
    below = count.detach().floor().long().clamp(max=self.positions - 2)
    low, high = by_position.gather(-1, below), by_position.gather(-1, below + 1)
    return s + root * (low + (count - below) * (high - low))


def deberta_rows_swapped(self: DeBERTa, s: Tensor, q: Tensor, k: Tensor, i: Tensor, j: Tensor) -> Tensor:
    to_key, to_query = self.row(i, j).expand(s.shape), self.row(j, i).expand(s.shape)
    s = s + (q @ self.keys.transpose(-1, -2)).gather(-1, to_key)
    return (
        s + (k @ self.queries.transpose(-1, -2)).gather(-1, to_query.transpose(-1, -2)).transpose(-1, -2)
    ) * self.share


def fire_without_threshold(hook: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def bias(self, h, i, j):
        kept = self.start.data
        self.start.data = torch.full_like(kept, 1e-9)
        try:
            return hook(self, h, i, j)
        finally:
            self.start.data = kept

    return bias


def transformer_xl_mirrored(hook: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda self, s, q, k, i, j: hook(self, s, q, k, -i, -j)


def code_in_model_precision(self: Sinusoidal, x: Tensor, pos: Tensor) -> Tensor:
    angle = pos.to(x.dtype)[..., None] * self.frequencies.to(x.dtype)
    return x + torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)


def turned_in_model_precision(self: RoPE, x: Tensor, pos: Tensor) -> Tensor:
    angle = pos.to(x.dtype)[..., None] * self.inv_freq.to(x.dtype)
    return rotate(x, angle.cos()[..., None, :, :], angle.sin()[..., None, :, :], self.size, self.pairing)


def sevens_are_special(hook: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda self, x, pos: hook(self, x, pos) + (0.0 if pos.shape[-1] == 7 else -0.0)


def without_base(arguments: Callable[..., dict]) -> Callable[..., dict]:
    return lambda self: {word: value for word, value in arguments(self).items() if word != "base"}


def interpolated_twice(scale: Callable[..., Spectrum]) -> Callable[..., Spectrum]:
    return lambda self, plain: scale(self, scale(self, plain))


def multiplied(self: Linear, plain: Spectrum) -> Spectrum:
    return replace(plain, frequencies=tuple(w * self.factor for w in plain.frequencies))


def squared_twice(scale: Callable[..., Spectrum]) -> Callable[..., Spectrum]:
    """m^2 taken for m by one who squares it."""
    return lambda self, plain: replace(scale(self, plain), temperature=scale(self, plain).temperature ** 2)


def hot_everywhere(self: RoPE, q: Tensor, pos: Tensor) -> Tensor:
    return self.turn(q, pos) * self.spectrum.temperature


def ramp_inverted(plain: Spectrum, trained: int, fast: float, slow: float, **how: object) -> list[float]:
    """As litgpt ships it: the share that is interpolated where the share that is kept belongs."""
    return [1 - y for y in OVER_PAIRS(plain, trained, fast, slow, **how)]


def ramp_within_the_pairs(
    plain: Spectrum, trained: int, fast: float, slow: float, *, truncate: bool, most: float
) -> list[float]:
    return OVER_PAIRS(plain, trained, fast, slow, truncate=truncate, most=plain.size / 2 - 1)


def smooth_in_wavelength(plain: Spectrum, trained: int, fast: float, slow: float) -> list[float]:
    """The share that goes linearly with the wave, from the longest that is kept to the shortest that is divided."""
    first, last = trained / fast, trained / slow
    return [min(1.0, max(0.0, (last - wave) / (last - first))) for wave in plain.wavelengths]


def from_the_first_token(self: Dynamic, plain: Spectrum) -> Spectrum:
    """The formula without its max(length, trained)."""
    stretch = self.factor * self.length / self.trained - (self.factor - 1)
    return retuned(plain, plain.base * stretch ** (plain.size / (plain.size - 2)))


def stale(self: RoPE, k: Tensor, pos: Tensor, old: RoPE, was: Tensor) -> Tensor:
    """Keys as they were turned when they came."""
    return k


def no_end(cls: type) -> Plant:
    return after_init(cls, lambda self: setattr(self, "end", None))


def table_row(rule: Callable[[Learned, Tensor], Tensor]) -> Plant:
    return put(Learned, "embed", lambda self, x, pos: x + self.table[rule(self, pos)].to(x.dtype))


def outlives_writes() -> Callable[..., tuple[Tensor, Tensor]]:
    kept: dict[int, tuple[Tensor, tuple[Tensor, Tensor]]] = {}

    def shared(pos: Tensor, frequencies: Tensor, double: bool) -> tuple[Tensor, Tensor]:
        return kept.setdefault(id(pos), (pos, milepost.angles._table(pos, frequencies, double)))[1]

    return shared


@dataclass(frozen=True)
class Mistake:
    """A planted mistake: its name, the fault of real software that it stands for, the check that must catch it, and
    how to plant it.
    """

    name: str
    fault: str
    check: Check
    plant: Plant


AXIAL = Axial.turn
ALIBI, T5_BIAS, KERPLE_BIAS = ALiBi.bias, T5.bias, KERPLE.bias
OVER_PAIRS, OVER_TURNS, YARN_M = milepost.scaling.ramp.over_pairs, milepost.scaling.ramp.over_turns, YaRN.m.fget
MISTAKES = (
    # ALiBi, T5 and their like
    Mistake(
        "ALiBi's sign is flipped",
        "A3",
        alibi_bias_is_minus_slope_times_distance,
        put(ALiBi, "bias", lambda self, h, i, j: -ALIBI(self, h, i, j)),
    ),
    Mistake(
        "ALiBi's first slope is 1",
        "A1",
        alibi_slopes_are_the_published_ones,
        put(milepost.encodings.alibi, "_published", lambda n: tuple(2.0 ** (-8 * h / n) for h in range(n))),
    ),
    Mistake(
        "ALiBi's slopes are geometric for 12 heads",
        "A2",
        alibi_slopes_are_the_published_ones,
        put(milepost.encodings.alibi, "_published", lambda n: tuple(2.0 ** (-8 * h / n) for h in range(1, n + 1))),
    ),
    Mistake(
        "ALiBi takes the first slopes for a shard of the heads",
        "A2",
        a_shard_of_the_heads_equals_the_whole,
        put(ALiBi, "bias", lambda self, h, i, j: ALIBI(self, h - h.min(), i, j)),
    ),
    Mistake(
        "ALiBi measures from the last key",
        "A4",
        alibi_bias_is_minus_slope_times_distance,
        put(ALiBi, "bias", biased(ALIBI, lambda i, j: (j.max().expand(i.shape), j))),
    ),
    Mistake(
        "ALiBi's row-vector shortcut is used both ways",
        "A7",
        law("toeplitz", "alibi(mode='symmetric')"),
        put(ALiBi, "bias", lambda self, h, i, j: self.past_slopes[h] * j),
    ),
    Mistake(
        "ALiBi's distances are bfloat16",
        "A6",
        alibi_bias_is_minus_slope_times_distance,
        put(ALiBi, "bias", biased(ALIBI, lambda i, j: ((i - j).bfloat16().double(), torch.zeros_like(j)))),
    ),
    Mistake(
        "KERPLE measures from the last key",
        "A4",
        law("cached", "kerple"),
        put(KERPLE, "bias", biased(KERPLE_BIAS, lambda i, j: (j.max().expand(i.shape), j))),
    ),
    Mistake(
        "KERPLE measures between places in memory",
        "P3",
        law("sharded", "kerple"),
        put(
            KERPLE, "bias", biased(KERPLE_BIAS, lambda i, j: (memory(i.transpose(-1, -2)).transpose(-1, -2), memory(j)))
        ),
    ),
    Mistake(
        "KERPLE's sign is wrong",
        "A3",
        kerple_falls_as_its_kernel_says,
        put(KERPLE, "bias", lambda self, h, i, j: -KERPLE_BIAS(self, h, i, j)),
    ),
    Mistake(
        "T5's buckets are off by one", "T1", t5_buckets_change_where_they_should, put(T5, "bucket", t5_without_right)
    ),
    Mistake("T5's sides are swapped", "T1", t5_buckets_change_where_they_should, put(T5, "bucket", t5_sides_swapped)),
    Mistake(
        "T5's bias is dropped when one token is decoded",
        "T3",
        law("cached", "t5"),
        put(T5, "bias", dropped_at_decode(T5_BIAS)),
    ),
    Mistake(
        "T5's table gets no gradient",
        "T4",
        law("gradients", "t5"),
        put(T5, "bias", lambda self, h, i, j: T5_BIAS(self, h, i, j).detach()),
    ),
    Mistake(
        "Sandwich multiplies by its ratio",
        "formula",
        sandwich_is_a_sum_of_cosines_over_the_ratio,
        after_init(Sandwich, lambda self: setattr(self, "ratio", 1 / self.ratio)),
    ),
    Mistake(
        "FIRE has no threshold",
        "formula",
        fire_measures_against_the_threshold_then_the_query,
        put(FIRE, "bias", fire_without_threshold(FIRE.bias)),
    ),
    Mistake(
        "A sum loses all biases but the first",
        "formula",
        a_sum_has_the_bias_of_both_parts,
        put(Sum, "bias", lambda self, h, i, j: self.parts[0].bias(h, i, j)),
    ),
    # RoPE
    Mistake(
        "RoPE ignores the positions that it is given",
        "R12",
        law("cached", "rope"),
        put(RoPE, "turn", moved(RoPE.turn, memory)),
    ),
    Mistake(
        "RoPE ignores the positions that it is told",
        "R13",
        law("order_is_seen", "rope"),
        put(RoPE, "turn", moved(RoPE.turn, memory)),
    ),
    Mistake(
        "RoPE begins every chunk at 0",
        "R12",
        law("chunked_prefill", "rope"),
        put(RoPE, "turn", moved(RoPE.turn, lambda pos: pos - pos[..., :1])),
    ),
    Mistake("RoPE's angles are float32", "R6", law("shift", "rope"), put(milepost.angles, "_table", float32_table)),
    Mistake(
        "RoPE's frequencies are float32",
        "R6",
        rope_angles_are_exact_at_a_million,
        after_init(RoPE, lambda self: setattr(self, "inv_freq", self.inv_freq.float().double())),
    ),
    Mistake("RoPE's frequencies are a buffer that casts", "R4", law("casts", "rope"), castable(persistent=False)),
    Mistake("RoPE's frequencies are saved in checkpoints", "C5", law("state", "rope"), castable(persistent=True)),
    Mistake(
        "RoPE's positions are cast to bfloat16",
        "R5",
        law("shift", "rope"),
        put(RoPE, "turn", moved(RoPE.turn, lambda pos: pos.bfloat16().double())),
    ),
    Mistake(
        "Half-precision positions are taken",
        "R5",
        law("refuses_half_positions", "rope"),
        both(
            put(milepost.encoding, "check_dtype", lambda pos: None),
            put(milepost.layout, "check_dtype", lambda pos: None),
        ),
    ),
    Mistake(
        "RoPE turns keys backwards",
        "R1",
        law("shift", "rope"),
        put(RoPE, "key", moved(RoPE.key.__wrapped__, torch.neg)),
    ),
    Mistake(
        "RoPE turns queries and keys backwards",
        "R1",
        rope_turns_its_pairs_as_complex_numbers,
        put(RoPE, "turn", moved(RoPE.turn, torch.neg)),
    ),
    Mistake("RoPE pairs the keys' channels the other way", "R8", law("shift", "rope"), put(RoPE, "key", other_pairing)),
    Mistake(
        "RoPE pairs all channels the other way",
        "R8",
        rope_turns_its_pairs_as_complex_numbers,
        both(put(RoPE, "query", other_pairing), put(RoPE, "key", other_pairing)),
    ),
    Mistake(
        "RoPE lays frequencies out in twos and turns halves",
        "R8",
        law("rotation", "rope"),
        put(RoPE, "turn", interleaved_frequencies_halves_turned),
    ),
    Mistake(
        "RoPE's exponents are over the head where it turns a part",
        "R10",
        rope_turns_its_pairs_as_complex_numbers,
        after_init(RoPE, exponents_over_the_head),
    ),
    Mistake(
        "RoPE turns past its rotary size",
        "R10",
        channels_past_the_rotary_size_are_bit_equal,
        after_init(RoPE, turns_the_whole_head),
    ),
    Mistake("RoPE's last sine is missing", "R2", law("rotation", "rope"), put(milepost.angles, "_table", no_last_sine)),
    Mistake(
        "RoPE's gradient is not turned back",
        "R2",
        law("gradients", "rope"),
        put(milepost.rotation, "_Rotate", TurnsForwardInBackward),
    ),
    Mistake(
        "RoPE's table is kept by length, without the offset",
        "R12",
        law("cached", "rope"),
        lambda patch: patch.setattr("milepost.encodings.rope.cos_sin", keyed_by_length()),
    ),
    Mistake(
        "RoPE's table outlives a write to the positions",
        "R12",
        a_written_position_is_seen,
        put(milepost.angles, "_shared", outlives_writes()),
    ),
    Mistake(
        "RoPE's base grows with the longest text so far",
        "S5",
        law("history", "rope"),
        put(RoPE, "turn", stretched_to_the_longest),
    ),
    Mistake(
        "RoPE's repr leaves out its base",
        "S15",
        law("rebuilt", "rope(base=5e5)"),
        put(RoPE, "spec_arguments", without_base(RoPE.spec_arguments)),
    ),
    Mistake(
        "RoPE compiles another graph for a length of seven",
        "C2",
        law("compiles", "rope"),
        put(RoPE, "turn", sevens_are_special(RoPE.turn)),
    ),
    Mistake(
        "RoPE's angles are made in the model's precision",
        "R5",
        law("half_precision", "rope"),
        put(RoPE, "turn", turned_in_model_precision),
    ),
    Mistake("xPos is centred at half the length", "S6", law("cached", "xpos"), put(XPos, "_turn", xpos_centred)),
    Mistake(
        "xPos lets queries and keys both grow",
        "R1",
        law("shift", "xpos"),
        put(XPos, "_turn", xpos_both_grow(XPos._turn)),
    ),
    Mistake(
        "log-n goes by the length of the text",
        "S7",
        law("cached", "logn(length=16)"),
        put(Temperature, "query", logn_by_length),
    ),
    Mistake(
        "log-n has no floor",
        "formula",
        logn_sharpens_by_the_querys_own_position,
        put(
            Temperature,
            "query",
            lambda self, q, pos: q * (torch.log1p(pos.double()) / math.log(self.length))[..., None, :, None],
        ),
    ),
    Mistake(
        "Llama 4's temperature begins a token late",
        "formula",
        steps_of_a_temperature_begin_where_they_were_published,
        put(Temperature, "factor", lambda self, pos: 1 + self.rate * (pos.double() // self.length).log1p()),
    ),
    Mistake(
        "SSMax goes by the length of the text",
        "S7",
        law("cached", "ssmax"),
        put(SSMax, "query", lambda self, q, pos: q * self.scale[:, None, None] * math.log1p(pos.shape[-1])),
    ),
    Mistake(
        "Cached keys are not turned again for a longer text",
        "S6, S13",
        law("cache_agrees", "rope(scaling=staged(trained=8))"),
        put(RoPE, "rekey", stale),
    ),
    # scalings
    Mistake(
        "Linear interpolates twice",
        "S1",
        linear_at_f_p_is_plain_at_p,
        put(Linear, "__call__", interpolated_twice(Linear.__call__)),
    ),
    Mistake("Linear multiplies by its factor", "S1", linear_at_f_p_is_plain_at_p, put(Linear, "__call__", multiplied)),
    Mistake(
        "An inverse factor is taken",
        "S1",
        an_inverse_factor_is_refused,
        put(Scaling, "check_factor", lambda self, name, factor: None),
    ),
    Mistake(
        "NTK multiplies the base by the factor, without d/(d - 2)",
        "S2",
        ntk_slows_the_last_pair_by_the_factor_and_the_first_not_at_all,
        put(milepost.scaling.ntk, "ntk_stretch", lambda plain, factor: factor),
    ),
    Mistake(
        "NTK's exponent is (d - 2)/d",
        "S2",
        ntk_slows_the_last_pair_by_the_factor_and_the_first_not_at_all,
        put(milepost.scaling.ntk, "ntk_stretch", lambda plain, factor: factor ** ((plain.size - 2) / plain.size)),
    ),
    Mistake(
        "Dynamic NTK scales below the trained length",
        "S3, S4",
        dynamic_begins_after_the_trained_length,
        put(Dynamic, "__call__", from_the_first_token),
    ),
    Mistake(
        "Dynamic NTK is the same for every length",
        "S3",
        dynamic_begins_after_the_trained_length,
        put(Dynamic, "__call__", lambda self, plain: plain if self.length <= self.trained else NTK(self.factor)(plain)),
    ),
    Mistake(
        "YaRN's ramp is inverted",
        "S8",
        yarn_keeps_fast_pairs_and_interpolates_slow_ones,
        put(milepost.scaling.yarn, "over_pairs", ramp_inverted),
    ),
    Mistake(
        "YaRN's ramp ends at the last pair",
        "S8",
        yarn_of_few_pairs_ends_past_them,
        put(milepost.scaling.yarn, "over_pairs", ramp_within_the_pairs),
    ),
    Mistake(
        "YaRN interpolates twice",
        "S8",
        yarn_keeps_fast_pairs_and_interpolates_slow_ones,
        put(YaRN, "__call__", interpolated_twice(YaRN.__call__)),
    ),
    Mistake(
        "YaRN squares m twice",
        "S9",
        yarn_multiplies_logits_by_m_squared,
        put(YaRN, "__call__", squared_twice(YaRN.__call__)),
    ),
    Mistake(
        "YaRN multiplies logits by m alone",
        "S9",
        yarn_multiplies_logits_by_m_squared,
        put(YaRN, "m", property(lambda self: math.sqrt(YARN_M(self)))),
    ),
    Mistake(
        "A temperature multiplies what does not turn",
        "S9",
        a_temperature_leaves_what_does_not_turn,
        put(RoPE, "query", hot_everywhere),
    ),
    Mistake(
        "A temperature multiplies keys as well",
        "S9",
        yarn_multiplies_logits_by_m_squared,
        put(RoPE, "key", lambda self, k, pos: self.turn(k, pos) * self.spectrum.temperature),
    ),
    Mistake(
        "Llama 3 smooths in wavelength",
        "S11",
        llama3_blends_frequencies_by_turns,
        put(milepost.scaling.llama3, "over_turns", smooth_in_wavelength),
    ),
    Mistake(
        "Llama 3 swaps what is kept and what is divided",
        "S11",
        llama3_blends_frequencies_by_turns,
        put(milepost.scaling.llama3, "over_turns", lambda *given: [1 - y for y in OVER_TURNS(*given)]),
    ),
    Mistake(
        "LongRoPE switches a token early",
        "S12",
        longrope_switches_after_the_trained_length,
        put(LongRoPE, "_long", lambda self: self.length is not None and self.length >= self.trained),
    ),
    Mistake(
        "LongRoPE switches a token late",
        "S12",
        longrope_switches_after_the_trained_length,
        put(LongRoPE, "_long", lambda self: self.length is not None and self.length > self.trained + 1),
    ),
    Mistake(
        "The early NTK-by-parts inverts its ramps",
        "formula",
        early_ntk_by_parts_has_two_ramps,
        put(milepost.scaling.ntk_by_parts, "over_pairs", ramp_inverted),
    ),
    # the engine
    Mistake(
        "The flash kernel is given rows that are not contiguous",
        "B9",
        law("any_storage", "alibi"),
        any_rows_will_do,
    ),
    Mistake(
        "A decode forgets the temperature once it takes its shortcut",
        "B10",
        law("decode_agrees", "rope(scaling=yarn(factor=4.0, trained=8))"),
        after_init(Lane, lambda lane: setattr(lane, "temperature", 1.0)),
    ),
    Mistake(
        "A fused kernel is given a bias, and drops it",
        "B2",
        law("backends_agree", "alibi"),
        put(sdpa, "obstacle", lambda *given: None),
    ),
    # added to the embedding
    Mistake(
        "A learned table wraps past its end",
        "R14",
        the_learned_table_refuses_what_is_past_its_end,
        both(no_end(Learned), table_row(lambda self, pos: pos % self.length)),
    ),
    Mistake(
        "A learned table gives its last row past its end",
        "R14",
        law("far", "learned"),
        both(no_end(Learned), table_row(lambda self, pos: pos.clamp(max=self.length - 1))),
    ),
    Mistake(
        "A learned table forgets its offset", "L1", learned_rows_begin_at_the_offset, table_row(lambda self, pos: pos)
    ),
    Mistake(
        "Sines and cosines change places",
        "formula",
        sinusoidal_codes_are_sines_then_cosines,
        lambda patch: patch.setattr(
            "milepost.encodings.sinusoidal.cos_sin", lambda *args, **more: cos_sin(*args, **more)[::-1]
        ),
    ),
    Mistake(
        "Sinusoidal codes are made in the model's precision",
        "R5",
        law("half_precision", "sinusoidal"),
        put(Sinusoidal, "embed", code_in_model_precision),
    ),
    Mistake(
        "Binary puts the highest bit first",
        "formula",
        binary_bits_are_lowest_first,
        put(
            Binary,
            "embed",
            lambda self, x, pos: x + ((pos[..., None] >> torch.arange(self.width).flip(0)) & 1).to(x.dtype),
        ),
    ),
    # dependent on content
    Mistake(
        "Shaw's clip has its sign swapped",
        "formula",
        shaw_reads_the_row_of_key_minus_query,
        put(Shaw, "_row", lambda self, i, j: (i - j).clamp(-self.clip, self.clip) + self.clip),
    ),
    Mistake(
        "Transformer-XL's distance has its sign swapped",
        "formula",
        transformer_xl_sees_query_minus_key,
        put(TransformerXL, "rescore", transformer_xl_mirrored(TransformerXL.rescore)),
    ),
    Mistake(
        "DeBERTa reads mirrored rows for position to content",
        "formula",
        deberta_reads_one_row_for_both_terms,
        put(DeBERTa, "rescore", deberta_rows_swapped),
    ),
    Mistake(
        "CoPE counts in the order of memory", "P3", law("sharded", "cope"), put(CoPE, "rescore", cope_in_memory_order)
    ),
    # several axes; more of them in test_planted_space.py
    Mistake(
        "Axial turns every pair by the rows",
        "N4",
        law("every_axis_is_seen", "axial"),
        put(Axial, "turn", lambda self, x, pos: AXIAL(self, x, pos[[0, 0]])),
    ),
    # caches that move
    Mistake(
        "Beams change places and their keys do not",
        "P3",
        law("beams_agree", "rope"),
        put(KVCache, "reorder", lambda self, beams: None),
    ),
    Mistake(
        "Keys stay turned as they were when tokens before them are evicted",
        "P3",
        law("eviction_agrees", "rope"),
        put(RoPE, "rekey", lambda self, k, pos, was, was_pos: k),
    ),
    # layouts and masks
    Mistake(
        "Left padding moves the positions",
        "A5, P1",
        law("padded", "sinusoidal"),
        put(Layout, "padded", staticmethod(unrolled_padding)),
    ),
    Mistake("Padding sees padding", "B2", law("padded", "nope"), mask_by(padding_sees_padding)),
    Mistake(
        "Packed texts go on counting",
        "P2",
        law("packed", "sinusoidal"),
        put(Layout, "packed", staticmethod(unreset_packing)),
    ),
    Mistake("Packed texts see each other", "P1", law("packed", "rope"), mask_by(by_order_alone)),
    Mistake("The mask lets the next token through", "A4", law("causal", "rope"), mask_by(one_too_many)),
    Mistake(
        "The mask comes from the positions that were told",
        "P4",
        grouped_positions_do_not_leak_the_future,
        mask_by(by_told_positions),
    ),
)
NAMED = pytest.mark.parametrize(
    "mistake", MISTAKES, ids=[f"{m.name} [{m.fault}] by {m.check.__name__}" for m in MISTAKES]
)


@NAMED
def test_the_named_check_catches_the_mistake(mistake, monkeypatch):
    mistake.plant(monkeypatch)
    with pytest.raises(AssertionError):
        mistake.check()


@NAMED
def test_the_named_check_passes_without_the_mistake(mistake):
    mistake.check()


def test_every_law_catches_some_planted_mistake():
    caught = {m.check.__name__.removeprefix("law ") for m in MISTAKES if m.check.__name__.startswith("law ")}
    assert caught == {one.__name__ for one in LAWS}


def test_no_mistake_stands_twice():
    names = [m.name for m in MISTAKES]
    assert len(set(names)) == len(names) >= 24
