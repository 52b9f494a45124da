"""RoPE against complex numbers: a pair (x, y) is x + iy, and position p multiplies it by exp(i p w), with p w from
mpmath at 40 digits.
"""

import cmath
import math
from dataclasses import dataclass, replace

import mpmath
import pytest
import torch

from milepost import Layout, RoPE, Spectrum, attend, build
from milepost.rotation import permutation
from milepost.scaling import Scaling

EPS = torch.finfo(torch.float64).eps
L = 512
POSITIONS = [0, 1, 2, 255, 256, 257, L - 1, L, L + 1, 4 * L, 131071, 1048575]


def turned(
    x: list[float], p: float, size: int, pairing: str, live: int | None = None, base: float = 10000.0
) -> list[float]:
    """One vector at position p, pair by pair: the first ``live`` pairs among ``size`` channels."""
    out = list(x)
    for i in range(size // 2 if live is None else live):
        a, b = (i, i + size // 2) if pairing == "half" else (2 * i, 2 * i + 1)
        z = complex(x[a], x[b]) * unit(p, mpmath.mpf(2 * i) / size, base)
        out[a], out[b] = z.real, z.imag
    return out


def unit(p: float, exponent, base: float = 10000.0) -> complex:
    """exp(i p base^-exponent), the angle reduced before it is rounded."""
    with mpmath.workdps(40):
        angle = mpmath.mpf(p) / mpmath.mpf(base) ** exponent
        return cmath.exp(1j * float(mpmath.fmod(angle, 2 * mpmath.pi)))


def room(p: float, norm: float) -> float:
    """A float64 angle p w, w <= 1, is off by at most 1.5 roundings of its size (power, product); sums add a few of
    their own.
    """
    return (2 * abs(p) + 16) * EPS * norm


def apart(x: torch.Tensor, want: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(x.tolist(), want, strict=True))


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("head_dim", [2, 8, 72, 80, 96, 192])
def test_queries_and_keys_turn_like_complex_numbers(pairing, head_dim):
    enc, x = RoPE(head_dim, pairing=pairing), torch.randn(1, 3, 12, head_dim, dtype=torch.float64)
    for y in (enc.query(x, torch.tensor(POSITIONS)), enc.key(x, torch.tensor(POSITIONS))):
        for h in (0, 2):
            for t, p in enumerate(POSITIONS):
                assert apart(y[0, h, t], turned(x[0, h, t].tolist(), p, head_dim, pairing)) <= room(
                    p, x[0, h, t].norm().item()
                )


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_a_logit_sees_only_the_signed_distance(pairing):
    enc, D = RoPE(8, pairing=pairing, base=500.0), 8
    q, k, v = (torch.randn(2, 2, 12, D, dtype=torch.float64) for _ in range(3))
    to = Layout.dense(12).with_positions(torch.tensor(POSITIONS))
    at = to.take(torch.tensor([11, 4, 9]))
    q = q[:, :, [11, 4, 9]]
    logits = attend(q, k, v, enc, at=at, to=to, backend="reference", details=True).logits
    for b in range(2):
        for h in range(2):
            for i, row in enumerate([11, 4, 9]):
                for j in range(row + 1):
                    distance, want = POSITIONS[row] - POSITIONS[j], 0.0
                    for pair in range(D // 2):
                        x, y = (pair, pair + D // 2) if pairing == "half" else (2 * pair, 2 * pair + 1)
                        zq, zk = complex(q[b, h, i, x], q[b, h, i, y]), complex(k[b, h, j, x], k[b, h, j, y])
                        want += (zq * zk.conjugate() * unit(distance, mpmath.mpf(2 * pair) / D, 500.0)).real
                    size = q[b, h, i].norm().item() * k[b, h, j].norm().item()
                    assert abs(logits[b, h, i, j].item() - want / math.sqrt(D)) <= 2 * room(1048575, size), (b, h, i, j)
                assert torch.isinf(logits[b, h, i, row + 1 :]).all()


@pytest.mark.parametrize("shift", [1, 1000, 100000, 900000])
def test_in_float32_shifting_both_by_up_to_a_million_moves_no_logit(shift):
    enc, pos = RoPE(64), torch.tensor([0, 1, 2, 255, 256, 257, 4095, 131071])
    q, k = torch.randn(1, 2, 8, 64), torch.randn(1, 2, 8, 64)
    here = enc.query(q, pos) @ enc.key(k, pos).transpose(-1, -2)
    there = enc.query(q, pos + shift) @ enc.key(k, pos + shift).transpose(-1, -2)
    size = q.norm(dim=-1)[..., :, None] * k.norm(dim=-1)[..., None, :]
    assert ((here - there).abs() / size).max() <= 1e-5


def test_frequencies_of_the_other_layout_break_the_relative_law():
    x = torch.randn(8, dtype=torch.float64)

    def wrong(p: int) -> torch.Tensor:
        w = [
            10000.0 ** (-2 * (c // 2) / 8) for c in range(8)
        ]  # w0, w0, w1, w1, ...: right for neighbours, but channels 0 and 4 are turned as a pair
        angle = torch.tensor(w, dtype=torch.float64) * p
        flipped = torch.cat([-x[4:], x[:4]])
        return x * angle.cos() + flipped * angle.sin()

    assert abs(wrong(7) @ wrong(3) - wrong(1007) @ wrong(1003)) > 1e-3 * x.norm() ** 2
    right = RoPE(8)
    at = [right.query(x.expand(1, 1, 1, 8), torch.tensor([p]))[0, 0, 0] for p in (7, 3, 1007, 1003)]
    assert abs(at[0] @ at[1] - at[2] @ at[3]) <= 2 * room(1007, x.norm().item() ** 2)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_norms_are_kept_at_every_position(pairing):
    x = torch.randn(1, 2, 12, 64)
    ratio = RoPE(64, pairing=pairing).query(x, torch.tensor(POSITIONS)).norm(dim=-1) / x.norm(dim=-1)
    assert (ratio - 1).abs().max() <= 1e-6


def test_position_zero_is_the_identity_and_position_one_is_not():
    x = torch.randn(1, 2, 2, 16)
    y = RoPE(16).query(x, torch.tensor([0, 1]))
    assert torch.equal(y[:, :, 0], x[:, :, 0])
    assert (y[:, :, 1] - x[:, :, 1]).abs().max() > 0.1


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_rotations_add_up_and_negative_positions_turn_back(pairing):
    enc, x = RoPE(8, pairing=pairing), torch.randn(1, 1, 3, 8, dtype=torch.float64)
    a, b = torch.tensor([3, 255, 131071]), torch.tensor([4, 257, 1000000])
    twice = enc.query(enc.query(x, a), b)
    assert (twice - enc.query(x, a + b)).abs().max() <= 2 * room(1131071, x.norm().item())
    assert (enc.key(enc.query(x, a), -a) - x).abs().max() <= 2 * room(131071, x.norm().item())


def test_golden_cosines_and_sines_at_far_positions():
    one_zero = torch.zeros(1, 1, 2, 64)
    one_zero[..., :32] = 1.0  # every pair is (1, 0), and becomes (cos, sin)
    y = RoPE(64).query(one_zero, torch.tensor([131071, 1048575]))[0, 0]
    cos, sin = y[:, [0, 1, 31]].tolist(), y[:, [32, 33, 63]].tolist()
    assert cos[0] == pytest.approx([-0.817983499387949081, 0.0546179309379251226, 0.198511702907246318], abs=1e-6)
    assert sin[0] == pytest.approx([-0.575241683754789371, 0.998507326773349241, -0.980098517399585282], abs=1e-6)
    assert cos[1] == pytest.approx([0.788042239528927469, 0.0995443666689011197, -0.0288464861992678207], abs=1e-6)
    assert sin[1] == pytest.approx([-0.615621173058750884, -0.995033124606657187, 0.999583853528034661], abs=1e-6)


@pytest.mark.parametrize(("base", "head_dim"), [(1e4, 128), (5e5, 128), (1e6, 64)])
@pytest.mark.parametrize("p", [131071, 1048575])
def test_float32_is_within_a_millionth_of_mpmath_in_every_pair(base, head_dim, p):
    x = torch.zeros(1, 1, 1, head_dim)
    x[..., : head_dim // 2] = 1.0
    y = RoPE(head_dim, base=base).query(x, torch.tensor([p]))[0, 0, 0].tolist()
    for i in range(head_dim // 2):
        want = unit(p, mpmath.mpf(2 * i) / head_dim, base)
        assert abs(y[i] - want.real) <= 1e-6
        assert abs(y[i + head_dim // 2] - want.imag) <= 1e-6


def test_frequencies_survive_every_cast_and_lazy_build_bit_for_bit():
    pos, x = torch.tensor([257, 131071]), torch.randn(1, 2, 2, 64)
    plain = RoPE(64, base=5e5)
    frequencies, before = plain.inv_freq.clone(), plain.query(x, pos.clone())
    with torch.device("meta"):
        lazy = RoPE(64, base=5e5)
    torch.set_default_dtype(torch.bfloat16)
    try:
        born_in_bfloat16 = RoPE(64, base=5e5)
    finally:
        torch.set_default_dtype(torch.float32)
    cast = [
        RoPE(64, base=5e5).to(torch.bfloat16),
        RoPE(64, base=5e5).half(),
        RoPE(64, base=5e5).to("meta").to_empty(device="cpu"),
    ]
    for enc in [*cast, lazy.to_empty(device="cpu"), born_in_bfloat16]:
        assert enc.inv_freq.dtype == torch.float64
        assert torch.equal(enc.inv_freq, frequencies)
        assert torch.equal(enc.query(x, pos.clone()), before)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(plain.query(x, pos.clone()), before)
    assert not plain.state_dict()


def test_old_checkpoints_with_their_frequencies_still_load_when_they_agree():
    enc = RoPE(8)
    enc.load_state_dict({"inv_freq": torch.tensor([1.0, 0.1, 0.01, 0.001])})
    assert enc.inv_freq.dtype == torch.float64
    with pytest.raises(ValueError, match="is not the spectrum of"):
        enc.load_state_dict({"inv_freq": torch.tensor([1.0, 0.1, 0.01, 0.002])})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_models_tell_every_position_apart(dtype):
    enc, pos = RoPE(16).to(dtype), torch.tensor([256, 257, 65519, 65520, 131071])
    x = torch.ones(1, 1, 5, 16, dtype=dtype)
    y = enc.query(x, pos)
    assert y.dtype == dtype and y.isfinite().all()
    assert not torch.equal(y[0, 0, 0], y[0, 0, 1])
    exact = enc.query(x.double(), pos)
    assert (y.double() - exact).abs().max() <= 0.51 * torch.finfo(dtype).eps * math.sqrt(
        2
    )  # widened, turned, rounded once; values below 2


def test_golden_cosine_that_half_precision_positions_would_move():
    x = torch.tensor([1.0, 0.0]).expand(1, 1, 1, 2)
    assert RoPE(2).query(x, torch.tensor([15962]))[0, 0, 0, 0].item() == pytest.approx(
        -0.9080159, abs=1e-6
    )  # bfloat16 would read 15968
    assert RoPE(2).query(x, torch.tensor([15968]))[0, 0, 0, 0].item() == pytest.approx(-0.7547928, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_positions_in_half_precision_are_refused(dtype):
    with pytest.raises(ValueError, match="256 from 257"):
        RoPE(8).query(torch.zeros(1, 1, 2, 8), torch.tensor([256, 257]).to(dtype))


def test_half_and_interleaved_differ_by_the_fixed_permutation():
    x, pos = torch.randn(1, 2, 12, 16, dtype=torch.float64), torch.tensor(POSITIONS)
    half = RoPE(16).query(x, pos)
    order = [c // 2 if c % 2 == 0 else 8 + c // 2 for c in range(16)]  # 0, 8, 1, 9, ...
    assert permutation(16, to="interleaved").tolist() == order
    other = RoPE(16, pairing="interleaved").query(x[..., order], pos)
    assert (other - half[..., order]).abs().max() <= 4 * EPS * x.abs().max()
    assert (RoPE(16, pairing="interleaved").query(x, pos) - half).abs().max() > 0.1


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_partial_prefix_turns_the_first_channels_and_leaves_the_rest_bit_equal(pairing):
    enc, x = RoPE(80, rotary=32, pairing=pairing), torch.randn(2, 3, 12, 80, dtype=torch.float64)
    y = enc.query(x, torch.tensor(POSITIONS))
    assert torch.equal(y[..., 32:], x[..., 32:])
    for t, p in enumerate(POSITIONS):
        assert apart(y[1, 2, t], turned(x[1, 2, t].tolist(), p, 32, pairing)) <= room(p, x[1, 2, t].norm().item())
    assert enc.spectrum.frequencies == pytest.approx([10000.0 ** (-2 * i / 32) for i in range(16)], rel=4 * EPS)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_partial_proportional_turns_the_fastest_pairs_of_the_whole_head(pairing):
    enc, x = RoPE(16, rotary=6, partial="proportional", pairing=pairing), torch.randn(1, 3, 12, 16, dtype=torch.float64)
    y = enc.key(x, torch.tensor(POSITIONS))
    still = [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] if pairing == "half" else list(range(6, 16))
    assert torch.equal(y[..., still], x[..., still])
    for t, p in enumerate(POSITIONS):
        assert apart(y[0, 1, t], turned(x[0, 1, t].tolist(), p, 16, pairing, live=3)) <= room(
            p, x[0, 1, t].norm().item()
        )
    assert enc.spectrum.frequencies == pytest.approx(
        [1.0, 10000 ** (-1 / 8), 10000 ** (-2 / 8), 0, 0, 0, 0, 0], rel=4 * EPS
    )


def test_golden_frequencies_of_head_size_eight():
    assert RoPE(8).spectrum.frequencies == pytest.approx((1.0, 0.1, 0.01, 0.001), rel=4 * EPS)
    assert RoPE(8).spectrum.wavelengths[0] == pytest.approx(6.283185307179586, rel=EPS)


def test_each_row_is_told_its_own_positions():
    enc, x = RoPE(4), torch.randn(2, 1, 2, 4, dtype=torch.float64)
    pos = [[0, 131071], [257, 3]]
    y = enc.query(x, torch.tensor(pos))
    for b in range(2):
        for t in range(2):
            assert apart(y[b, 0, t], turned(x[b, 0, t].tolist(), pos[b][t], 4, "half")) <= room(
                131071, x[b, 0, t].norm().item()
            )


def test_fractional_positions_turn_by_fractions():
    x = torch.randn(1, 1, 2, 4, dtype=torch.float64)
    y = RoPE(4).query(x, torch.tensor([0.25, 1023.75]))
    for t, p in enumerate([0.25, 1023.75]):
        assert apart(y[0, 0, t], turned(x[0, 0, t].tolist(), p, 4, "half")) <= room(p, x[0, 0, t].norm().item())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32, torch.float64])
def test_every_dtype_that_can_count_gives_the_same_numbers(dtype):
    x = torch.randn(1, 1, 3, 8)
    assert torch.equal(
        RoPE(8).query(x, torch.tensor([0, 257, 131071]).to(dtype)), RoPE(8).query(x, torch.tensor([0, 257, 131071]))
    )


def test_the_gradient_is_turned_back():
    enc, pos = RoPE(8, rotary=4), torch.tensor(POSITIONS)
    x, g = (
        torch.randn(1, 3, 12, 8, dtype=torch.float64, requires_grad=True),
        torch.randn(1, 3, 12, 8, dtype=torch.float64),
    )
    enc.query(x, pos).backward(g)
    for t, p in enumerate(POSITIONS):
        assert apart(x.grad[0, 2, t], turned(g[0, 2, t].tolist(), -p, 4, "half")) <= room(p, g[0, 2, t].norm().item())


def test_spectra_never_share_a_table_on_one_position_tensor():
    x, pos = torch.randn(1, 1, 4, 8, dtype=torch.float64), torch.tensor([0, 1, 257, 2048])
    several = [RoPE(8), RoPE(8, base=500.0), RoPE(8, rotary=4), RoPE(8, rotary=4, partial="proportional")]
    together = [enc.query(x, pos) for enc in several]
    for enc, y in zip(several, together, strict=True):
        assert torch.equal(y, enc.query(x, pos.clone()))
    assert RoPE(8).query(x.float(), pos).dtype == torch.float32  # nor do precisions


def test_positions_that_are_written_to_are_read_again():
    enc, x, pos = RoPE(8), torch.randn(1, 1, 3, 8, dtype=torch.float64), torch.tensor([0, 1, 2])
    enc.query(x, pos)
    pos += 256
    assert torch.equal(enc.query(x, pos), enc.query(x, torch.tensor([256, 257, 258])))


def test_training_after_inference_on_the_same_positions_works():
    enc, pos = RoPE(8), torch.arange(3)
    with torch.inference_mode():
        enc.query(torch.randn(1, 1, 3, 8), pos)
    enc.query(torch.randn(1, 1, 3, 8, requires_grad=True), pos).sum().backward()


@dataclass(frozen=True, repr=False)
class Warm(Scaling):
    """Half the frequencies, and a temperature of 1.5."""

    def __call__(self, plain: Spectrum) -> Spectrum:
        return replace(plain, frequencies=tuple(w / 2 for w in plain.frequencies), temperature=1.5)


@dataclass(frozen=True, repr=False)
class Growing(Scaling):
    """Warm past 512 tokens, plain up to there."""

    length_dependent = True

    def at(self, length: int) -> Scaling | None:
        return Warm() if length > 512 else None


def test_a_scaling_changes_the_angles_and_its_temperature_the_queries_only():
    enc, plain = RoPE(8, scaling=Warm()), RoPE(8)
    x, pos = torch.randn(1, 2, 3, 8, dtype=torch.float64), torch.tensor([2, 514, 131072])
    assert torch.equal(enc.key(x, pos), plain.key(x, pos // 2))
    assert torch.equal(enc.query(x, pos), plain.query(x, pos // 2) * 1.5)
    assert not enc.rotation and plain.rotation


def test_what_depends_on_the_length_asks_for_it():
    enc, x = RoPE(8, scaling=Growing()), torch.randn(1, 1, 2, 8)
    with pytest.raises(ValueError, match=r"use enc\.at\(length\)"):
        enc.query(x, torch.arange(2))
    with pytest.raises(ValueError, match=r"ask for details with enc\.at\(length\)"):
        attend(x, x, x, enc, details=True)
    pos = torch.tensor([3, 600])
    assert torch.equal(enc.at(512).query(x, pos), RoPE(8).query(x, pos))
    assert torch.equal(enc.at(513).query(x, pos), RoPE(8, scaling=Warm()).query(x, pos))
    fixed = RoPE(8)
    assert fixed.at(10**6) is fixed


@pytest.mark.parametrize("length", [512, 513])
def test_attention_turns_raw_queries_and_keys_once_it_knows_the_length(length):
    x, _pos = torch.randn(1, 1, length, 8, dtype=torch.float64), torch.arange(length)
    plain = RoPE(8) if length <= 512 else RoPE(8, scaling=Warm())
    turned = attend(x, x, x, plain, backend="reference")
    assert (attend(x, x, x, RoPE(8, scaling=Growing()), backend="reference") - turned).abs().max() <= room(
        length, 8 * x.abs().max().item() ** 2
    )


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_a_turned_key_can_be_turned_on_to_another_place_and_spectrum(pairing):
    old, new = RoPE(8, pairing=pairing), RoPE(8, base=500.0, pairing=pairing)
    k, was, now = torch.randn(1, 2, 12, 8, dtype=torch.float64), torch.tensor(POSITIONS), torch.tensor(POSITIONS[::-1])
    moved = new.rekey(old.key(k, was), now, old, was)
    for t, p in enumerate(POSITIONS[::-1]):
        assert apart(moved[0, 1, t], turned(k[0, 1, t].tolist(), p, 8, pairing, base=500.0)) <= 2 * room(
            1048575, k[0, 1, t].norm().item()
        )
    with pytest.raises(ValueError, match="cache the keys again"):
        new.rekey(k, now, RoPE(8, rotary=4, pairing=pairing), was)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"head_dim": 7}, "must be even, from 2 to head_dim=7, got 7"),
        ({"head_dim": 8, "rotary": 3}, "must be even, from 2 to head_dim=8, got 3"),
        ({"head_dim": 8, "rotary": 10}, "got 10"),
        ({"head_dim": 8, "rotary": 0}, "got 0"),
        ({"head_dim": 8, "base": 1.0}, "base must be a finite number above 1"),
        ({"head_dim": 8, "base": float("nan")}, "base must be"),
        ({"head_dim": 8, "pairing": "neox"}, "pairing must be"),
        ({"head_dim": 8, "partial": "suffix"}, "partial must be"),
        ({"head_dim": 8, "scaling": 2.0}, "scaling must be one of"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        RoPE(**arguments)


def test_bad_tensors_are_refused():
    enc = RoPE(8)
    with pytest.raises(ValueError, match="made for head_dim=8"):
        enc.query(torch.zeros(1, 1, 2, 6), torch.arange(2))
    with pytest.raises(ValueError, match=r"\(B, H, L, D\)"):
        enc.key(torch.zeros(1, 2, 8), torch.arange(2))
    with pytest.raises(ValueError, match="positions of shape"):
        enc.key(torch.zeros(1, 1, 2, 8), torch.arange(3))
    with pytest.raises(ValueError, match="finite"):
        enc.query(torch.zeros(1, 1, 1, 8), torch.tensor([float("nan")]))
    with pytest.raises(ValueError, match="must be a tensor"):
        enc.query(torch.zeros(1, 1, 1, 8), [0])


def test_its_text_builds_it_again():
    text = "rope(head_dim=64, base=500000.0, pairing='interleaved', rotary=32, partial='proportional')"
    assert repr(build(text)) == text
    assert repr(build("rope(base=5e5)", head_dim=64, heads=8)) == "rope(head_dim=64, base=500000.0)"
