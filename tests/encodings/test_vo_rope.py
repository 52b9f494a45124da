"""VO-RoPE against complex numbers and DeepSeek-V4's own rotation in transformers."""

import cmath

import pytest
import torch

from milepost import KVCache, Layout, VORoPE, attend, build

EPS = 2.0**-52


@pytest.mark.parametrize(("i", "start"), [(0, 0), (1, 0), (7, 0), (7, 250), (7, 131064), (7, 1048568)])
def test_the_output_is_values_turned_by_the_signed_distance(i, start):
    enc = VORoPE(head_dim=6, rotary=4, base=100.0)
    q, k, v = (torch.randn(1, 2, 8, 6, dtype=torch.float64) for _ in range(3))
    at = Layout.dense(8, start=start)
    done = attend(q, k, v, enc, at=at, details=True)
    for h in range(2):
        weights, values = done.weights[0, h, i].tolist(), v[0, h].tolist()
        wanted = [sum(w * row[c] for w, row in zip(weights, values, strict=True)) for c in (0, 1)]
        for pair in range(2):
            speed = 100.0 ** (-pair / 2)
            number = sum(
                weights[j] * complex(values[j][2 + 2 * pair], values[j][3 + 2 * pair]) * cmath.exp(1j * speed * (j - i))
                for j in range(i + 1)
            )
            wanted += [number.real, number.imag]
        assert done.output[0, h, i].tolist() == pytest.approx(wanted, abs=64 * EPS * (start + 8))


def test_one_token_gets_its_own_value_back_and_two_do_not():
    enc = VORoPE(head_dim=4)
    v = torch.randn(1, 1, 2, 4, dtype=torch.float64)
    zero = torch.zeros_like(v)
    out = attend(zero, zero, v, enc, at=Layout.dense(2, start=1000))
    assert (out[:, :, 0] - v[:, :, 0]).abs().max() < 1e-12
    assert (out[:, :, 1] - v.mean(dim=2)).abs().max() > 1e-2


def test_rope_and_vo_rope_are_the_attention_of_deepseek_v4():
    """One vector is key and value there, turned in its last channels; the output is turned back with -sin."""
    from transformers.models.deepseek_v4.modeling_deepseek_v4 import apply_rotary_pos_emb

    heads, size, rotary, n = 3, 10, 4, 30
    q, kv = torch.randn(1, heads, n, size), torch.randn(1, 1, n, size)
    angle = torch.arange(n)[:, None] * 10000.0 ** (-torch.arange(0, rotary, 2) / rotary)
    cos, sin = angle.cos()[None], angle.sin()[None]
    turned_q, turned = apply_rotary_pos_emb(q, cos, sin), apply_rotary_pos_emb(kv, cos, sin)
    logits = (turned_q @ turned.mT) * size**-0.5
    logits = logits.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
    wanted = apply_rotary_pos_emb(logits.softmax(-1) @ turned, cos, -sin)
    enc = build(f"rope(rotary={rotary}, pairing='interleaved') + vo_rope(rotary={rotary})", head_dim=size)
    front = torch.arange(size).roll(rotary)  # our rope turns the first channels, and a product does not see the order
    out = attend(q[..., front], kv[..., front], kv, enc)
    assert (out - wanted).abs().max() < 16 * n * 2.0**-24


@pytest.mark.parametrize("spec", ["vo_rope", "rope + vo_rope", "alibi + vo_rope"])
@torch.no_grad()
def test_a_cache_keeps_turned_values_and_turns_them_again_when_it_moves(spec):
    enc = build(spec, heads=2, head_dim=8)
    q, k, v = (torch.randn(1, 2, 20, 8, dtype=torch.float64) for _ in range(3))
    cache = KVCache(enc)
    cache.append(k[:, :, :15], v[:, :, :15])
    assert (cache.v - v[:, :, :15]).abs().max() > 0.1
    cache.evict(sinks=2, window=6)
    left = [0, 1, *range(9, 20)]
    whole = attend(q[:, :, left], k[:, :, left], v[:, :, left], enc)
    row = cache.decode(q[:, :, 15:], k[:, :, 15:], v[:, :, 15:])
    assert (row - whole[:, :, -5:]).abs().max() < 1e-13
    cache.shift(1000)
    one = [t[:, :, 15:16] for t in (q, k, v)]
    after = cache.decode(*one)
    left = [0, 1, *range(9, 20), 15]
    again = attend(q[:, :, left], k[:, :, left], v[:, :, left], enc)
    assert (after - again[:, :, -1:]).abs().max() < 1e-12


def test_turned_values_are_not_turned_twice():
    enc, v = VORoPE(head_dim=4), torch.randn(1, 1, 3, 4)
    at = Layout.dense(3)
    turned = enc.value(v, at.pos)
    with pytest.raises(ValueError, match="v was turned already"):
        attend(v, v, turned, enc, at=at)
    assert torch.equal(attend(v, v, turned, enc, at=at, turned=True), attend(v, v, v, enc, at=at))
    with pytest.raises(ValueError, match="turned for positions 0 to 2"):
        attend(v, v, turned, enc, at=Layout.dense(3, start=1), turned=True)
