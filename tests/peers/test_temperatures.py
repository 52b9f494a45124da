"""transformers' temperatures by position (Llama 4, Ministral 3, Mistral 4, Inkling, Beam) against milepost: the queries
that each model's own attention hands to its kernel, at the steps where a form is known by.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from milepost import SSMax, Temperature

transformers = importlib.import_module("transformers")
utils = importlib.import_module("transformers.modeling_utils")


def peer(name: str) -> Any:
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


@contextmanager
def captured() -> Iterator[list[Tensor]]:
    """The queries that reach an attention kernel named "captured", which gives zeros."""
    queries: list[Tensor] = []

    def keep(module: Any, q: Tensor, k: Tensor, v: Tensor, *given: Any, **named: Any) -> tuple[Tensor, None]:
        queries.append(q.detach())
        return torch.zeros(q.shape[0], q.shape[2], q.shape[1], v.shape[-1]), None

    utils.ALL_ATTENTION_FUNCTIONS.register("captured", keep)
    try:
        yield queries
    finally:
        utils.ALL_ATTENTION_FUNCTIONS._global_mapping.pop("captured")


def close(ours: Temperature, plain: Tensor, theirs: Tensor, pos: Tensor) -> None:
    """Their factor is float32, a few roundings off; ours times their own queries without a temperature."""
    want = ours.query(plain.double(), pos)
    assert (want - plain).abs().max() > 1e-2 * plain.abs().max()  # a factor that is 1 everywhere proves nothing
    assert ((theirs.double() - want).abs() <= 4 * 2.0**-23 * want.abs() + 1e-12).all()


def queries(module: Any, **given: Any) -> Tensor:
    with captured() as seen, torch.no_grad():
        module(**given)
    (q,) = seen
    return q


SIZES = {"hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 4, "head_dim": 4}
LONG = 16390  # past two steps of 8192


def test_llama_4_sharpens_its_layers_without_positions_and_no_other():
    llama4 = peer("llama4")
    config = transformers.Llama4TextConfig(**SIZES, intermediate_size=8, attn_implementation="captured")
    assert config.no_rope_layers == [1, 1, 1, 0] and (config.floor_scale, config.attn_scale) == (8192, 0.1)
    x, at = torch.randn(1, LONG, 8), torch.arange(LONG)
    layer = llama4.Llama4TextAttention(config, 3)
    plain = layer.q_proj(x).detach().view(1, LONG, 2, 4).transpose(1, 2)
    sharp = queries(layer, hidden_states=x, position_embeddings=None, attention_mask=None)
    close(Temperature(8192), plain, sharp, at)
    turned = llama4.Llama4TextAttention(config, 2)
    turned.q_proj.weight.data.copy_(layer.q_proj.weight)
    still = torch.ones(1, LONG, 2, dtype=torch.complex64)
    got = queries(turned, hidden_states=x, position_embeddings=still, attention_mask=None)
    assert config.use_qk_norm and got.norm(dim=-1).max() <= 2 * (1 + 2**-20)  # of four channels, each 1 on average


def test_the_two_mistrals_begin_a_step_one_token_later_than_llama_4():
    for name in ("ministral3", "mistral4"):
        at = torch.tensor([[0, 1, 16382, 16383, 16384, 32767, 32768, 131071, 1048575]])
        theirs = peer(name).get_llama_4_attn_scale(at, 0.1, 16384)
        plain = torch.ones(1, 1, at.shape[-1], 1)
        close(Temperature(16384, "mistral"), plain, theirs, at)
        wrong = Temperature(16384, "llama4").query(plain.double(), at)
        assert [int(p) for p in at[0][(wrong - theirs)[0, 0, :, 0].abs() > 1e-6]] == [16383, 32767, 131071, 1048575]


def test_ministral_3_hands_its_kernel_these_queries():
    module = peer("ministral3")
    rope = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 64}
    rope |= {"llama_4_scaling_beta": 0.25, "attention_factor": 1.0}
    config = transformers.Ministral3Config(
        **SIZES, intermediate_size=8, rope_parameters=rope, attn_implementation="captured"
    )
    n, layer = 200, module.Ministral3Attention(config, 0)
    x, at = torch.randn(1, n, 8), torch.arange(n)[None]
    still = torch.ones(1, n, 4), torch.zeros(1, n, 4)  # no rotation, so that the temperature stands alone
    plain = layer.q_proj(x).detach().view(1, n, 2, 4).transpose(1, 2)
    sharp = queries(layer, hidden_states=x, position_embeddings=still, attention_mask=None, position_ids=at)
    close(Temperature(64, "mistral", rate=0.25), plain, sharp, at)


def test_beam_sharpens_from_the_first_token_on():
    at = torch.tensor([[0, 1, 255, 2046, 2047, 2048, 8192, 131071, 1048575]])
    theirs = peer("beam").compute_attention_scaling(at)
    close(Temperature(2048, "beam"), torch.ones(1, 1, at.shape[-1], 1), theirs, at)


def test_inkling_hands_its_kernel_these_queries():
    module = peer("inkling")
    config = transformers.InklingTextConfig(**SIZES, layer_types=["hybrid"] * 4, attn_implementation="captured")
    config.log_scaling_n_floor, config.log_scaling_alpha = 16, 0.3
    n, layer = 70, module.InklingAttention(config, 0)
    x, at = torch.randn(1, n, 8), torch.arange(n)
    sharp = queries(layer, hidden_states=x, attention_mask=None)
    config.log_scaling_n_floor = None
    plain = queries(layer, hidden_states=x, attention_mask=None)
    close(Temperature(16, "inkling", rate=0.3), plain, sharp, at)


def test_mistral_large_4_learns_an_affine_ssmax():
    theirs = peer("mistral_large4").MistralLarge4TextSoftmaxScaling(3)
    ours = SSMax(3, length=512, affine=True)
    with torch.no_grad():
        for mine, own in ((ours.scale, theirs.scale), (ours.added, theirs.bias)):
            mine.copy_(torch.tensor([0.3, -0.1, 1.0]))
            own.copy_(mine)
    at = torch.tensor([[0, 1, 255, 511, 512, 131071, 1048575], [9, 8, 7, 6, 5, 4, 3]])
    q = torch.randn(2, 3, 7, 4)
    with torch.no_grad():
        want, got = theirs(q, at, head_dim_first=True), ours.query(q, at)
    assert (
        (got - want).abs() <= 8 * 2.0**-23 * (q.abs() * 15)
    ).all()  # ln(2^20) + 1 < 15; a few roundings of each part


def test_a_peers_cache_goes_on_with_its_own_positions():
    llama4 = peer("llama4")
    config = transformers.Llama4TextConfig(**SIZES, intermediate_size=8, floor_scale=8, attn_implementation="captured")
    layer, x = llama4.Llama4TextAttention(config, 3), torch.randn(1, 40, 8)
    whole = queries(layer, hidden_states=x, position_embeddings=None, attention_mask=None)
    cache = transformers.DynamicCache(config=config)
    parts = [
        queries(layer, hidden_states=x[:, a:b], position_embeddings=None, attention_mask=None, past_key_values=cache)
        for a, b in ((0, 25), (25, 26), (26, 40))
    ]
    assert torch.allclose(torch.cat(parts, dim=2), whole, rtol=1e-6, atol=1e-7)
    assert pytest.approx(1.0 + 0.1 * torch.tensor(6.0).log().item()) == Temperature(8).factor(torch.tensor(39)).item()
