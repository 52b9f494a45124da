"""x-transformers against milepost: rotations, biases, CoPE, embeddings and whole decoders; and two options that its
cache gets wrong.
"""

from __future__ import annotations

import importlib
import math
import types

import pytest
import torch
from torch import Tensor

from milepost import T5, ALiBi, CoPE, Encoding, Layout, Learned, RoPE, Sinusoidal, XPos, attend
from milepost.encodings.alibi import slopes
from milepost.positions import interpolate

xt = importlib.import_module("x_transformers.x_transformers")

FIXED = "peer fixed it: move to parity"
H, D, C = 6, 64, 96
PLACES = torch.tensor([[0, 1, 2, 255, 256, 257, 2047, 4095], [4095, 1000, 257, 3, 0, 2048, 77, 1]])


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
    allowed = 2 * ours.abs().max() * angle_budget(pos)[:, None, :, None]
    assert ((ours.double() - theirs.double()).abs() <= allowed).all(), (
        f"off by {gap(ours, theirs):.2e}, allowed {allowed.max():.2e}"
    )


def bias(enc: Encoding, at: Layout, to: Layout, heads: int = H) -> Tensor:
    """B H I J"""
    return enc.bias(torch.arange(heads)[:, None, None], at.pos[:, None, :, None], to.pos[:, None, None, :])


# -- rotations --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rotary", [16, 32, 64])
def test_a_prefix_of_the_head_is_turned_in_neighbouring_channels(rotary):
    q = torch.randn(2, H, 8, D)
    theirs = xt.apply_rotary_pos_emb(q, *xt.RotaryEmbedding(rotary)(PLACES))
    close(RoPE(head_dim=D, rotary=rotary, pairing="interleaved").query(q, PLACES), theirs, PLACES)
    assert gap(RoPE(head_dim=D, rotary=rotary, pairing="half").query(q, PLACES), theirs) > 1


def test_interpolated_positions_and_a_rescaled_base_are_its_two_ways_to_stretch():
    q = torch.randn(2, H, 8, D)
    theirs = xt.apply_rotary_pos_emb(q, *xt.RotaryEmbedding(D, interpolation_factor=4.0)(PLACES))
    close(RoPE(head_dim=D, pairing="interleaved").query(q, interpolate(PLACES, 4)), theirs, PLACES)
    theirs = xt.apply_rotary_pos_emb(q, *xt.RotaryEmbedding(D, base_rescale_factor=4.0)(PLACES))
    close(RoPE(head_dim=D, base=10000.0 * 4 ** (D / (D - 2)), pairing="interleaved").query(q, PLACES), theirs, PLACES)


@pytest.mark.parametrize("length", [2, 257, 1500])
@pytest.mark.parametrize("scale_base", [512, 200])
def test_logits_of_xpos_agree_although_the_centres_do_not(length, scale_base):
    q, k = torch.randn(1, 2, length, D), torch.randn(1, 2, length, D)
    freqs, scale = xt.RotaryEmbedding(D, use_xpos=True, scale_base=scale_base).forward_from_seq_len(length)
    theirs = xt.apply_rotary_pos_emb(q, freqs, scale) @ xt.apply_rotary_pos_emb(k, freqs, scale**-1).transpose(-1, -2)
    enc, at = XPos(head_dim=D, scale_base=float(scale_base), pairing="interleaved"), Layout.dense(length)
    ours = enc.query(q, at.pos) @ enc.key(k, at.pos).transpose(-1, -2)
    seen = at.mask().expand_as(ours)
    # twice the angle error, and float32 powers z^p whose exponents (up to length / scale_base times ln 3.5) round too
    allowed = (
        (2 * angle_budget(at.pos).max() + 32 * (1 + length / scale_base) * 2**-24)
        * q.norm(dim=-1).max()
        * k.norm(dim=-1).max()
    )
    assert gap(ours[seen], theirs[seen]) <= allowed
    assert gap(RoPE(head_dim=D, pairing="interleaved").query(q, at.pos), enc.query(q, at.pos)) > 1e-3


# -- biases -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [1, 2, 8, 12, 14, 40, 71])
def test_slopes_of_alibi_are_the_same_for_any_number_of_heads(heads):
    theirs = torch.tensor(xt.AlibiPositionalBias._get_slopes(heads), dtype=torch.float64)
    assert gap(ALiBi(heads=heads).past_slopes / theirs, torch.ones(heads)) < 1e-12


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (300, 300), (1, 258), (7, 2048)])
def test_the_bias_of_alibi_is_the_same_on_both_sides_and_for_the_last_rows(queries, keys):
    theirs = xt.AlibiPositionalBias(H)(queries, keys)
    at, to = Layout.decode(keys - queries, queries), Layout.dense(keys)
    ours = bias(ALiBi(heads=H, mode="symmetric"), at, to)
    assert gap(ours, theirs) <= 2 * keys * 2**-24  # float32 slopes


def test_the_bias_of_alibi_is_the_same_at_positions_of_each_row():
    theirs = xt.AlibiPositionalBias(H).forward_custom_pos(PLACES)
    at = Layout.dense(8).with_positions(PLACES)
    assert gap(bias(ALiBi(heads=H, mode="symmetric"), at, at), theirs) <= 2 * 4095 * 2**-24


def test_heads_without_alibi_are_heads_of_slope_zero():
    theirs = xt.AlibiPositionalBias(4, total_heads=H)(50, 50)
    at = Layout.dense(50)
    ours = bias(ALiBi(heads=H, slopes=(*slopes(4), 0.0, 0.0)), at, at)
    assert gap(ours[0], theirs) <= 2 * 50 * 2**-24


def relative(causal: bool) -> tuple[torch.nn.Module, T5]:
    """Its T5 bias, whose table it multiplies by sqrt(D), and ours with the product in the table."""
    theirs = xt.RelativePositionBias(scale=D**0.5, causal=causal, heads=H)
    enc = T5(heads=H, mode="causal" if causal else "bidirectional")
    with torch.no_grad():
        enc.table.copy_(theirs.relative_attention_bias.weight.T * D**0.5)
    return theirs, enc


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (300, 300), (1, 258), (7, 2048)])
def test_the_bias_of_t5_is_the_same_for_squares_and_for_the_last_rows(causal, queries, keys):
    theirs, enc = relative(causal)
    at, to = Layout.decode(keys - queries, queries), Layout.dense(keys)
    seen = at.mask(to, causal=causal)[0, 0]
    assert gap(bias(enc, at, to)[0][:, seen], theirs(queries, keys)[:, seen]) < 1e-5


# -- content-dependent ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("positions", [4, 16, 64])
@pytest.mark.parametrize("length", [1, 3, 90])
def test_cope_counts_and_interpolates_alike(positions, length):
    theirs = xt.CoPE(dim=D, heads=H, max_pos=positions)
    torch.nn.init.normal_(theirs.pos_emb, std=0.3)
    enc = CoPE(heads=H, head_dim=D, positions=positions)
    with torch.no_grad():
        enc.e.copy_(theirs.pos_emb[None])
    q, k, at = torch.randn(2, H, length, D), torch.randn(2, H, length, D), Layout.dense(length)
    seen = at.mask().expand(2, H, length, length)
    logits = (q @ k.transpose(-1, -2) * D**-0.5).masked_fill(~seen, -torch.finfo(torch.float32).max)
    expected = logits + theirs(q, logits)
    ours = attend(q, k, k, enc, at=at, details=True).logits
    # a count of up to `length` gates rounds by as many times 2^-24, and the table's steps |q · (e - e')| multiply it
    steps = (q @ theirs.pos_emb.T).diff(dim=-1).abs().max().item()
    assert gap(ours[seen], expected[seen]) <= (length * steps + 32) * 2**-22


# -- embeddings -------------------------------------------------------------------------------------------------


def test_scaled_sinusoids_are_sines_then_cosines_times_a_learned_number():
    theirs = xt.ScaledSinusoidalEmbedding(C)
    torch.nn.init.normal_(theirs.scale)
    pos = PLACES[0]
    ours = Sinusoidal(width=C, order="halves").code(pos)
    code = theirs(torch.zeros(1, 8, C), pos=pos).double() / theirs.scale.double()
    assert ((ours - code).abs() <= angle_budget(pos)[:, None] + 4 * 2**-24).all()


def test_its_learned_table_is_ours_times_one_over_the_root_of_the_width():
    theirs = xt.AbsolutePositionalEmbedding(C, 300)
    enc = Learned(length=300, width=C)
    with torch.no_grad():
        enc.table.copy_(theirs.emb.weight * C**-0.5)
    x, at = torch.randn(2, 40, C), Layout.decode(256, 40)
    assert gap(enc.embed(x, at.pos), x + theirs(x, offset=256)) < 1e-6


# -- whole decoders ---------------------------------------------------------------------------------------------


def decoder(**options: object) -> torch.nn.Module:
    """A tiny decoder; zero-initialised tables (CoPE) are filled, and weights are large enough for position to
    matter.
    """
    layers = xt.Decoder(dim=C, depth=2, heads=H, attn_dim_head=D, verbose=False, **options)
    model = xt.TransformerWrapper(num_tokens=97, max_seq_len=512, use_abs_pos_emb=False, attn_layers=layers).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        for module in model.modules():
            if isinstance(module, xt.DataDependentAlibi):
                module.to_forget_gates[0].bias.zero_()  # it starts at 5, where nothing is forgotten yet
    return model


def attentions(model: torch.nn.Module) -> list[torch.nn.Module]:
    return [module for module in model.modules() if isinstance(module, xt.Attention)]


def words(length: int) -> Tensor:
    return torch.randint(0, 97, (1, length))


@torch.no_grad()
def stepwise(model: torch.nn.Module, ids: Tensor) -> Tensor:
    logits, cache = [], None
    for t in range(1, ids.shape[1] + 1):
        step, cache = model(ids[:, :t], cache=cache, return_intermediates=True)
        logits.append(step[:, -1:])
    return torch.cat(logits, dim=1)


def as_rope(model: torch.nn.Module) -> list[Encoding]:
    return [RoPE(head_dim=D, rotary=D // 2, pairing="interleaved")] * 2


def as_xpos(model: torch.nn.Module) -> list[Encoding]:
    return [XPos(head_dim=D, pairing="interleaved")] * 2


def as_alibi(model: torch.nn.Module) -> list[Encoding]:
    return [ALiBi(heads=H)] * 2


def as_both(model: torch.nn.Module) -> list[Encoding]:
    return [RoPE(head_dim=D, rotary=D // 2, pairing="interleaved") + ALiBi(heads=H)] * 2


@torch.no_grad()
def as_t5(model: torch.nn.Module) -> list[Encoding]:
    enc = T5(heads=H)
    enc.table.copy_(model.attn_layers.rel_pos.relative_attention_bias.weight.T * math.sqrt(D))
    return [enc] * 2


@torch.no_grad()
def as_cope(model: torch.nn.Module) -> list[Encoding]:
    made = []
    for layer in attentions(model):
        made.append(CoPE(heads=H, head_dim=D, positions=16))
        made[-1].e.copy_(layer.attend.cope.pos_emb[None])
    return made


@pytest.mark.parametrize(
    ("options", "encodings"),
    [
        ({"rotary_pos_emb": True}, as_rope),
        ({"rotary_xpos": True, "rotary_emb_dim": D}, as_xpos),
        ({"alibi_pos_bias": True}, as_alibi),
        ({"rotary_pos_emb": True, "alibi_pos_bias": True}, as_both),
        ({"rel_pos_bias": True}, as_t5),
        ({"attn_use_cope": True}, as_cope),
    ],
    ids=lambda value: value.__name__ if callable(value) else "+".join(value),
)
def test_a_decoder_keeps_its_logits_with_milepost_in_place_of_its_attention(options, encodings):
    model, ids = decoder(**options), words(150)
    with torch.no_grad():
        theirs = model(ids)

    def forward(self: torch.nn.Module, x: Tensor, **_: object) -> tuple[Tensor, object]:
        q, k, v = (
            split(to(x))
            for split, to in (
                (self.split_q_heads, self.to_q),
                (self.split_k_heads, self.to_k),
                (self.split_v_heads, self.to_v),
            )
        )
        enc, at = self.milepost, Layout.dense(x.shape[1])
        y = attend(q, k, v, enc, at=at)
        return self.to_out(self.merge_heads(y)), xt.Intermediates()

    for layer, enc in zip(attentions(model), encodings(model), strict=True):
        layer.milepost = enc
        layer.forward = types.MethodType(forward, layer)
    with torch.no_grad():
        ours = model(ids)
        assert gap(ours, theirs) < 1e-4 * theirs.abs().max()
        for layer in attentions(model):
            layer.milepost = Encoding()
        assert gap(model(ids), theirs) > 0.1  # without position it is another model


def test_an_attention_layer_with_alibi_gives_the_same_output_at_positions_of_each_row():
    """Positions that jump and fall: the bias takes its distances from them, and the mask its order from the index."""
    layer = xt.Attention(C, dim_head=D, heads=H, causal=True).eval()
    x = torch.randn(2, 8, C)
    theirs = layer(x, rel_pos=xt.AlibiPositionalBias(H), pos=PLACES)
    q, k, v = (
        split(to(x))
        for split, to in (
            (layer.split_q_heads, layer.to_q),
            (layer.split_k_heads, layer.to_k),
            (layer.split_v_heads, layer.to_v),
        )
    )
    ours = attend(q, k, v, ALiBi(heads=H), at=Layout.dense(8).with_positions(PLACES))
    assert gap(layer.to_out(layer.merge_heads(ours)), theirs) < 1e-4  # float32 slopes times 4095 are off by as much


# -- where the peer is wrong ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"rotary_pos_emb": True},
        {"rotary_xpos": True},
        {"alibi_pos_bias": True},
        {"rel_pos_bias": True},
        {"attn_use_cope": True},
        {"dynamic_pos_bias": True},
    ],
    ids=lambda value: next(iter(value)),
)
def test_most_options_decode_what_they_read_so_the_next_tests_measure_the_option(options):
    model, ids = decoder(**options), words(40)
    with torch.no_grad():
        assert gap(stepwise(model, ids), model(ids)) < 1e-3


@pytest.mark.parametrize(
    "options",
    [
        {"attn_data_dependent_alibi": True},
        {"attn_data_dependent_alibi": True, "attn_data_dependent_alibi_per_row": True},
        {"shift_tokens": 1},
    ],
    ids=lambda value: list(value)[-1],
)
def test_data_dependent_alibi_and_shifted_tokens_forget_the_past_when_decoding_through_the_cache(options):
    model, ids = decoder(**options), words(40)
    with torch.no_grad():
        assert gap(stepwise(model, ids), model(ids)) > 0.5, FIXED


def test_what_counts_over_the_past_in_milepost_decodes_what_it_reads():
    """Neither forgetting gates nor shifted tokens are here; CoPE, whose positions also are sums over the past, is."""
    enc = CoPE(heads=H, head_dim=D, positions=16)
    torch.nn.init.normal_(enc.e, std=0.3)
    q, k, v = (torch.randn(1, H, 40, D) for _ in range(3))
    at = Layout.dense(40)
    full = attend(q, k, v, enc, at=at)
    rows = [
        attend(q[:, :, t : t + 1], k[:, :, : t + 1], v[:, :, : t + 1], enc, at=at[t : t + 1], to=at[: t + 1])
        for t in range(40)
    ]
    assert gap(torch.cat(rows, dim=2), full) < 1e-5
