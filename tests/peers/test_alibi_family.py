"""transformers' ALiBi models (BLOOM, MPT, Falcon) against milepost: slopes, weights under a mask, attention layers,
and their bfloat16.
"""

from __future__ import annotations

import importlib
import math

import pytest
import torch
from torch import Tensor

from milepost import ALiBi, Layout, attend

transformers = importlib.import_module("transformers")
bloom = importlib.import_module("transformers.models.bloom.modeling_bloom")
mpt = importlib.import_module("transformers.models.mpt.modeling_mpt")
falcon = importlib.import_module("transformers.models.falcon.modeling_falcon")

FIXED = "peer fixed it: move to parity"
HEADS = [8, 12, 14, 40, 71]
H, D, C = 12, 16, 192  # a number of heads that is no power of two


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def gap(a: Tensor, b: Tensor) -> float:
    return (a.double() - b.double()).abs().max().item()


def ones(length: int, batch: int = 1) -> Tensor:
    return torch.ones(batch, length, dtype=torch.long)


def weights(enc: ALiBi, at: Layout, to: Layout, dtype: torch.dtype = torch.float32) -> Tensor:
    """Attention weights that come from the bias alone: all queries and keys are zero. H I J."""
    q, k = torch.zeros(1, enc.heads, at.length, 8, dtype=dtype), torch.zeros(1, enc.heads, to.length, 8, dtype=dtype)
    return attend(q, k, k, enc, at=at, to=to, details=True).weights[0]


def split(x: Tensor) -> Tensor:
    return x.reshape(*x.shape[:2], H, D).transpose(1, 2)


def merge(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def additive(seen: Tensor) -> Tensor:
    return torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)


# -- the same numbers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heads", HEADS)
def test_slopes_are_those_of_bloom_and_of_mpt_in_the_same_order(heads):
    """MPT starts from the power of two above and takes every other slope first: another road to the very same list."""
    ours = ALiBi(heads=heads).past_slopes
    of_bloom = bloom.build_alibi_tensor(ones(2), heads, torch.float32)[:, 0, 1]
    of_mpt = mpt.build_mpt_alibi_tensor(heads, 2)[:, 0, 1] - mpt.build_mpt_alibi_tensor(heads, 2)[:, 0, 0]
    for theirs in (of_bloom, of_mpt):  # float32 powers: a few roundings
        assert ((theirs.double() - ours).abs() <= 8 * 2**-24 * ours).all()
    assert len(set(ours.tolist())) == heads


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("query", [0, 1, 255, 256, 257, 2047, 4095])
def test_weights_are_those_of_bloom_and_of_mpt_under_the_causal_mask(heads, query):
    """They add slope * key, we subtract slope * distance: a softmax can't tell, but float32 rounds theirs by slope *
    key * 2^-24.
    """
    length = query + 1
    ours = weights(ALiBi(heads=heads), Layout.decode(query), Layout.dense(length))[:, 0]
    allowed = 4 * query * 2**-24 + 1e-6
    assert gap(ours, bloom.build_alibi_tensor(ones(length), heads, torch.float32)[:, 0].softmax(-1)) <= allowed
    assert gap(ours, mpt.build_mpt_alibi_tensor(heads, length)[:, 0].softmax(-1)) <= allowed


def test_every_row_of_a_square_is_that_of_bloom_for_a_left_padded_batch_too():
    mask = ones(50, batch=2)
    mask[1, :17] = 0
    at = Layout.padded(mask)
    theirs = bloom.build_alibi_tensor(mask, H, torch.float32).view(2, H, 1, 50)
    theirs = theirs.expand(2, H, 50, 50).masked_fill(~at.mask(), float("-inf")).softmax(-1)
    q = torch.zeros(2, H, 50, 8)
    ours = attend(q, q, q, ALiBi(heads=H), at=at, details=True).weights
    real = mask.bool()[:, None, :, None].expand_as(ours)
    assert gap(ours[real], theirs[real]) < 1e-5


@pytest.mark.parametrize("padding", [0, 17])
def test_a_bloom_attention_layer_gives_the_same_output(padding):
    layer = bloom.BloomAttention(
        transformers.BloomConfig(hidden_size=C, n_head=H, hidden_dropout=0.0, attention_dropout=0.0), layer_idx=0
    ).eval()
    mask = ones(60, batch=2)
    mask[1, :padding] = 0
    at = Layout.padded(mask)
    x = torch.randn(2, 60, C)
    alibi = bloom.build_alibi_tensor(mask, H, torch.float32)
    theirs, _ = layer(x, torch.zeros_like(x), alibi, additive(at.mask()))
    q, k, v = layer._reshape(layer.query_key_value(x))
    ours = layer.dense(merge(attend(q, k, v, ALiBi(heads=H), at=at)))
    assert gap(ours[mask.bool()], theirs[mask.bool()]) < 1e-5


def test_a_bloom_layer_decodes_the_same_rows_through_its_cache():
    layer = bloom.BloomAttention(
        transformers.BloomConfig(hidden_size=C, n_head=H, hidden_dropout=0.0, attention_dropout=0.0), layer_idx=0
    ).eval()
    x, cache = torch.randn(1, 40, C), transformers.DynamicCache()
    q, k, v = layer._reshape(layer.query_key_value(x))
    layer(
        x[:, :30],
        torch.zeros(1, 30, C),
        bloom.build_alibi_tensor(ones(30), H, torch.float32),
        additive(Layout.dense(30).mask()),
        layer_past=cache,
    )
    for t in range(30, 40):
        theirs, _ = layer(
            x[:, t : t + 1],
            torch.zeros(1, 1, C),
            bloom.build_alibi_tensor(ones(t + 1), H, torch.float32),
            None,
            layer_past=cache,
        )
        ours = attend(
            q[:, :, t : t + 1],
            k[:, :, : t + 1],
            v[:, :, : t + 1],
            ALiBi(heads=H),
            at=Layout.decode(t),
            to=Layout.dense(t + 1),
        )
        assert gap(layer.dense(merge(ours)), theirs) < 1e-5


def test_an_mpt_attention_layer_gives_the_same_output():
    layer = mpt.MptAttention(transformers.MptConfig(d_model=C, n_heads=H, max_seq_len=128), layer_idx=0).eval()
    x, at = torch.randn(2, 60, C), Layout.dense(60)
    theirs, weights = layer(x, mpt.build_mpt_alibi_tensor(H, 128), attention_mask=~at.mask())
    q, k, v = (split(t) for t in layer.Wqkv(x).chunk(3, dim=-1))
    ours = attend(q, k, v, ALiBi(heads=H), at=at, details=True)
    assert gap(ours.weights, weights) < 1e-5
    assert gap(layer.out_proj(merge(ours.output)), theirs) < 1e-5


def tiny_falcon(attention: str) -> torch.nn.Module:
    torch.manual_seed(5)
    config = transformers.FalconConfig(
        vocab_size=97,
        hidden_size=C,
        num_hidden_layers=1,
        num_attention_heads=H,
        alibi=True,
        multi_query=False,
        parallel_attn=False,
        bias=True,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        initializer_range=0.15,
        attn_implementation=attention,
    )
    return transformers.FalconModel(config).eval()


@torch.no_grad()
def heads_of_falcon(model: torch.nn.Module, ids: Tensor) -> list[Tensor]:
    block = model.h[0]
    fused = block.self_attention.query_key_value(block.input_layernorm(model.word_embeddings(ids)))
    return [t.transpose(1, 2) for t in block.self_attention._split_heads(fused)]


def slopes_of_falcon(times: float = 1.0) -> ALiBi:
    """Falcon rounds slopes to bfloat16, and divides the bias by sqrt(D) together with the scores."""
    rounded = ALiBi(heads=H).past_slopes.bfloat16().double()
    return ALiBi(heads=H, slopes=tuple((times * rounded / math.sqrt(D)).tolist()))


def test_a_falcon_with_fused_attention_gives_the_same_output_for_its_own_slopes_where_bfloat16_can_count():
    """All products slope * key must be bfloat16 numbers: past 256 keys, or for slopes that are no powers of two,
    they are not.
    """
    model, ids = tiny_falcon("sdpa"), torch.randint(0, 97, (2, 100))
    seen: dict[str, Tensor] = {}
    hook = model.h[0].self_attention.dense.register_forward_pre_hook(lambda _, args: seen.update(y=args[0]))
    with torch.no_grad():
        model(ids)
    hook.remove()
    ours = attend(*heads_of_falcon(model, ids), slopes_of_falcon())
    theirs = seen["y"].view(2, 100, H, D).transpose(1, 2)
    assert gap(ours[:, :8], theirs[:, :8]) < 1e-5  # the first eight of twelve slopes are 2^-1 .. 2^-8


# -- where the peer is wrong ------------------------------------------------------------------------------------


def test_falcon_adds_its_bias_twice_when_attention_is_eager():
    model, ids = tiny_falcon("eager"), torch.randint(0, 97, (2, 100))
    with torch.no_grad():
        theirs = model(ids, output_attentions=True).attentions[0][:, :8]
    q, k, v = heads_of_falcon(model, ids)
    once, twice = (attend(q, k, v, slopes_of_falcon(times), details=True).weights[:, :8] for times in (1.0, 2.0))
    assert gap(theirs, once) > 0.1, FIXED
    assert gap(theirs, twice) < 1e-5
    with torch.no_grad():
        assert gap(model(ids).last_hidden_state, tiny_falcon("sdpa")(ids).last_hidden_state) > 0.1, FIXED


@pytest.mark.parametrize(("length", "least"), [(2048, 2.0), (8192, 8.0)])
def test_the_bias_of_bloom_in_bfloat16_loses_whole_tokens_and_ours_none(length, least):
    """slope * key grows with the text, so rounding it to 8 bits moves near keys by several tokens; a distance would
    stay small.
    """
    exact = -0.5 * torch.arange(length - 1, -1, -1, dtype=torch.float64)
    theirs = bloom.build_alibi_tensor(ones(length), 8, torch.bfloat16)[0, 0].double()
    assert gap((theirs - theirs[-1])[-64:], exact[-64:]) >= least, FIXED
    at, to = Layout.decode(length - 1), Layout.dense(length)
    ours = ALiBi(heads=8).bias(torch.zeros(1, dtype=torch.long), at.pos[0, :, None], to.pos[0, None, :])[0]
    assert gap(ours, exact) == 0.0
    in_half = weights(ALiBi(heads=8), at, to, torch.bfloat16)[0, 0]
    assert gap(in_half, exact.softmax(-1)) < 1e-6
    assert gap(theirs.softmax(-1), exact.softmax(-1)) > 0.1, FIXED


def test_the_bias_of_falcon_is_bfloat16_even_in_a_float32_model_and_its_last_keys_are_all_alike():
    theirs = falcon.build_alibi_tensor(ones(2048), 8, torch.float32)[0, 0]
    assert theirs.dtype == torch.float32
    assert theirs[-4:].unique().numel() == 1, FIXED
    ours = weights(ALiBi(heads=8), Layout.decode(2047), Layout.dense(2048))[0, 0]
    exact = (0.5 * torch.arange(2048, dtype=torch.float64)).softmax(-1)
    assert gap(theirs.softmax(-1), exact) > 0.1, FIXED
    assert gap(ours, exact) < 1e-6
