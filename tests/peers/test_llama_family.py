"""transformers' rotary models (Llama, GPT-NeoX, GPT-J) against milepost: the same rotations and attention, and where
theirs go wrong.
"""

from __future__ import annotations

import importlib
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from milepost import Encoding, KVCache, Layout, RoPE, attend
from milepost.angles import cos_sin
from milepost.positions import interpolate
from milepost.scaling import Dynamic, LongRoPE, Staged

transformers = importlib.import_module("transformers")
llama = importlib.import_module("transformers.models.llama.modeling_llama")
neox = importlib.import_module("transformers.models.gpt_neox.modeling_gpt_neox")
gptj = importlib.import_module("transformers.models.gptj.modeling_gptj")

FIXED = "peer fixed it: move to parity"
PLACES = torch.tensor([[0, 1, 2, 255, 256, 257, 2047, 4095], [4095, 1000, 257, 3, 0, 2048, 77, 1]])
WORDS = 97


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def angle_budget(pos: Tensor) -> Tensor:
    """How far cos and sin of the peer may be off at a position, since its frequencies and angles are float32.

    A frequency w = base^-x is off by (4 + x ln base) roundings of 2^-24: pow (2), reciprocal and product (1 each), and
    that of the exponent x. As w (4 + ln 1/w) <= 4 for all w <= 1, the angle is off by at most 4 p 2^-24; cos and sin
    add a few roundings more.
    """
    return (4 * pos.double() + 4) * 2**-24


def gap(a: Tensor, b: Tensor) -> float:
    return (a.double() - b.double()).abs().max().item()


def close(ours: Tensor, theirs: Tensor, pos: Tensor) -> None:
    """Rotated B H L D tensors agree within the peer's angle error (each channel takes it from two) and a rounding."""
    allowed = 2 * ours.abs().max() * angle_budget(pos)[:, None, :, None]
    assert ((ours.double() - theirs.double()).abs() <= allowed).all(), (
        f"off by {gap(ours, theirs):.2e}, allowed {allowed.max():.2e}"
    )


def exact(x: Tensor, pos: Tensor, base: float) -> Tensor:
    """The rotation with half pairing in complex float64 numbers: neither milepost's formula nor the peer's."""
    half = x.shape[-1] // 2
    w = base ** (-torch.arange(half, dtype=torch.float64) / half)
    turn = torch.polar(torch.ones(1, dtype=torch.float64), pos.double()[..., None] * w)[:, None]
    turned = torch.complex(x[..., :half].double(), x[..., half:].double()) * turn
    return torch.cat([turned.real, turned.imag], dim=-1)


def tiny_llama(rope: dict | None = None, *, trained: int = 512, std: float = 0.15) -> torch.nn.Module:
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=WORDS,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=trained,
        rope_parameters=rope or {"rope_type": "default", "rope_theta": 10000.0},
        attn_implementation="eager",
        initializer_range=std,
    )
    return transformers.LlamaForCausalLM(config).eval()


def words(length: int, batch: int = 1) -> Tensor:
    return torch.randint(0, WORDS, (batch, length), generator=torch.Generator().manual_seed(3))


@torch.no_grad()
def whole(model: torch.nn.Module, ids: Tensor, **more: Any) -> Tensor:
    return model(ids, use_cache=False, **more).logits


@torch.no_grad()
def stepwise(model: torch.nn.Module, ids: Tensor, first: int) -> Tensor:
    """Logits of a prefill of ``first`` tokens and one decoded token after another."""
    done = model(ids[:, :first], use_cache=True)
    logits = [done.logits]
    for t in range(first, ids.shape[1]):
        done = model(ids[:, t : t + 1], past_key_values=done.past_key_values, use_cache=True)
        logits.append(done.logits)
    return torch.cat(logits, dim=1)


@contextmanager
def in_place(model: torch.nn.Module, enc: Encoding, at: Layout | None = None, **how: Any) -> Iterator[torch.nn.Module]:
    """The model with milepost's encoding, attention and cache in every layer; dense layouts unless told, ``how`` is
    the cache's policy.
    """

    def forward(
        self: torch.nn.Module, hidden_states: Tensor, past_key_values: Any = None, **_: Any
    ) -> tuple[Tensor, None]:
        B, L, _ = hidden_states.shape
        q, k, v = (
            p(hidden_states).view(B, L, -1, self.head_dim).transpose(1, 2)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        cache = None
        if past_key_values is not None:  # the model hands its own cache on from step to step: ours travels with it
            cache = vars(past_key_values).setdefault("milepost", {}).setdefault(self.layer_idx, KVCache(enc, **how))
        here = at or (cache.next(L) if cache is not None else Layout.dense(L))
        k, v, to = cache.append(k, v, here) if cache is not None else (k, v, here)
        y = attend(q, k, v, enc, at=here, to=to)
        return self.o_proj(y.transpose(1, 2).reshape(B, L, -1)), None

    layers = [layer.self_attn for layer in model.model.layers]
    for layer in layers:
        layer.forward = types.MethodType(forward, layer)
    try:
        yield model
    finally:
        for layer in layers:
            del layer.forward


# -- the same numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("head_dim", "base"), [(64, 10000.0), (128, 5e5), (32, 1e6)])
def test_cos_and_sin_are_those_of_llama(head_dim, base):
    config = transformers.LlamaConfig(
        hidden_size=4 * head_dim,
        num_attention_heads=4,
        head_dim=head_dim,
        rope_parameters={"rope_type": "default", "rope_theta": base},
    )
    enc = RoPE(head_dim=head_dim, base=base)
    theirs = llama.LlamaRotaryEmbedding(config)(torch.zeros(1), PLACES)
    for ours, their in zip(cos_sin(PLACES, enc.inv_freq, torch.float64), theirs, strict=True):
        for half in their.chunk(2, dim=-1):  # theirs is written twice, once for each half of the head
            assert ((ours - half.double()).abs() <= angle_budget(PLACES)[..., None]).all()


@pytest.mark.parametrize("base", [10000.0, 5e5])
def test_queries_and_keys_are_turned_as_in_llama_at_positions_of_each_row(base):
    config = transformers.LlamaConfig(
        hidden_size=256, num_attention_heads=4, rope_parameters={"rope_type": "default", "rope_theta": base}
    )
    q, k = torch.randn(2, 4, 8, 64), torch.randn(2, 2, 8, 64)
    theirs = llama.apply_rotary_pos_emb(q, k, *llama.LlamaRotaryEmbedding(config)(q, PLACES))
    enc = RoPE(head_dim=64, base=base)
    close(enc.query(q, PLACES), theirs[0], PLACES)
    close(enc.key(k, PLACES), theirs[1], PLACES)
    other = RoPE(head_dim=64, base=base, pairing="interleaved").query(q, PLACES)
    assert gap(other, theirs[0]) > 1, "the pairing makes no difference here: this test would prove nothing"


def test_interpolated_positions_are_llama_with_linear_scaling():
    config = transformers.LlamaConfig(
        hidden_size=256,
        num_attention_heads=4,
        rope_parameters={"rope_type": "linear", "factor": 8.0, "rope_theta": 10000.0},
    )
    q = torch.randn(2, 4, 8, 64)
    theirs, _ = llama.apply_rotary_pos_emb(q, q, *llama.LlamaRotaryEmbedding(config)(q, PLACES))
    close(RoPE(head_dim=64).query(q, interpolate(PLACES, 8)), theirs, PLACES)


@pytest.mark.parametrize("share", [0.25, 0.5])
def test_proportional_rotation_is_that_of_transformers(share):
    config = transformers.LlamaConfig(
        hidden_size=256,
        num_attention_heads=4,
        rope_parameters={"rope_type": "proportional", "partial_rotary_factor": share, "rope_theta": 1e6},
    )
    q = torch.randn(2, 4, 8, 64)
    theirs, _ = llama.apply_rotary_pos_emb(q, q, *llama.LlamaRotaryEmbedding(config)(q, PLACES))
    close(RoPE(head_dim=64, base=1e6, rotary=int(64 * share), partial="proportional").query(q, PLACES), theirs, PLACES)


def test_a_llama_attention_layer_gives_the_same_output_and_weights():
    model = tiny_llama(trained=8192)
    layer, rotary = model.model.layers[0].self_attn, model.model.rotary_emb
    x, at = torch.randn(2, 40, 64), Layout.dense(40, start=4000)
    mask = torch.zeros(40, 40).masked_fill(~at.mask()[0, 0], float("-inf"))[None, None]
    theirs, weights = layer(x, position_embeddings=rotary(x, at.pos), attention_mask=mask)
    q, k, v = (p(x).view(2, 40, -1, 16).transpose(1, 2) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    enc = RoPE(head_dim=16)
    ours = attend(q, k, v, enc, at=at, details=True)
    # a logit moves by at most |q| |k| / sqrt(D) times twice the angle error (once for q, once for k); a weight by no
    # more than a logit
    allowed = 2 * (q.norm(dim=-1).max() * k.norm(dim=-1).max() / 4).item() * angle_budget(at.pos).max().item()
    assert gap(ours.weights, weights) <= allowed
    assert gap(layer.o_proj(ours.output.transpose(1, 2).reshape(2, 40, -1)), theirs) <= 4 * allowed


def test_a_whole_llama_keeps_its_logits_with_milepost_in_place_of_its_attention():
    model, ids = tiny_llama(), words(60, batch=2)
    theirs = whole(model, ids)  # at 60 tokens the angle budget is 1.5e-5, which two layers may multiply by a few
    with in_place(model, RoPE(head_dim=16)):
        assert gap(whole(model, ids), theirs) < 1e-4 * theirs.abs().max()
        assert gap(stepwise(model, ids, 20), theirs) < 1e-4 * theirs.abs().max()
    with in_place(model, RoPE(head_dim=16, pairing="interleaved")):
        assert gap(whole(model, ids), theirs) > 0.1


def test_a_left_padded_llama_keeps_its_logits_under_a_padded_layout():
    model, ids = tiny_llama(), words(30, batch=2)
    mask = torch.ones_like(ids)
    mask[0, :11] = 0
    at = Layout.padded(mask)
    theirs = whole(model, ids, attention_mask=mask, position_ids=at.pos)
    with in_place(model, RoPE(head_dim=16), at):
        ours = whole(model, ids, attention_mask=mask, position_ids=at.pos)
    assert gap(ours[mask.bool()], theirs[mask.bool()]) < 1e-4 * theirs.abs().max()


def test_a_packed_layout_is_a_llama_told_of_two_texts_by_position_ids():
    model, ids = tiny_llama(), words(30)
    at = Layout.packed([13, 17])
    theirs = whole(model, ids, position_ids=at.pos)
    with in_place(model, RoPE(head_dim=16), at):
        assert gap(whole(model, ids), theirs) < 1e-4 * theirs.abs().max()


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0])
def test_gpt_neox_turns_a_prefix_of_the_head_in_halves(share):
    config = transformers.GPTNeoXConfig(
        hidden_size=256,
        num_attention_heads=4,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": share},
    )
    q, k = torch.randn(2, 4, 8, 64), torch.randn(2, 4, 8, 64)
    theirs = neox.apply_rotary_pos_emb(q, k, *neox.GPTNeoXRotaryEmbedding(config)(q, PLACES))
    enc = RoPE(head_dim=64, rotary=int(64 * share))
    close(enc.query(q, PLACES), theirs[0], PLACES)
    close(enc.key(k, PLACES), theirs[1], PLACES)
    assert torch.equal(enc.query(q, PLACES)[..., int(64 * share) :], q[..., int(64 * share) :])


def test_a_gpt_neox_attention_layer_gives_the_same_output():
    torch.manual_seed(11)
    config = transformers.GPTNeoXConfig(
        hidden_size=128,
        num_attention_heads=4,
        num_hidden_layers=1,
        intermediate_size=64,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
        attn_implementation="eager",
    )
    layer, rotary = neox.GPTNeoXAttention(config, layer_idx=0).eval(), neox.GPTNeoXRotaryEmbedding(config)
    x, at = torch.randn(2, 30, 128), Layout.dense(30, start=250)
    mask = torch.zeros(30, 30).masked_fill(~at.mask()[0, 0], float("-inf"))[None, None]
    theirs, weights = layer(x, attention_mask=mask, position_embeddings=rotary(x, at.pos))
    q, k, v = layer.query_key_value(x).view(2, 30, 4, 96).transpose(1, 2).chunk(3, dim=-1)
    enc = RoPE(head_dim=32, rotary=8)
    ours = attend(q, k, v, enc, at=at, details=True)
    assert gap(ours.weights, weights) < 1e-5
    assert gap(layer.dense(ours.output.transpose(1, 2).reshape(2, 30, 128)), theirs) < 1e-5


def tiny_gptj(rotary_dim: int | None) -> torch.nn.Module:
    torch.manual_seed(13)
    config = transformers.GPTJConfig(
        n_embd=128, n_head=2, n_layer=1, n_positions=4096, rotary_dim=rotary_dim, attn_pdrop=0.0, resid_pdrop=0.0
    )
    return gptj.GPTJAttention(config, layer_idx=0).eval()


@pytest.mark.parametrize("rotary", [16, 32, 64])
def test_gpt_j_turns_neighbouring_channels_of_a_prefix(rotary):
    table = gptj.create_sinusoidal_positions(4096, rotary)[PLACES]
    sin, cos = table.chunk(2, dim=-1)
    q = torch.randn(2, 2, 8, 64)
    theirs = gptj.apply_rotary_pos_emb(q.transpose(1, 2)[..., :rotary], sin, cos).transpose(1, 2)
    enc = RoPE(head_dim=64, rotary=rotary, pairing="interleaved")
    close(enc.query(q, PLACES)[..., :rotary], theirs, PLACES)
    assert torch.equal(enc.query(q, PLACES)[..., rotary:], q[..., rotary:])
    assert gap(RoPE(head_dim=64, rotary=rotary).query(q, PLACES)[..., :rotary], theirs) > 1


def test_a_gpt_j_attention_layer_gives_the_same_output_at_scattered_positions():
    layer = tiny_gptj(rotary_dim=32)
    x = torch.randn(2, 30, 128)
    pos = torch.stack([torch.randperm(4096)[:30].sort().values, torch.arange(1000, 1030)])
    at = Layout.dense(30).with_positions(pos)
    mask = torch.zeros(30, 30).masked_fill(~at.mask()[0, 0], float("-inf"))[None, None]
    theirs, weights = layer(x, attention_mask=mask, position_ids=pos)
    q, k, v = (p(x).view(2, 30, 2, 64).transpose(1, 2) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    enc = RoPE(head_dim=64, rotary=32, pairing="interleaved")
    ours = attend(q, k, v, enc, at=at, details=True)
    allowed = 2 * (q.norm(dim=-1).max() * k.norm(dim=-1).max() / 8).item() * angle_budget(pos).max().item()
    assert gap(ours.weights, weights) <= allowed
    assert gap(layer.out_proj(ours.output.transpose(1, 2).reshape(2, 30, 128)), theirs) <= 4 * allowed


# -- where the peer is wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("position", "least"), [(131071, 1e-3), (1048575, 1e-2)])
def test_float32_angles_of_llama_drift_at_long_range_and_ours_do_not(position, least):
    config = transformers.LlamaConfig(hidden_size=512, num_attention_heads=4, head_dim=128)
    pos = torch.tensor([[position]])
    q = torch.randn(1, 4, 1, 128)
    truth = exact(q, pos, 10000.0)
    theirs, _ = llama.apply_rotary_pos_emb(q, q, *llama.LlamaRotaryEmbedding(config)(q, pos))
    assert gap(theirs, truth) > least, FIXED
    assert gap(RoPE(head_dim=128).query(q, pos), truth) < 1e-6 * q.abs().max()
    w = RoPE(head_dim=128).inv_freq
    cos, sin = cos_sin(pos, w, torch.float32)
    angle = position * 10000.0 ** (-torch.arange(64, dtype=torch.float64) / 64)
    assert max(gap(cos[0, 0], angle.cos()), gap(sin[0, 0], angle.sin())) < 1e-6


def test_a_jump_in_positions_cuts_the_text_in_transformers_but_not_in_a_layout():
    model = tiny_llama(std=0.3)
    at = Layout.dense(24)
    at = at.with_positions(at.index + 100 * (at.index >= 12))
    x = torch.randn(1, 24, 64)
    changed = x.clone()
    changed[0, 0] += 1.0

    @torch.no_grad()
    def last(x: Tensor, **more: Any) -> Tensor:
        return model(inputs_embeds=x, position_ids=at.pos, use_cache=False, **more).logits[0, -1]

    everything = torch.ones(1, 24, dtype=torch.long)
    assert gap(last(x, attention_mask=everything), last(changed, attention_mask=everything)) > 0.1
    assert gap(last(x), last(changed)) == 0.0, FIXED  # the last token no longer sees the first
    with in_place(model, RoPE(head_dim=16), at):
        ours, ours_changed = last(x), last(changed)
    assert gap(ours, ours_changed) > 0.1
    assert gap(ours, last(x, attention_mask=everything)) < 1e-3


def test_a_llama_without_scaling_decodes_what_it_reads_so_the_next_tests_measure_scaling():
    ids = words(80)
    rope = {"rope_type": "default", "rope_theta": 10000.0}
    assert (
        gap(whole(tiny_llama(rope, trained=32, std=0.3), ids), stepwise(tiny_llama(rope, trained=32, std=0.3), ids, 16))
        < 1e-3
    )


def dynamic_llama() -> torch.nn.Module:
    return tiny_llama({"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}, trained=32, std=0.3)


def test_dynamic_ntk_reads_a_whole_text_as_transformers_does_and_the_hf_policy_decodes_as_it_does():
    enc, ids = RoPE(head_dim=16, scaling=Dynamic(trained=32, factor=4.0)), words(80)
    for length in (20, 32, 33, 80):
        theirs = whole(dynamic_llama(), ids[:, :length])
        for ours in (enc, enc.at(length)):
            with in_place(dynamic_llama(), ours) as model:
                assert gap(whole(model, ids[:, :length]), theirs) < 1e-3
    with in_place(dynamic_llama(), enc, policy="hf") as model:
        assert gap(stepwise(model, ids, 16), stepwise(dynamic_llama(), ids, 16)) < 1e-3


def test_dynamic_ntk_of_transformers_decodes_another_text_than_it_reads_and_ours_by_stage_or_for_one_length_does_not():
    ids = words(80)
    truth = whole(dynamic_llama(), ids)
    assert gap(stepwise(dynamic_llama(), ids, 16), truth) > 1.0, FIXED
    with in_place(
        dynamic_llama(), RoPE(head_dim=16, scaling=Dynamic(trained=32, factor=4.0)), policy="frozen", length=80
    ) as model:
        assert gap(stepwise(model, ids, 16), truth) < 1e-3
    with in_place(dynamic_llama(), RoPE(head_dim=16, scaling=Staged(trained=32, factor=4.0))) as model:
        assert gap(stepwise(model, ids, 16), whole(model, ids)) < 1e-3


def test_dynamic_ntk_of_transformers_remembers_a_longer_text_and_ours_remembers_nothing():
    ids = words(80)
    with in_place(dynamic_llama(), RoPE(head_dim=16, scaling=Dynamic(trained=32, factor=4.0))) as ours:
        first, _, again = (whole(ours, ids[:, :length]) for length in (40, 80, 40))
    assert torch.equal(first, again)
    model = dynamic_llama()
    before, _, after = (whole(model, ids[:, :length]) for length in (40, 80, 40))
    assert gap(first, before) < 1e-3
    assert gap(after, before) > 1.0, FIXED


def test_longrope_of_transformers_mixes_two_spectra_in_one_cache_and_ours_for_one_length_does_not():
    short, long = tuple(1.0 + 0.1 * i for i in range(8)), tuple(1.0 + 0.5 * i for i in range(8))
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
    rope |= {"short_factor": list(short), "long_factor": list(long)}

    def fresh() -> torch.nn.Module:
        return tiny_llama(dict(rope), trained=128, std=0.3)

    ids = words(80)
    truth, mixed = whole(fresh(), ids), stepwise(fresh(), ids, 16)
    assert gap(mixed, truth) > 1.0, FIXED

    enc = RoPE(head_dim=16, scaling=LongRoPE(short, long, trained=32, factor=4.0))
    with pytest.raises(ValueError, match="depends on the length"):
        enc.key(torch.randn(1, 2, 8, 16), torch.arange(8))
    with in_place(fresh(), enc.at(80)) as model:
        assert gap(whole(model, ids), truth) < 1e-3
        assert gap(stepwise(model, ids, 16), truth) < 1e-3
    with in_place(fresh(), enc) as model:  # read whole, the text's own length decides
        for length in (20, 32, 33, 80):
            assert gap(whole(model, ids[:, :length]), whole(fresh(), ids[:, :length])) < 1e-3
    with in_place(fresh(), enc, policy="frozen", length=80) as model:
        assert gap(stepwise(model, ids, 16), truth) < 1e-3
    with in_place(fresh(), enc, policy="hf") as model:  # the same mixture, on request
        assert gap(stepwise(model, ids, 16), mixed) < 1e-3
    with in_place(fresh(), enc.at(32)) as model:
        assert gap(whole(model, ids[:, :32]), whole(fresh(), ids[:, :32])) < 1e-3
