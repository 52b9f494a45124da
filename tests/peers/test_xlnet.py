"""transformers' XLNet against milepost's Transformer-XL: sinusoids, scores both ways and causally, memories, and a
whole model.
"""

from __future__ import annotations

import importlib
import types

import pytest
import torch
from torch import Tensor

from milepost import Layout, Sinusoidal, TransformerXL, attend

transformers = importlib.import_module("transformers")
xlnet = importlib.import_module("transformers.models.xlnet.modeling_xlnet")

H, D, C = 4, 16, 64


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def gap(a: Tensor, b: Tensor) -> float:
    return (a.double() - b.double()).abs().max().item()


def tiny(attention: str = "bi") -> torch.nn.Module:
    config = transformers.XLNetConfig(
        vocab_size=97, d_model=C, n_head=H, n_layer=2, d_inner=96, dropout=0.0, attn_type=attention, use_mems_eval=False
    )
    model = transformers.XLNetModel(config).eval()
    with torch.no_grad():
        for layer in model.layer:
            for parameter in (
                layer.rel_attn.r,
                layer.rel_attn.r_w_bias,
                layer.rel_attn.r_r_bias,
                layer.rel_attn.q,
                layer.rel_attn.k,
                layer.rel_attn.v,
            ):
                parameter.normal_(std=0.15)
            for parameter in (layer.rel_attn.r_s_bias, layer.rel_attn.seg_embed):
                parameter.zero_()  # segments are no positions
    return model


@torch.no_grad()
def encoding(layer: torch.nn.Module) -> TransformerXL:
    """milepost's Transformer-XL with the numbers of one layer: r is width x H x D there, H x D x width here."""
    enc = TransformerXL(heads=H, head_dim=D, width=C)
    enc.project.copy_(layer.r.permute(1, 2, 0))
    enc.u.copy_(layer.r_w_bias)
    enc.v.copy_(layer.r_r_bias)
    return enc


def split(x: Tensor, by: Tensor) -> Tensor:
    """B L C through a projection of C H D: B H L D."""
    return torch.einsum("blc,chd->bhld", x, by)


def budget(length: int, enc: TransformerXL, q: Tensor) -> float:
    """How far a weight may be off: their sinusoids have float32 angles (4 roundings of a distance), and |q + v| |W|
    weighs them.
    """
    moved = (
        (q + enc.v[:, None]).norm(dim=-1).max()
        * torch.linalg.matrix_norm(enc.project, ord=2).max()
        * (C / 2) ** 0.5
        / D**0.5
    )
    return (moved * (4 * length + 16) * 2**-24).item()


def test_sinusoids_of_distances_are_all_sines_then_all_cosines():
    model = tiny()
    theirs = model.relative_positional_encoding(300, 300)[:, 0]
    distance = torch.arange(300, -300, -1)
    ours = Sinusoidal(width=C, order="halves").code(distance)
    assert ((ours - theirs.double()).abs() <= (4 * distance.abs()[:, None] + 4) * 2**-24).all()
    assert gap(Sinusoidal(width=C).code(distance), theirs) > 1


@pytest.mark.parametrize("length", [1, 2, 40, 300])
@pytest.mark.parametrize("attention", ["bi", "uni"])
def test_a_layer_gives_the_same_weights_and_output(attention, length):
    model = tiny(attention)
    layer, at = model.layer[0].rel_attn, Layout.dense(length)
    x = torch.randn(2, length, C)
    hidden = (~at.mask(causal=attention == "uni")).float().permute(2, 3, 0, 1)
    r = torch.einsum("ibh,hnd->ibnd", model.relative_positional_encoding(length, length, bsz=2), layer.r)
    q, k, v = (split(x, p) for p in (layer.q, layer.k, layer.v))
    theirs, weights = layer.rel_attn_core(
        *(t.permute(2, 0, 1, 3) for t in (q, k, v)), r, attn_mask=hidden, output_attentions=True
    )
    enc = encoding(layer)
    ours = attend(q, k, v, enc, at=at, causal=attention == "uni", details=True)
    allowed = budget(length, enc, q)
    assert gap(ours.weights, weights.permute(2, 3, 0, 1)) <= allowed < 1e-2
    assert gap(ours.output, theirs.permute(1, 2, 0, 3)) <= 2 * allowed * v.abs().max()


@pytest.mark.parametrize("attention", ["bi", "uni"])
def test_a_layer_with_memories_of_the_text_before_gives_the_same_output(attention):
    model = tiny(attention)
    layer = model.layer[0].rel_attn
    past, new = torch.randn(2, 50, C), torch.randn(2, 20, C)
    at, to = Layout.decode(50, 20), Layout.dense(70)
    seen = at.mask(to, causal=attention == "uni")
    r = model.relative_positional_encoding(20, 70, bsz=2)
    theirs, _, weights = layer(
        new.transpose(0, 1),
        None,
        (~seen).float().permute(2, 3, 0, 1),
        None,
        r,
        None,
        mems=past.transpose(0, 1),
        output_attentions=True,
    )
    both = torch.cat([past, new], dim=1)
    q, k, v = split(new, layer.q), split(both, layer.k), split(both, layer.v)
    enc = encoding(layer)
    ours = attend(q, k, v, enc, at=at, to=to, causal=attention == "uni", details=True)
    allowed = budget(70, enc, q)
    assert gap(ours.weights, weights.permute(2, 3, 0, 1)) <= allowed
    output = layer.layer_norm(torch.einsum("bhld,chd->blc", ours.output, layer.o) + new)
    assert gap(output, theirs.transpose(0, 1)) <= 10 * allowed


@pytest.mark.parametrize("attention", ["bi", "uni"])
def test_a_whole_xlnet_keeps_its_states_with_milepost_in_place_of_its_attention(attention):
    model, ids = tiny(attention), torch.randint(0, 97, (2, 60))
    with torch.no_grad():
        theirs = model(ids).last_hidden_state

    def forward(self: torch.nn.Module, h: Tensor, *_: object, **__: object) -> tuple[Tensor, None]:
        x = h.transpose(0, 1)
        q, k, v = (split(x, p) for p in (self.q, self.k, self.v))
        y = attend(q, k, v, encoding(self), causal=attention == "uni")
        return self.post_attention(h, y.permute(2, 0, 1, 3)), None

    for layer in model.layer:
        layer.rel_attn.forward = types.MethodType(forward, layer.rel_attn)
    with torch.no_grad():
        assert gap(model(ids).last_hidden_state, theirs) < 1e-4
