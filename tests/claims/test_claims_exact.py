"""Exact claims: verdicts against facts found another way, and each changed by planting its opposite."""

import math
from itertools import pairwise

import mpmath
import numpy as np
import pytest
import torch

from milepost.claims import random_model
from milepost.claims.groups.absolute import added, codes, order, sinusoids
from milepost.claims.groups.practice import space
from milepost.claims.groups.relative import alibi, frequencies, relative, rotary, rotation
from milepost.claims.rule import Number, verdict
from milepost.claims.table import CLAIMS
from milepost.encodings.axial import Axial
from milepost.encodings.binary import Binary
from milepost.encodings.learned import Learned
from milepost.encodings.rope import RoPE
from milepost.encodings.sinusoidal import Sinusoidal

KNOWN = {
    "permutation": "holds",  # attention sums over a set
    "same-token": "holds with a limit",
    "length-is-no-signal": "holds with a limit",
    "integer-swamps": "holds",
    "binary-jumps": "holds",  # 0111 -> 1000 flips all bits, 0000 -> 0001 one
    "sin-unique": "holds",
    "sin-linear": "holds",  # the addition formulas
    "sin-dot": "holds with a limit",  # sum of cos w (i - j); a general W^T W' does not commute with rotations
    "sin-relation": "fails",
    "wavelengths": "holds with a limit",  # the exponent ends at 1 - 2/d
    "add-vs-concat": "holds",
    "learned-ends": "holds",
    "shift": "holds with a limit",  # FIRE measures against the query's own place
    "alibi-heads": "holds with a limit",  # the smallest slope is 2^-8 for any number of heads
    "alibi-weights-linear": "fails",
    "rope-relative": "holds with a limit",
    "rope-norm": "holds",
    "rope-vanishes": "fails",
    "rope-decay": "holds with a limit",
    "rope-sign": "fails",  # R_m^T R_n = R_{n-m}
    "rope-abs": "fails",
    "pairs-in-code": "fails",
    "linear-attention": "holds with a limit",
    "phase-wrap": "holds with a limit",
    "n-d": "holds",
}
"""What follows from the formulas."""


def judged(name, found):
    """The verdict of a claim for numbers found by hand."""
    return verdict(
        CLAIMS[name].rule,
        {key: one if isinstance(one, Number) else Number(float(one)) for key, one in found.numbers.items()},
    )


@pytest.mark.slow
def test_every_exact_claim_is_decided_as_the_formulas_say(exact_rows):
    assert {name: row["verdict"] for name, row in exact_rows.items()} == KNOWN


@pytest.mark.slow
def test_every_exact_claim_has_a_figure_and_evidence_with_numbers(exact_rows):
    for row in exact_rows.values():
        assert row["figures"], row["id"]
        assert any(letter.isdigit() for letter in row["evidence"]), row["id"]
        for figure in row["figures"]:
            assert all(len(values) == len(figure["x"]) for values in figure["lines"].values())


# -- numbers found another way -----------------------------------------------------------------------------------------


def test_the_nearest_two_codes_by_brute_force():
    enc = Sinusoidal(16)
    code = enc.code(torch.arange(600)).numpy()
    apart = np.linalg.norm(code[:, None] - code[None], axis=-1) + 9.0 * np.eye(600)
    best, where, octaves = sinusoids.nearest(enc.frequencies, 599)
    i, j = np.unravel_index(apart.argmin(), apart.shape)
    assert best == pytest.approx(apart.min(), rel=1e-9) and where == abs(i - j)
    assert float(octaves.min()) == best


@pytest.mark.slow
def test_the_last_wavelength_in_high_precision(exact_rows):
    mpmath.mp.dps = 30
    worst = max(abs(mpmath.mpf(10000) ** (1 - mpmath.mpf(2) / d) / 10000 - 1) for d in (64, 512, 4096))
    assert exact_rows["wavelengths"]["numbers"]["last"]["value"] == pytest.approx(float(worst), rel=1e-12)


@pytest.mark.slow
def test_the_error_of_the_wrong_sign_by_complex_numbers(exact_rows):
    """A pair as a complex number: R_p turns by e^(i p w), a product is the real part of q times the other's
    conjugate.
    """
    q, k = (x.numpy() for x in rotation.vectors())
    half = rotation.HEAD // 2
    w = 10000.0 ** (-2 * np.arange(half) / rotation.HEAD)
    zq, zk = (x[:, :half] + 1j * x[:, half:] for x in (q, k))
    worst = 0.0
    for m, n in [(7, 3), (3, 7), (1000, 10), (1048575, 131071)]:
        left = (np.exp(1j * m * w) * zq * np.conj(np.exp(1j * n * w) * zk)).real.sum(-1)
        right = (zq * np.conj(np.exp(1j * (m - n) * w) * zk)).real.sum(-1)
        worst = max(worst, np.abs(left - right).max())
    assert exact_rows["rope-sign"]["numbers"]["m - n"]["value"] == pytest.approx(worst, rel=1e-6)


def test_weights_of_alibi_are_as_bent_as_an_exponential():
    """The gentlest of 8 heads over 256 tokens is e^-x on [0, 1), whose best line misses by a tenth of the range."""
    x = np.arange(256)
    y = np.exp(-x / 256) / np.exp(-x / 256).sum()
    line = np.polyval(np.polyfit(x, y, 1), x)
    bent = np.abs(y - line).max() / (y.max() - y.min())
    assert alibi.measure_weights().numbers["weights"] == pytest.approx(bent, rel=1e-6)


def test_bands_of_alibi_from_the_published_slopes():
    found = alibi.measure_reach()
    octaves = [8 - 8 / heads for heads in alibi.HEADS]
    assert found.numbers["octaves"] == pytest.approx(min(b - a for a, b in pairwise(octaves)))
    assert found.numbers["farther"] == 1.0


# -- the opposite, planted ---------------------------------------------------------------------------------------------


class Still(RoPE):
    """A rope that does not turn."""

    def turn(self, x, pos):
        return x.clone()


class Fading(RoPE):
    """A rope that shrinks what it turns."""

    def turn(self, x, pos):
        return super().turn(x, pos) * torch.exp(-pos.double() / 1000)[..., None, :, None]


class Leaning(RoPE):
    """A rope whose queries turn twice as fast as its keys."""

    def query(self, q, pos):
        return super().query(q, 2 * pos)


def test_without_a_turn_the_sign_does_not_matter(monkeypatch):
    monkeypatch.setattr(rotation, "RoPE", Still)
    assert judged("rope-sign", rotation.measure_sign()) == "holds"
    assert judged("rope-abs", rotation.measure_absolute()) == "holds"
    assert (
        judged("rope-norm", rotation.measure_norm()) == "not decided here"
    )  # the control sees that nothing was turned


def test_a_rope_that_fades_vanishes_and_keeps_no_norms(monkeypatch):
    monkeypatch.setattr(rotation, "RoPE", Fading)
    assert judged("rope-vanishes", rotation.measure_vanishes()) == "holds"
    assert judged("rope-norm", rotation.measure_norm()) == "fails"


def test_queries_that_turn_at_another_speed_are_not_relative(monkeypatch):
    monkeypatch.setattr(rotation, "RoPE", Leaning)
    monkeypatch.setattr(rotary, "RoPE", Leaning)
    assert judged("rope-relative", rotation.measure_relative()) == "fails"
    assert judged("linear-attention", rotary.measure_linear_attention()) == "fails"


def test_code_that_rotates_neighbours_would_bear_the_notes_out(monkeypatch):
    def neighbours(x, angle):
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1).flatten(-2)

    monkeypatch.setattr(rotary, "split_as_in_the_notes", neighbours)
    assert judged("pairs-in-code", rotary.measure_pairs()) == "holds"


def test_positions_in_the_words_are_seen_by_permutation(monkeypatch):
    plain = random_model.RandomModel.states

    def placed(self, x, at=None, *, causal):
        return plain(
            self,
            x + torch.arange(x.shape[1], dtype=x.dtype)[:, None] * torch.linspace(0, 1, x.shape[2], dtype=x.dtype),
            at,
            causal=causal,
        )

    monkeypatch.setattr(random_model.RandomModel, "states", placed)
    assert judged("permutation", order.measure_permutation()) == "fails"
    assert judged("length-is-no-signal", order.measure_length()) == "fails"


def test_a_blind_experiment_decides_nothing(monkeypatch):
    monkeypatch.setattr(order, "RoPE", Still)
    assert judged("permutation", order.measure_permutation()) == "not decided here"


def test_one_layer_without_a_mask_that_hides_order_would_be_a_bag(monkeypatch):
    """Were the mask not there, deeper models would be bags too."""
    plain = random_model.RandomModel.states
    monkeypatch.setattr(
        random_model.RandomModel, "states", lambda self, x, at=None, *, causal: plain(self, x, at, causal=False)
    )
    found = order.measure_causal_bag()
    assert max(found.numbers.values()) <= order.ROUNDING
    assert judged("same-token", order.measure_same_token()) == "holds"


class Gray(Binary):
    """Gray's code: neighbours differ in one bit."""

    def embed(self, x, pos):
        return super().embed(x, pos ^ (pos >> 1))


def test_gray_codes_do_not_jump(monkeypatch):
    monkeypatch.setattr(codes, "Binary", Gray)
    monkeypatch.setattr(codes, "FAR", 4095)
    assert judged("binary-jumps", codes.measure_binary()) == "fails"


class Crowded(Sinusoidal):
    """Codes that repeat every 1000 positions."""

    def __init__(self, width, **how):
        super().__init__(width, **how)
        self.frequencies = torch.arange(1, width // 2 + 1, dtype=torch.float64) * (2 * math.pi / 1000)


@pytest.mark.slow
def test_codes_that_come_back_are_not_unique(monkeypatch):
    monkeypatch.setattr(sinusoids, "Sinusoidal", Crowded)
    monkeypatch.setattr(sinusoids, "FAR", 200000)
    assert sinusoids.measure_unique().numbers["nearest"] < 1e-6
    assert judged("sin-unique", sinusoids.measure_unique()) == "fails"


class Bent(Sinusoidal):
    """Sines of squares."""

    def code(self, pos, dtype=torch.float64):
        return super().code((pos.double() / 1000) ** 2, dtype)


def test_codes_of_squares_are_no_rotation_and_relate_differently(monkeypatch):
    monkeypatch.setattr(sinusoids, "Sinusoidal", Bent)
    assert judged("sin-linear", sinusoids.measure_linear()) == "fails"
    assert judged("sin-dot", sinusoids.measure_dot()) == "fails"
    assert judged("sin-relation", sinusoids.measure_dot()) == "holds"


class Clamped(Learned):
    """A table that gives its last row to whatever is past its end."""

    def __init__(self, length, width, offset=0):
        super().__init__(length, width, offset)
        self.end = None

    def embed(self, x, pos):
        return super().embed(x, pos.clamp(max=self.length - 1))


def test_a_table_that_clamps_is_found_out(monkeypatch):
    monkeypatch.setattr(added, "Learned", Clamped)
    assert judged("learned-ends", added.measure_ends()) == "fails"


def test_a_wrong_construction_does_not_equal_the_concatenating_model(monkeypatch):
    monkeypatch.setattr(
        added.F, "pad", lambda x, sides: torch.cat([torch.zeros(len(x), sides[1], dtype=x.dtype), x], -1)
    )
    assert judged("add-vs-concat", added.measure_concat()) == "fails"


def test_an_absolute_scheme_that_does_nothing_breaks_shift(monkeypatch):
    plain = relative.build
    monkeypatch.setattr(
        relative, "build", lambda name, **sizes: plain("nope" if name == "sinusoidal" else name, **sizes)
    )
    assert judged("shift", relative.measure_shift()) == "fails"


def test_buckets_that_go_on_do_not_limit(monkeypatch):
    monkeypatch.setattr(relative.T5, "bucket", lambda self, distance: distance // 100)
    assert judged("t5-limits", relative.measure_t5()) == "fails"


def test_one_axis_that_is_not_turned_is_seen(monkeypatch):
    class Flat(Axial):
        def turn(self, x, pos):
            return super().turn(x, pos * 0)

    monkeypatch.setattr(space, "Axial", Flat)
    assert judged("n-d", space.measure_axes()) == "not decided here"

    class Slanted(Axial):
        def query(self, q, pos):
            return super().query(q, 2 * pos)

    monkeypatch.setattr(space, "Axial", Slanted)
    assert judged("n-d", space.measure_axes()) == "fails"


def test_with_one_pair_alone_all_places_alias(monkeypatch):
    plain = frequencies.geometric
    monkeypatch.setattr(
        frequencies, "geometric", lambda size, base=10000.0: plain(2, base) if base == 10000.0 else plain(size, base)
    )
    monkeypatch.setattr(frequencies, "SIZE", 2)
    assert judged("phase-wrap", frequencies.measure_wrap()) == "holds"
