"""RoPE-ID against mpmath's complex numbers, and what its name promises: no angle past the trained ones."""

import math

import mpmath
import pytest
import torch

from milepost import KVCache, Layout, RoPE, RoPEID, attend, build

EPS = torch.finfo(torch.float64).eps
POSITIONS = [0, 1, 5, 255, 4096, 131071, -7]


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize(("head_dim", "rotary", "size"), [(16, None, 8), (6, None, 2), (6, 4, 4), (2, None, 2)])
def test_some_channels_turn_fast_and_the_others_not_at_all(pairing, head_dim, rotary, size):
    enc = RoPEID(head_dim, length=100, rotary=rotary, turns=2.0, pairing=pairing)
    x = torch.randn(1, 2, len(POSITIONS), head_dim, dtype=torch.float64)
    for y in (enc.query(x, torch.tensor(POSITIONS)), enc.key(x, torch.tensor(POSITIONS))):
        assert torch.equal(y[..., size:], x[..., size:])
        for t, p in enumerate(POSITIONS):
            for i in range(size // 2):
                a, b = (i, i + size // 2) if pairing == "half" else (2 * i, 2 * i + 1)
                with mpmath.workdps(40):
                    share = mpmath.mpf(i) / max(1, size // 2 - 1)
                    w = (4 * mpmath.pi / 100) ** share
                    want = complex(mpmath.mpc(x[0, 1, t, a].item(), x[0, 1, t, b].item()) * mpmath.expj(p * w))
                got = complex(y[0, 1, t, a], y[0, 1, t, b])
                assert abs(got - want) <= (8 * abs(p * float(w)) + 8) * EPS * abs(want), (p, i)


@pytest.mark.parametrize("turns", [1.0, 3.0])
def test_a_longer_text_meets_no_angle_that_training_has_not_shown(turns):
    """Within the trained length every pair has come within half a step of every angle; RoPE's slow pairs have not."""
    length = 512
    enc = RoPEID(32, length=length, turns=turns)
    for spectrum, wanted in ((enc.inv_freq, True), (RoPE(32).inv_freq, False)):
        covered = []
        for w in spectrum.tolist():
            seen = sorted((p * w) % (2 * math.pi) for p in range(length))
            widest = max(b - a for a, b in zip(seen, [*seen[1:], seen[0] + 2 * math.pi], strict=True))
            covered.append(widest <= 2 * w)
        assert all(covered) is wanted
    assert math.isclose(enc.inv_freq[-1] * length, 2 * math.pi * turns) and enc.inv_freq[0] == 1


def test_it_is_a_partial_rope_of_a_small_base():
    enc = RoPEID(32, length=1024)
    n = len(enc.inv_freq)
    base = (1024 / (2 * math.pi)) ** (n / (n - 1))
    x, pos = torch.randn(1, 1, 4, 32).double(), torch.tensor([0, 3, 1000, 5000])
    assert (enc.query(x, pos) - RoPE(32, base=base, rotary=16).query(x, pos)).abs().max() <= 1e-11


def test_cached_keys_move_by_one_more_turn():
    enc, n = RoPEID(8, length=64), 9
    q, k, v = (torch.randn(1, 2, n, 8).double() for _ in range(3))
    whole, cache = attend(q, k, v, enc, at=Layout.dense(n)), KVCache(enc)
    for t in range(n):
        row = cache.decode(*(a[:, :, t : t + 1] for a in (q, k, v)))
        assert (row - whole[:, :, t : t + 1]).abs().max() <= 64 * EPS
    pos = torch.arange(n)
    moved = enc.rekey(enc.key(k, pos), pos + 100, enc, pos)
    assert (moved - enc.key(k, pos + 100)).abs().max() <= 512 * EPS
    with pytest.raises(ValueError, match="can't turn a key of rope"):
        enc.rekey(k, pos + 1, RoPE(8), pos)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"head_dim": 8, "length": 6}, "turn by 1.0472 a token, and the fastest turns by 1"),
        ({"head_dim": 8, "length": 64, "turns": 0.0}, "above 0 and at most 1, got turns=0.0"),
        ({"head_dim": 8, "length": 64, "turns": -1.0}, "above 0 and at most 1"),
        ({"head_dim": 8, "length": 64, "rotary": 10}, "from 2 to head_dim=8, got 10"),
        ({"head_dim": 8, "length": 0}, "length must be at least 1"),
        ({"head_dim": 8, "length": 64, "pairing": "other"}, "pairing must be"),
    ],
)
def test_bad_arguments_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        RoPEID(**given)


def test_its_text_builds_it_again():
    text = "rope_id(head_dim=8, length=64, rotary=6, turns=2.0, pairing='interleaved')"
    assert repr(build(text)) == text
