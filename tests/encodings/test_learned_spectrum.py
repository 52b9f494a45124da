"""The learned spectrum against complex numbers with mpmath: pair i is multiplied by exp(i p w_i e^(a_i))."""

import importlib
import math

import mpmath
import pytest
import torch

from milepost import KVCache, Layout, LearnedSpectrum, RoPE, attend, build

EPS = torch.finfo(torch.float64).eps
POSITIONS = [0, 1, 2, 255, 256, 257, 511, 512, 2048, 131071, 1048575]


def learned(*given, **named) -> LearnedSpectrum:
    enc = LearnedSpectrum(*given, **named).double()
    with torch.no_grad():
        enc.alpha.copy_(torch.linspace(-0.7, 0.9, len(enc.alpha)))
    return enc


def pair_of(i: int, size: int, pairing: str) -> tuple[int, int]:
    return (i, i + size // 2) if pairing == "half" else (2 * i, 2 * i + 1)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize(("head_dim", "size"), [(2, 2), (6, 6), (10, 6)])
def test_each_pair_turns_by_its_own_learned_frequency(pairing, head_dim, size):
    enc = learned(head_dim, base=500.0, pairing=pairing, rotary=size)
    x = torch.randn(1, 2, len(POSITIONS), head_dim, dtype=torch.float64)
    for y in (enc.query(x, torch.tensor(POSITIONS)).detach(), enc.key(x, torch.tensor(POSITIONS)).detach()):
        assert torch.equal(y[..., size:], x[..., size:])
        for t, p in enumerate(POSITIONS):
            for i in range(size // 2):
                a, b = pair_of(i, size, pairing)
                with mpmath.workdps(40):
                    w = mpmath.mpf(500) ** (-mpmath.mpf(2 * i) / size) * mpmath.exp(mpmath.mpf(enc.alpha[i].item()))
                    want = complex(mpmath.mpc(x[0, 1, t, a].item(), x[0, 1, t, b].item()) * mpmath.expj(p * w))
                    angle = float(p * w)
                got = complex(y[0, 1, t, a], y[0, 1, t, b])
                assert abs(got - want) <= (4 * angle + 8) * EPS * abs(want), (p, i)  # power, exp, two products


def test_nothing_learned_is_rope_to_the_last_bit():
    x, pos = torch.randn(1, 2, 6, 16), torch.tensor([0, 1, 257, 4096, 131071, 1048575])
    for pairing in ("half", "interleaved"):
        rope = RoPE(16, base=5e5, pairing=pairing)
        assert torch.equal(LearnedSpectrum(16, base=5e5, pairing=pairing).query(x, pos), rope.query(x, pos))


def test_a_scaling_is_below_what_is_learned_and_its_temperature_is_the_querys():
    text = "scaling=yarn(factor=8.0, trained=64)"
    plain, enc = (build(f"{name}(head_dim=16, pairing='half', {text})") for name in ("rope", "learned_spectrum"))
    assert enc.spectrum == plain.spectrum and enc.spectrum.temperature > 1 and not enc.rotation
    x, pos = torch.randn(1, 1, 3, 16), torch.tensor([0, 100, 511])
    assert torch.equal(enc.query(x, pos), plain.query(x, pos)) and torch.equal(enc.key(x, pos), plain.key(x, pos))


def test_what_is_learned_stays_exact_in_every_cast():
    enc = LearnedSpectrum(16)
    with torch.no_grad():
        enc.alpha.copy_(torch.linspace(-0.7, 0.9, 8))
    before, pos, x = enc.frequencies(), torch.tensor([131071]), torch.randn(1, 1, 1, 16)
    want = enc.query(x, pos)
    for cast in (torch.bfloat16, torch.float16):
        assert torch.equal(enc.to(cast).frequencies(), before) and enc.alpha.dtype == torch.float32
        assert torch.equal(enc.query(x, pos), want)
    rounded = before * (enc.alpha.bfloat16().double() - enc.alpha.double()).exp()
    assert (131071 * (rounded - before)).abs().max() > 1  # what the cast would have done
    assert LearnedSpectrum(16).double().alpha.dtype == torch.float64


def test_a_step_of_training_is_seen_by_the_next_call():
    enc, x, pos = LearnedSpectrum(8), torch.randn(1, 1, 4, 8), torch.arange(4)
    first = enc.query(x, pos)
    with torch.no_grad():
        enc.alpha += 0.5
    assert not torch.equal(enc.query(x, pos), first)


def test_a_cache_decodes_what_one_pass_reads():
    enc, n = learned(8), 12
    q, k, v = (torch.randn(1, 2, n, 8, dtype=torch.float64) for _ in range(3))
    whole, cache = attend(q, k, v, enc, at=Layout.dense(n)), KVCache(enc)
    for t in range(n):
        row = cache.decode(q[:, :, t : t + 1], k[:, :, t : t + 1], v[:, :, t : t + 1])
        assert (row - whole[:, :, t : t + 1]).abs().max() <= 64 * EPS


@pytest.mark.parametrize("n", [1, 300])
def test_mistral_large_4_turns_as_we_do(n):
    peer = importlib.import_module("transformers.models.mistral_large4.modeling_mistral_large4")
    transformers = importlib.import_module("transformers")
    rope = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2048.0, "original_max_position_embeddings": 512}
    config = transformers.MistralLarge4TextConfig(
        num_hidden_layers=4, qk_rope_head_dim=64, rope_parameters=rope | {"attention_factor": 1.0}
    )
    theirs = peer.MistralLarge4TextRotaryEmbedding(config)
    size = 2 * len(theirs.inv_freq)
    ours = build(f"learned_spectrum(head_dim={size}, scaling=yarn(factor=2048.0, trained=512, attention_factor=1.0))")
    alpha = torch.linspace(-1.0, 1.0, size // 2)
    ours.load_state_dict({"alpha": alpha})
    theirs.alpha.copy_(alpha)
    pos = torch.arange(n)[None] * 7
    q, k = (torch.randn(1, 2, n, size) for _ in range(2))
    got = [ours.query(q, pos).detach(), ours.key(k, pos).detach()]
    want = peer.apply_rotary_pos_emb_interleave(q, k, *theirs(q, pos))
    for mine, other, x in zip(got, want, (q, k), strict=True):
        parts = torch.cat([mine[..., 0::2], mine[..., 1::2]], dim=-1)  # they give the halves one after the other
        fastest = 7 * n * math.e  # the largest angle; their float32 is off by 6 roundings of it
        assert (parts - other).abs().max() <= (6 * fastest + 8) * 2**-24 * 2 * x.abs().max()
        assert n == 1 or (parts - torch.cat([x[..., 0::2], x[..., 1::2]], dim=-1)).abs().max() > 0.5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"head_dim": 7}, "must be even"),
        ({"head_dim": 8, "rotary": 10}, "from 2 to head_dim=8, got 10"),
        ({"head_dim": 8, "pairing": "other"}, "pairing must be"),
        ({"head_dim": 8, "base": 0.5}, "base must be"),
        ({"head_dim": 8, "scaling": "yarn"}, "scaling must be"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        LearnedSpectrum(**arguments)
    with pytest.raises(ValueError, match="does not depend on the length"):
        build("learned_spectrum(head_dim=8, scaling=dynamic(trained=8))")


def test_its_text_builds_it_again():
    text = "learned_spectrum(head_dim=8, base=500.0, pairing='half', rotary=4, scaling=linear(factor=2.0))"
    assert repr(build(text)) == text
