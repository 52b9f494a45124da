"""rotary-embedding-torch against milepost: the same rotations and xPos logits; and its bfloat16 positions, decode
centre and stale caches.
"""

from __future__ import annotations

import importlib

import pytest
import torch
from torch import Tensor

from milepost import Layout, RoPE, XPos
from milepost.positions import grid, interpolate

ret = importlib.import_module("rotary_embedding_torch")

FIXED = "peer fixed it: move to parity"
D = 64


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def gap(a: Tensor, b: Tensor) -> float:
    return (a.double() - b.double()).abs().max().item()


def angle_budget(pos: Tensor) -> Tensor:
    """How far cos and sin of the peer may be off: its frequencies w = base^-x (4 + x ln base roundings of 2^-24) and
    angles are float32.
    """
    return (4 * pos.double() + 4) * 2**-24


def close(ours: Tensor, theirs: Tensor, pos: Tensor) -> None:
    allowed = 2 * ours.abs().max() * angle_budget(pos)[:, None]
    assert ((ours.double() - theirs.double()).abs() <= allowed).all(), (
        f"off by {gap(ours, theirs):.2e}, allowed {allowed.max():.2e}"
    )


def exact(x: Tensor, pos: Tensor) -> Tensor:
    """The rotation of neighbouring channels in complex float64 numbers: neither milepost's formula nor the peer's."""
    pairs = x.shape[-1] // 2
    w = 10000.0 ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    turn = torch.polar(torch.ones(1, dtype=torch.float64), pos.double()[:, None] * w)
    return torch.view_as_real(torch.view_as_complex(x.double().unflatten(-1, (pairs, 2)).contiguous()) * turn).flatten(
        -2
    )


# -- the same numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 1, 250, 2040, 4090])
@pytest.mark.parametrize("rotary", [32, 64])
def test_queries_are_turned_alike_from_any_offset(start, rotary):
    q, pos = torch.randn(2, 3, 10, D), torch.arange(start, start + 10)
    theirs = ret.RotaryEmbedding(rotary).rotate_queries_or_keys(q, offset=start)
    close(RoPE(head_dim=D, rotary=rotary, pairing="interleaved").query(q, pos), theirs, pos)
    assert gap(RoPE(head_dim=D, rotary=rotary).query(q, pos), theirs) > 0.1 or start == 0


def test_a_query_with_cached_keys_stands_at_their_end():
    q, k = torch.randn(1, 2, 3, D), torch.randn(1, 2, 260, D)
    theirs = ret.RotaryEmbedding(D).rotate_queries_with_cached_keys(q, k)
    enc, at, to = RoPE(head_dim=D, pairing="interleaved"), Layout.decode(257, 3), Layout.dense(260)
    close(enc.query(q, at.pos), theirs[0], at.pos[0])
    close(enc.key(k, to.pos), theirs[1], to.pos[0])


def test_interpolated_positions_and_a_rescaled_base_are_its_two_ways_to_stretch():
    q, pos = torch.randn(1, 2, 2100, D), torch.arange(2100)
    theirs = ret.RotaryEmbedding(D, interpolate_factor=4.0).rotate_queries_or_keys(q)
    close(RoPE(head_dim=D, pairing="interleaved").query(q, interpolate(pos, 4)), theirs, pos)
    theirs = ret.RotaryEmbedding(D, theta_rescale_factor=4.0).rotate_queries_or_keys(q)
    close(RoPE(head_dim=D, base=10000.0 * 4 ** (D / (D - 2)), pairing="interleaved").query(q, pos), theirs, pos)


@pytest.mark.parametrize("length", [2, 257, 1500])
def test_logits_of_xpos_agree_although_the_centres_do_not(length):
    q, k = torch.randn(1, 2, length, D), torch.randn(1, 2, length, D)
    their_q, their_k = ret.RotaryEmbedding(D, use_xpos=True).rotate_queries_and_keys(q, k)
    enc, at = XPos(head_dim=D, pairing="interleaved"), Layout.dense(length)
    ours = enc.query(q, at.pos) @ enc.key(k, at.pos).transpose(-1, -2)
    seen = at.mask().expand_as(ours)
    # twice the angle error, and float32 powers z^p whose exponents (up to length / 512 times ln 3.5) round too
    allowed = (
        (2 * angle_budget(at.pos).max() + 32 * (1 + length / 512) * 2**-24)
        * q.norm(dim=-1).max()
        * k.norm(dim=-1).max()
    )
    assert gap(ours[seen], (their_q @ their_k.transpose(-1, -2))[seen]) <= allowed


def on_a_grid(x: Tensor, pos: Tensor) -> Tensor:
    """Axial rotation: the first half of the channels turns by the row, the second by the column. ``pos`` is 2 1 L."""
    enc = RoPE(head_dim=D // 2, pairing="interleaved")
    return torch.cat([enc.query(half, axis) for half, axis in zip(x.chunk(2, dim=-1), pos, strict=True)], dim=-1)


@pytest.mark.parametrize("offsets", [None, (10, 20)])
def test_a_grid_is_two_rotations_by_row_and_by_column_while_the_cache_is_cold(offsets):
    freqs = ret.RotaryEmbedding(D // 2).get_axial_freqs(4, 6, offsets=offsets)
    x = torch.randn(2, 3, 24, D)
    theirs = ret.apply_rotary_emb(freqs, x.unflatten(2, (4, 6))).flatten(2, 3)
    pos = grid(4, 6) + torch.tensor(offsets or (0, 0))[:, None, None]
    assert gap(on_a_grid(x, pos), theirs) < 1e-5


# -- where the peer is wrong ------------------------------------------------------------------------------------


def test_positions_in_bfloat16_can_not_tell_257_from_256_and_ours_are_never_in_bfloat16():
    q, pos = torch.randn(1, 2, 300, D), torch.arange(300)
    half = q.bfloat16()
    truth = exact(half, pos)
    rounding = gap(truth.bfloat16(), truth)
    peer = ret.RotaryEmbedding(D)
    theirs = peer.rotate_queries_or_keys(half)
    assert gap(theirs[:, :, :257], truth[:, :, :257]) < 4 * rounding  # right as long as bfloat16 can count
    assert gap(theirs[:, :, 257], truth[:, :, 257]) > 0.5, FIXED
    assert gap(peer.rotate_queries_or_keys(q), exact(q, pos)) > 0.5, (
        FIXED
    )  # the table is kept, so float32 is now wrong too

    enc = RoPE(head_dim=D, pairing="interleaved")
    assert gap(enc.query(half, pos), truth) <= 1.01 * rounding
    assert gap(enc.query(q, pos), exact(q, pos)) < 2e-6
    with pytest.raises(ValueError, match="bfloat16"):
        enc.query(half, pos.bfloat16())


@pytest.mark.parametrize("length", [64, 400])
def test_xpos_centres_a_decoded_query_elsewhere_than_its_keys_and_ours_has_one_centre(length):
    q, k = torch.randn(1, 2, length, D), torch.randn(1, 2, length, D)
    full_q, full_k = ret.RotaryEmbedding(D, use_xpos=True).rotate_queries_and_keys(q, k)
    full = (full_q @ full_k.transpose(-1, -2))[:, :, -1:]
    last_q, last_k = ret.RotaryEmbedding(D, use_xpos=True).rotate_queries_with_cached_keys(q[:, :, -1:], k)
    assert gap(last_q @ last_k.transpose(-1, -2), full) > 0.5, FIXED

    enc, at, to = XPos(head_dim=D, pairing="interleaved"), Layout.decode(length - 1), Layout.dense(length)
    ours = enc.query(q[:, :, -1:], at.pos) @ enc.key(k, to.pos).transpose(-1, -2)
    assert gap(ours, full) < 1e-3


def test_offsets_of_a_grid_are_ignored_once_its_table_is_kept_and_our_positions_are_never_ignored():
    peer = ret.RotaryEmbedding(D // 2)
    plain = peer.get_axial_freqs(4, 6)
    warm = peer.get_axial_freqs(4, 6, offsets=(10, 20))
    asked = ret.RotaryEmbedding(D // 2).get_axial_freqs(4, 6, offsets=(10, 20))
    assert torch.equal(warm, plain), FIXED
    assert gap(warm, asked) > 1

    x, moved = torch.randn(1, 2, 24, D), grid(4, 6) + torch.tensor([10, 20])[:, None, None]
    on_a_grid(x, grid(4, 6))
    assert gap(on_a_grid(x, moved), ret.apply_rotary_emb(asked, x.unflatten(2, (4, 6))).flatten(2, 3)) < 1e-5


def test_offsets_of_a_grid_stay_in_the_table_for_whatever_comes_next_and_ours_leave_no_trace():
    q, pos = torch.randn(1, 2, 6, D // 2), torch.arange(6)
    clean = ret.RotaryEmbedding(D // 2).rotate_queries_or_keys(q)
    peer = ret.RotaryEmbedding(D // 2)
    square = peer.get_axial_freqs(6, 6, offsets=(10, 20))
    columns = ret.RotaryEmbedding(D // 2, cache_if_possible=False).get_axial_freqs(6, 6, offsets=(10, 20))[
        ..., D // 2 :
    ]
    assert gap(square[..., D // 2 :], columns) > 1, (
        FIXED
    )  # in a square even the second axis has the offset of the first
    assert gap(peer.rotate_queries_or_keys(q), clean) > 0.5, FIXED

    enc = RoPE(head_dim=D // 2, pairing="interleaved")
    enc.query(q, pos + 10)
    assert gap(enc.query(q, pos), clean) < 1e-5
