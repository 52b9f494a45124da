"""FoPE against plain sums: every pair by its own loop over frequencies, in float64 with exact angles of mpmath."""

import math

import mpmath
import pytest
import torch

from milepost import FoPE, Layout, RoPE, attend, build

EPS = torch.finfo(torch.float64).eps
POSITIONS = [0, 1, 2, 63, 64, 65, 255, 256, 257, 131071, 1048575]


def mixed(enc: FoPE, head: int, p: int) -> list[tuple[float, float]]:
    """c and s of every pair, by the paper's sums; a pair that is cut is left as it is, or padded as released code
    does.
    """
    pairs = enc.head_dim // 2
    speeds = [mpmath.mpf(enc.base) ** (-mpmath.mpf(k) / pairs) for k in range(pairs)]
    fast = [w for w in speeds if w * enc.length > 2 * mpmath.pi]
    cut = (1.0, 0.0) if enc.clipped == "still" else (1.0, 1.0)
    made = []
    for d in range(pairs):
        if d >= len(fast):
            made.append(cut)
            continue
        c = sum(enc.cos_mix[head, k, d].item() * mpmath.cos(p * w) for k, w in enumerate(fast))
        s = sum(enc.sin_mix[head, k, d].item() * mpmath.sin(p * w) for k, w in enumerate(fast))
        made.append((float(c), float(s)))
    return made


@pytest.mark.parametrize("clipped", ["still", "doubled"])
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_each_pair_is_multiplied_by_its_sums(pairing, clipped):
    enc = FoPE(2, 12, length=64, base=500.0, gain=0.8, pairing=pairing, clipped=clipped).double()
    assert len(enc.inv_freq) == 3  # 1, 0.35, 0.13; the next, 0.045, needs 140 tokens for a turn
    x = torch.randn(1, 2, len(POSITIONS), 12, dtype=torch.float64)
    for y in (enc.query(x, torch.tensor(POSITIONS)), enc.key(x, torch.tensor(POSITIONS))):
        for h in range(2):
            for t, p in enumerate(POSITIONS):
                for d, (c, s) in enumerate(mixed(enc, h, p)):
                    a, b = (d, d + 6) if pairing == "half" else (2 * d, 2 * d + 1)
                    one, two = x[0, h, t, a].item(), x[0, h, t, b].item()
                    room = (4 * p + 32) * EPS * (abs(one) + abs(two)) * 4  # three angles, each with a weight up to 4
                    assert abs(y[0, h, t, a].item() - (one * c - two * s)) <= room, (h, p, d)
                    assert abs(y[0, h, t, b].item() - (one * s + two * c)) <= room, (h, p, d)


def test_without_noise_and_with_every_pair_it_is_rope():
    x, pos = torch.randn(1, 2, 5, 8), torch.tensor([0, 1, 257, 4095, 131071])
    enc = FoPE(2, 8, length=1 << 30, gain=0.0)
    assert len(enc.inv_freq) == 4
    torch.testing.assert_close(enc.query(x, pos), RoPE(8).query(x, pos), rtol=0, atol=2**-20)


def test_what_is_cut_stands_still_and_the_padding_of_released_code_doubles_it():
    q, k = (torch.randn(1, 1, 3, 8, dtype=torch.float64) for _ in range(2))
    pos = torch.tensor([0, 77, 131071])
    still, doubled = (FoPE(1, 8, length=7, clipped=word).double() for word in ("still", "doubled"))
    slow = [1, 2, 3, 5, 6, 7]  # all but the fastest pair
    assert torch.equal(still.key(k, pos)[..., slow], k[..., slow])
    here = (doubled.query(q, pos)[..., slow] * doubled.key(k, pos)[..., slow]).sum(-1)
    want = 2 * (q[..., slow] * k[..., slow]).sum(-1)
    assert (here - want).abs().max() <= 32 * EPS * want.abs().max()


def test_a_mix_is_no_rotation_and_sees_where_both_are():
    enc = FoPE(1, 8, length=64, gain=0.5).double()
    q, k, v = (torch.randn(1, 1, 5, 8, dtype=torch.float64) for _ in range(3))
    here, there = (attend(q, k, v, enc, at=Layout.dense(5, start=start)) for start in (0, 1000))
    assert (here - there).abs().max() > 1e-3
    assert (enc.query(q, torch.arange(5) + 9).norm(dim=-1) - q.norm(dim=-1)).abs().max() > 1e-3


def test_query_heads_share_the_table_of_their_key_head():
    enc = FoPE(4, 8, length=64, key_heads=2).double()
    assert enc.cos_mix.shape == (2, 2, 2)
    x, pos = torch.randn(1, 1, 3, 8, dtype=torch.float64), torch.tensor([5, 77, 300])
    q, k = enc.query(x.expand(-1, 4, -1, -1), pos), enc.key(x.expand(-1, 2, -1, -1), pos)
    for h in range(4):
        assert torch.equal(q[:, h], k[:, h // 2])
    assert not torch.equal(k[:, 0], k[:, 1])


def test_the_tables_are_drawn_as_published_and_are_not_trained():
    torch.manual_seed(0)
    enc = FoPE(64, 64, length=1 << 30, gain=0.3)
    noise = enc.cos_mix - torch.eye(32)
    assert abs(noise.std().item() * math.sqrt(32) / 0.3 - 1) < 0.02
    assert not torch.equal(enc.cos_mix, enc.sin_mix) and not any(p.requires_grad for p in enc.parameters())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"head_dim": 7}, "must be even"),
        ({"heads": 0}, "heads must be at least 1"),
        ({"length": 6}, "no pair of channels closes a circle within length=6"),
        ({"gain": -1.0}, "gain must be from 0 to 100, got -1.0"),
        ({"clipped": "zero"}, "clipped must be"),
        ({"pairing": "other"}, "pairing must be"),
        ({"key_heads": 3}, "must share 2 query heads evenly, got 3"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        FoPE(**{"heads": 2, "head_dim": 8, "length": 64} | arguments)


def test_other_heads_are_refused():
    with pytest.raises(ValueError, match="4 heads that share 2, got 3 heads"):
        FoPE(4, 8, 64, key_heads=2).query(torch.zeros(1, 3, 1, 8), torch.tensor([1]))


def test_its_text_builds_it_again():
    text = "fope(heads=4, head_dim=8, length=64, base=500.0, gain=0.1, pairing='interleaved', clipped='doubled', key_heads=2)"
    assert repr(build(text)) == text
