"""Scalings at work: a temperature where only a part of the head turns, and LongRoPE with every policy of the cache."""

import math

import pytest
import torch
from torch import Tensor

from milepost import KVCache, Layout, RoPE, attend
from milepost.scaling import Dynamic, Hybrid, Linear, LongRoPE, YaRN

EPS = 2.0**-52
SAME = 1e-12  # outputs of order 1 from logits of order 10: a few thousand roundings of float64 at most
L = 32
SHORT = tuple(1.0 + 0.1 * i for i in range(6))
LONG = tuple(1.5 + 0.9 * i for i in range(6))


def randn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# -- a temperature ---------------------------------------------------------------------------------------------------

PLACES = [0, 1, 255, 256, 257, 4095, 4096, 4097, 16384, 131071, 1048575]


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize(("head_dim", "rotary", "partial", "touched"), [
    (16, 16, "prefix", 16), (16, 12, "prefix", 12), (128, 96, "prefix", 96), (80, 32, "prefix", 32), (16, 8, "proportional", 16),
])  # fmt: skip
def test_a_temperature_multiplies_the_channels_among_which_pairs_are_formed(
    head_dim, rotary, partial, touched, pairing
):
    hot = RoPE(head_dim=head_dim, rotary=rotary, partial=partial, pairing=pairing, scaling=YaRN(4.0, 4096))
    cold = RoPE(
        head_dim=head_dim,
        rotary=rotary,
        partial=partial,
        pairing=pairing,
        scaling=YaRN(4.0, 4096, attention_factor=1.0),
    )
    x, at = randn(1, 2, len(PLACES), head_dim, seed=1), torch.tensor(PLACES)
    m = 0.1 * math.log(4) + 1
    turned = cold.query(x, at)
    assert torch.allclose(hot.query(x, at)[..., :touched], turned[..., :touched] * (m * m), rtol=4 * EPS, atol=0)
    assert torch.equal(hot.query(x, at)[..., touched:], x[..., touched:])
    assert torch.equal(hot.key(x, at), turned) and torch.equal(cold.key(x, at), turned)


@pytest.mark.parametrize("rotary", [16, 12, 8])
def test_logits_are_those_of_m_on_cos_and_sin_of_both_sides(rotary):
    """In complex numbers: q and k each times m, pair by pair; what does not turn, as it is."""
    half = rotary // 2
    factors = tuple(1.5 + 0.9 * i for i in range(half))
    enc = RoPE(head_dim=16, rotary=rotary, scaling=LongRoPE(factors, (3.0,) * half, 4096, 32.0, length=100))
    q, k, at = randn(1, 1, len(PLACES), 16, seed=2), randn(1, 1, len(PLACES), 16, seed=3), torch.tensor(PLACES)
    m = math.sqrt(1 + math.log(32) / math.log(4096))
    got = (enc.query(q, at) @ enc.key(k, at).transpose(-1, -2))[0, 0]
    for a, p in enumerate(PLACES):
        for b, n in enumerate(PLACES):
            want = sum(q[0, 0, a, c].item() * k[0, 0, b, c].item() for c in range(rotary, 16))
            for i in range(half):
                one, two = (complex(x[i].item(), x[half + i].item()) for x in (q[0, 0, a], k[0, 0, b]))
                angle = (p - n) * 10000.0 ** (-2 * i / rotary) / factors[i]
                want += m * m * (one * two.conjugate() * complex(math.cos(angle), math.sin(angle))).real
            # each of the two angles is off by at most 2 roundings of its size, a product by no more than |q| |k| times
            # that
            room = (4 * (p + n) + 64) * EPS * m * m * (q[0, 0, a].norm() * k[0, 0, b].norm()).item()
            assert abs(got[a, b].item() - want) <= room, (p, n)


def test_attention_has_the_temperature_of_its_scaling():
    """A temperature is a sharper softmax: the same as a larger scale, where the whole head turns."""
    hot, cold = (RoPE(head_dim=16, scaling=YaRN(8.0, 64, attention_factor=m)) for m in (1.5, 1.0))
    q, k, v = (randn(1, 2, 40, 16, seed=s) for s in (4, 5, 6))
    torch.arange(40)
    sharp = attend(q, k, v, hot)
    assert (sharp - attend(q, k, v, cold, scale=1.5**2 / 4)).abs().max() < SAME
    assert (sharp - attend(q, k, v, cold)).abs().max() > 1e-2


# -- LongRoPE and the cache ------------------------------------------------------------------------------------------


def encoding(**more) -> RoPE:
    return RoPE(head_dim=16, rotary=12, scaling=LongRoPE(SHORT, LONG, trained=L, factor=4.0, **more))


def text(length: int = 80) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(randn(2, 2, length, 16, seed=s) for s in (7, 8, 9))


def fully(enc: RoPE, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A whole text with a plain encoding, by the definition."""
    at = Layout.dense(q.shape[2])
    return attend(q, k, v, enc, at=at, backend="reference")


def decoded(cache: KVCache, q: Tensor, k: Tensor, v: Tensor, first: int = 20) -> Tensor:
    cuts = [(0, first), (first, first + 7), *((t, t + 1) for t in range(first + 7, q.shape[2]))]
    return torch.cat([cache.decode(q[:, :, a:e], k[:, :, a:e], v[:, :, a:e]) for a, e in cuts], dim=2)


def test_the_default_policy_says_that_it_can_not_run_longrope():
    for enc in (encoding(), RoPE(head_dim=16, scaling=Hybrid((4,), (None, Dynamic(L, 4.0))))):
        with pytest.raises(ValueError, match=r'can not be run by stages; choose policy="recompute", "frozen" or "hf"'):
            KVCache(enc)


def test_a_whole_text_is_turned_for_its_own_length():
    q, k, v = text()
    for length, list_of in ((L - 1, L), (L, L), (L + 1, L + 1), (80, L + 1)):
        cut = q[:, :, :length], k[:, :, :length], v[:, :, :length]
        assert (attend(*cut, encoding()) - fully(encoding().at(list_of), *cut)).abs().max() < SAME
    assert (attend(q, k, v, encoding()) - fully(encoding().at(L), q, k, v)).abs().max() > 0.1


def test_recomputed_keys_give_each_token_what_a_full_pass_up_to_it_gives():
    q, k, v = text()
    got = decoded(KVCache(encoding(), policy="recompute"), q, k, v)
    for t in (0, 1, 19, 26, 27, L - 2, L - 1, L, L + 1, 63, 79):
        length = 20 if t < 20 else 27 if t < 27 else t + 1  # the tokens that had come when this one was attended
        want = fully(encoding().at(length), q[:, :, :length], k[:, :, :length], v[:, :, :length])[:, :, t]
        assert (got[:, :, t] - want).abs().max() < SAME, t


@pytest.mark.parametrize("length", [L, L + 1, 80])
def test_frozen_is_a_full_pass_for_the_declared_length(length):
    q, k, v = text()
    got = decoded(KVCache(encoding(), policy="frozen", length=length), q, k, v)
    assert (got - fully(encoding().at(length), q, k, v)).abs().max() < SAME
    other = fully(encoding().at(L + 1 if length == L else L), q, k, v)
    assert (got - other).abs().max() > 0.1
    fixed = encoding(length=length)  # the same, said in the scaling: nothing waits, and the default policy takes it
    assert (decoded(KVCache(fixed), q, k, v) - got).abs().max() < SAME


def test_hf_keeps_each_key_as_it_was_turned_when_it_came():
    """Right up to the trained length; past it, short keys under long queries: the mixture that transformers
    computes.
    """
    q, k, v = text()
    got = decoded(KVCache(encoding(), policy="hf"), q, k, v)
    short, long = encoding().at(L), encoding().at(L + 1)
    assert (got[:, :, :L] - fully(short, q, k, v)[:, :, :L]).abs().max() < SAME
    at = torch.arange(80)
    mixed = torch.where((at < L)[:, None], short.key(k, at), long.key(k, at))
    for t in (L, L + 1, 63, 79):
        logits = long.query(q[:, :, t : t + 1], at[t : t + 1]) @ mixed[:, :, : t + 1].transpose(-1, -2) / 4
        assert (got[:, :, t : t + 1] - logits.softmax(-1) @ v[:, :, : t + 1]).abs().max() < SAME
    assert (got[:, :, L:] - fully(long, q, k, v)[:, :, L:]).abs().max() > 0.1


def test_rows_of_a_batch_switch_each_by_its_own_length():
    q, k, v = text(60)
    mask = torch.ones(2, 60, dtype=torch.long)
    mask[1, :35] = 0  # the second text has 25 tokens: short
    got = attend(q, k, v, encoding(), at=Layout.padded(mask))
    assert (got[:1] - fully(encoding().at(60), q[:1], k[:1], v[:1])).abs().max() < SAME
    one = tuple(x[1:, :, 35:] for x in (q, k, v))
    assert (got[1:, :, 35:] - fully(encoding().at(25), *one)).abs().max() < SAME
    assert (got[1:, :, 35:] - fully(encoding().at(60), *one)).abs().max() > 0.1


def test_a_hybrid_that_waits_is_recomputed_too():
    enc = RoPE(head_dim=16, scaling=Hybrid((2, 5), (None, Dynamic(L, 4.0), Linear(2.0))))
    q, k, v = text(48)
    got = decoded(KVCache(enc, policy="recompute"), q, k, v)
    assert (got[:, :, -1] - fully(enc.at(48), q, k, v)[:, :, -1]).abs().max() < SAME
    assert (got[:, :, -1] - fully(enc.at(L), q, k, v)[:, :, -1]).abs().max() > 1e-3
