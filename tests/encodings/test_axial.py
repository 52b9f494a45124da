"""Axial against complex numbers in plain Python, from offsets and from absolute places; rows and columns told apart."""

import cmath
import math

import pytest
import torch

from milepost import Axial, Layout, RoPE, attend, build
from milepost.positions import centred, grid, normalised, prefixed

PLACES = [
    [0, 1, 2, 255, 256, 257, 131071, 1048575],
    [3, 0, 1048575, 257, 1, 131071, 2, 255],
    [7, 8, 0, 1, 4096, 2, 3, 131071],
]


def spectra(axes, split, base, dealt=False):
    """The frequency and the axis of each pair, in order."""
    whole = sum(split)
    found = []
    for a in range(axes):
        for i in range(split[a] // 2):
            w = base[a] ** (-2 * (i * axes + a) / whole) if dealt else base[a] ** (-2 * i / split[a])
            found.append((a, w))
    return found


def as_complex(x, size, pairing):
    pairs = size // 2
    return [complex(x[i], x[i + pairs]) if pairing == "half" else complex(x[2 * i], x[2 * i + 1]) for i in range(pairs)]


CASES = [
    (8, 2, (4, 4), (10000.0, 10000.0), False, {}),
    (12, 2, (4, 8), (100.0, 7.0), False, {"split": (4, 8), "base": (100.0, 7.0)}),
    (8, 2, (4, 4), (10000.0, 10000.0), True, {"spectra": "dealt"}),
    (12, 3, (4, 4, 4), (50.0,) * 3, True, {"spectra": "dealt", "base": 50.0}),
    (16, 3, (2, 6, 4), (10000.0,) * 3, False, {"split": (2, 6, 4)}),
]


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize(("head_dim", "axes", "split", "base", "dealt", "given"), CASES)
def test_each_pair_turns_by_its_own_axis(head_dim, axes, split, base, dealt, given, pairing):
    enc = Axial(head_dim, axes=axes, pairing=pairing, **given)
    size = sum(split)
    x = torch.randn(1, 2, 8, head_dim, dtype=torch.float64)
    y = enc.query(x, torch.tensor(PLACES[:axes])[:, None])
    assert torch.equal(y[..., size:], x[..., size:])
    for t in range(8):
        before, after = (as_complex(v[0, 1, t].tolist(), size, pairing) for v in (x, y))
        for (a, w), z, turned in zip(spectra(axes, split, base, dealt), before, after, strict=True):
            p = PLACES[a][t]
            assert abs(turned - z * cmath.exp(1j * p * w)) <= 8 * 2.0**-52 * (1 + p) * abs(z), (a, p)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_a_logit_is_made_from_the_signed_offset_on_each_axis(pairing):
    enc = Axial(8, base=(100.0, 10.0), pairing=pairing)
    q, k = (torch.randn(1, 1, 8, 8, dtype=torch.float64) for _ in range(2))
    at = torch.tensor(PLACES[:2])[:, None]
    logits = (enc.query(q, at)[0, 0] @ enc.key(k, at)[0, 0].T).tolist()
    for m in range(8):
        for n in range(8):
            zq, zk = (as_complex(v[0, 0, t].tolist(), 8, pairing) for v, t in ((q, m), (k, n)))
            want = sum(
                (a * b.conjugate() * cmath.exp(1j * (PLACES[axis][m] - PLACES[axis][n]) * w)).real
                for (axis, w), a, b in zip(spectra(2, (4, 4), (100.0, 10.0)), zq, zk, strict=True)
            )
            assert abs(logits[m][n] - want) <= 64 * 2.0**-52 * 2**21 * (q[0, 0, m].norm() * k[0, 0, n].norm()).item(), (
                m,
                n,
            )


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("base", [10000.0, 100.0])
def test_with_one_axis_it_is_rope_to_the_last_bit(pairing, base):
    x, pos = torch.randn(2, 3, 8, 16), torch.tensor(PLACES[:2])
    one, plain = Axial(16, axes=1, pairing=pairing, base=base), RoPE(16, pairing=pairing, base=base)
    assert torch.equal(one.query(x, pos), plain.query(x, pos))
    assert torch.equal(one.key(x, pos[0]), plain.key(x, pos[0]))


def test_rows_turn_the_first_channels_and_columns_the_others():
    enc, x = Axial(8, pairing="interleaved"), torch.randn(1, 1, 1, 8, dtype=torch.float64)
    down, across = (enc.query(x, torch.tensor(p)[:, None, None]) for p in ((5, 0), (0, 5)))
    assert torch.equal(down[..., 4:], x[..., 4:]) and torch.equal(across[..., :4], x[..., :4])
    assert ((down - x)[..., :4].abs() > 1e-3).all() and ((across - x)[..., 4:].abs() > 1e-3).all()
    half = Axial(8)
    down = half.query(x, torch.tensor((5, 0))[:, None, None])
    moved = ((down - x).abs() > 0)[0, 0, 0].tolist()
    assert moved == [True, True, False, False] * 2


def test_an_exchange_of_rows_and_columns_is_seen():
    enc, x = Axial(16), torch.randn(1, 2, 12, 16, dtype=torch.float64)
    pos = grid(3, 4)
    right, wrong = (
        attend(x, x, x, enc, at=Layout.dense(12).with_positions(p), causal=False) for p in (pos, pos.flip(0))
    )
    assert (right - wrong).abs().max() > 1e-2


def test_rope_vit_is_columns_first_with_base_100():
    rows, columns, size = 3, 4, 16
    x = torch.randn(1, 1, rows * columns, size, dtype=torch.float64)
    y = Axial(size, base=100.0, pairing="interleaved").query(x, grid(rows, columns).flip(0))
    for t in range(rows * columns):
        for i in range(size // 2):
            where = t % columns if i < size // 4 else t // columns
            angle = where * 100.0 ** (-4 * (i % (size // 4)) / size)
            z = complex(x[0, 0, t, 2 * i], x[0, 0, t, 2 * i + 1]) * cmath.exp(1j * angle)
            assert abs(complex(y[0, 0, t, 2 * i], y[0, 0, t, 2 * i + 1]) - z) < 1e-13


def test_timm_is_rows_first_with_neighbours_as_pairs():
    rows, columns, size = 3, 4, 16
    x = torch.randn(1, 1, rows * columns, size, dtype=torch.float64)
    y = Axial(size, pairing="interleaved").query(x, grid(rows, columns))
    for t in range(rows * columns):
        for c in range(0, size, 2):
            band = (c // 2) % (size // 4)
            angle = (t // columns, t % columns)[c // (size // 2)] / 10000.0 ** (band / (size // 4))
            a, b = x[0, 0, t, c : c + 2].tolist()
            assert abs(y[0, 0, t, c].item() - (a * math.cos(angle) - b * math.sin(angle))) < 1e-13
            assert abs(y[0, 0, t, c + 1].item() - (b * math.cos(angle) + a * math.sin(angle))) < 1e-13


def test_centred_and_index_places_give_the_same_attention():
    enc, x = Axial(8), torch.randn(1, 2, 35, 8, dtype=torch.float64)
    one, two = (
        attend(x, x, x, enc, at=Layout.dense(35).with_positions(p), causal=False, backend="sdpa")
        for p in (grid(5, 7), centred(5, 7))
    )
    assert (one - two).abs().max() < 1e-12


def test_tokens_at_zero_are_not_turned():
    enc, x = Axial(8), torch.randn(1, 1, 7, 8)
    pos = prefixed(normalised(2, 3, reach=math.tau), 1, place="zero")
    assert torch.equal(enc.query(x, pos)[:, :, 0], x[:, :, 0])


@pytest.mark.parametrize("backend", ["auto", "sdpa", "chunked", "reference", "toeplitz"])
def test_attention_takes_images_of_a_batch_with_places_of_their_own(backend):
    enc = Axial(8)
    x = torch.randn(2, 2, 12, 8, dtype=torch.float64)
    pos = torch.cat([grid(3, 4), grid(4, 3)], dim=1)
    together = attend(x, x, x, enc, at=Layout.dense(12).with_positions(pos), causal=False, backend=backend)
    for b in range(2):
        mine = pos[:, b : b + 1]
        alone = attend(
            x[b : b + 1],
            x[b : b + 1],
            x[b : b + 1],
            enc,
            at=Layout.dense(12).with_positions(mine),
            causal=False,
        )
        assert (together[b] - alone[0]).abs().max() < 1e-12


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"head_dim": 6}, r"head_dim=6 is not 2 equal even parts; say with split"),
        ({"head_dim": 8, "axes": 3}, "is not 3 equal even parts"),
        ({"head_dim": 8, "axes": 0}, "axes must be at least 1"),
        ({"head_dim": 8, "split": (4, 6)}, "together at most head_dim=8; got"),
        ({"head_dim": 8, "split": (3, 5)}, "even numbers of channels"),
        ({"head_dim": 8, "split": (4,)}, "one for each axis"),
        ({"head_dim": 8, "base": (10.0,)}, "one number, or 2 of them"),
        ({"head_dim": 8, "base": 1.0}, "base must be a finite number above 1"),
        ({"head_dim": 8, "pairing": "rows"}, "pairing must be"),
        ({"head_dim": 12, "spectra": "dealt", "split": (4, 8)}, "with one base and equal parts"),
        ({"head_dim": 8, "spectra": "some"}, "spectra must be"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Axial(**arguments)


def test_positions_of_another_number_of_axes_are_refused_with_what_to_do():
    enc, x = Axial(8), torch.zeros(1, 1, 4, 8)
    for pos in (torch.arange(4), torch.arange(4)[None], grid(1, 2, 2)):
        with pytest.raises(
            ValueError, match=r"\(2, B, L\), axes first, as milepost.positions.grid\(rows, columns\) makes them"
        ):
            enc.query(x, pos)
    with pytest.raises(ValueError, match="takes positions of 2 axes, got a tensor of shape"):
        attend(x, x, x, enc, at=Layout.dense(4))
    with pytest.raises(ValueError, match="takes positions of 1 axis"):
        RoPE(8).check(grid(2, 2))


def test_its_text_builds_it_again():
    for text in (
        "axial(head_dim=64, axes=3, base=(100.0, 10000.0, 10000.0), split=(16, 24, 24), pairing='interleaved')",
        "axial(head_dim=8, spectra='dealt')",
    ):
        assert repr(build(text)) == text
