"""transformers' T5 against milepost: buckets, biases of encoder and decoder, attention layers and whole stacks."""

from __future__ import annotations

import importlib
import types

import pytest
import torch
from torch import Tensor

from milepost import T5, Layout, attend

transformers = importlib.import_module("transformers")
t5 = importlib.import_module("transformers.models.t5.modeling_t5")

HEADS, D, C = 6, 16, 64


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def gap(a: Tensor, b: Tensor) -> float:
    return (a.double() - b.double()).abs().max().item()


def layer(decoder: bool, buckets: int = 32, max_distance: int = 128) -> torch.nn.Module:
    config = transformers.T5Config(
        d_model=C,
        d_kv=D,
        num_heads=HEADS,
        relative_attention_num_buckets=buckets,
        relative_attention_max_distance=max_distance,
        is_decoder=decoder,
        dropout_rate=0.0,
    )
    config._attn_implementation = "eager"
    made = t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0, is_causal=decoder).eval()
    torch.nn.init.normal_(made.relative_attention_bias.weight, std=2.0)
    return made


def encoding(of: torch.nn.Module) -> T5:
    """milepost's T5 with the numbers of a layer of transformers: their table is buckets x heads, ours heads x
    buckets.
    """
    enc = T5(
        heads=HEADS,
        mode="causal" if of.is_decoder else "bidirectional",
        buckets=of.relative_attention_num_buckets,
        max_distance=of.relative_attention_max_distance,
    )
    with torch.no_grad():
        enc.table.copy_(of.relative_attention_bias.weight.T)
    return enc


def bias(enc: T5, at: Layout, to: Layout) -> Tensor:
    return enc.bias(torch.arange(HEADS)[:, None, None], at.pos[:, None, :, None], to.pos[:, None, None, :])


def heads(x: Tensor) -> Tensor:
    return x.view(*x.shape[:2], HEADS, D).transpose(1, 2)


@pytest.mark.parametrize("mode", ["causal", "bidirectional"])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (64, 256), (32, 1000), (16, 20), (128, 8192)])
def test_every_distance_falls_into_the_bucket_of_transformers(mode, buckets, max_distance):
    far = torch.cat([torch.arange(3 * max_distance), torch.tensor([2**17 - 1, 2**20 - 1])])
    distance = far if mode == "causal" else torch.cat([-far, far])
    theirs = t5.T5Attention._relative_position_bucket(
        -distance, bidirectional=mode == "bidirectional", num_buckets=buckets, max_distance=max_distance
    )
    ours = T5(heads=1, mode=mode, buckets=buckets, max_distance=max_distance).bucket(distance)
    differ = (ours != theirs).nonzero().flatten()
    assert not len(differ), (
        f"distance {distance[differ[0]]}: bucket {ours[differ[0]]}, theirs {theirs[differ[0]]} ({len(differ)} differ)"
    )


@pytest.mark.parametrize("length", [1, 2, 129, 300])
def test_the_bias_of_an_encoder_looks_both_ways(length):
    theirs = layer(decoder=False)
    at = Layout.dense(length)
    assert torch.equal(bias(encoding(theirs), at, at), theirs.compute_bias(length, length))


@pytest.mark.parametrize("length", [1, 2, 129, 300])
def test_the_bias_of_a_decoder_is_the_same_wherever_the_mask_lets_through(length):
    theirs = layer(decoder=True)
    at = Layout.dense(length)
    seen = at.mask()[0, 0]
    assert torch.equal(bias(encoding(theirs), at, at)[..., seen], theirs.compute_bias(length, length)[..., seen])


@pytest.mark.parametrize("past", [1, 15, 16, 127, 128, 255, 256, 2047])
def test_a_decoded_row_has_the_bias_that_transformers_gives_it_with_a_cache(past):
    theirs = layer(decoder=True)
    ours = bias(encoding(theirs), Layout.decode(past), Layout.dense(past + 1))
    assert torch.equal(ours, theirs.compute_bias(1, past + 1, past_seen_tokens=past))


def test_an_encoder_attention_layer_gives_the_same_output_without_dividing_logits():
    theirs, at = layer(decoder=False), Layout.dense(150)
    enc = encoding(theirs)
    x = torch.randn(2, 150, C)
    output, _, weights = theirs(x)
    q, k, v = (heads(p(x)) for p in (theirs.q, theirs.k, theirs.v))
    ours = attend(q, k, v, enc, at=at, causal=False, scale=1.0, details=True)
    assert gap(ours.weights, weights) < 1e-5
    assert gap(theirs.o(ours.output.transpose(1, 2).reshape(2, 150, -1)), output) < 1e-5
    assert gap(attend(q, k, v, enc, at=at, causal=False, details=True).weights, weights) > 1e-2  # 1/sqrt(D) is not T5


def test_a_padded_batch_of_an_encoder_attends_as_in_transformers():
    theirs = layer(decoder=False)
    x = torch.randn(2, 40, C)
    mask = torch.ones(2, 40, dtype=torch.bool)
    mask[1, 25:] = False
    additive = torch.zeros(2, 1, 1, 40).masked_fill(~mask[:, None, None], torch.finfo(torch.float32).min)
    output, _, _ = theirs(x, mask=additive)
    q, k, v = (heads(p(x)) for p in (theirs.q, theirs.k, theirs.v))
    ours = attend(q, k, v, encoding(theirs), at=Layout.padded(mask), causal=False, scale=1.0)
    assert gap(theirs.o(ours.transpose(1, 2).reshape(2, 40, -1))[mask], output[mask]) < 1e-5


def test_a_decoder_attention_layer_gives_the_same_output_read_at_once_and_decoded_through_a_cache():
    theirs, at = layer(decoder=True), Layout.dense(150)
    enc = encoding(theirs)
    x = torch.randn(2, 150, C)
    additive = torch.zeros(150, 150).masked_fill(~at.mask()[0, 0], torch.finfo(torch.float32).min)[None, None]
    output, _, _ = theirs(x, mask=additive)
    q, k, v = (heads(p(x)) for p in (theirs.q, theirs.k, theirs.v))
    ours = attend(q, k, v, enc, at=at, scale=1.0)
    assert gap(theirs.o(ours.transpose(1, 2).reshape(2, 150, -1)), output) < 1e-5
    cache = transformers.DynamicCache()
    theirs(x[:, :140], mask=additive[..., :140, :140], past_key_values=cache)
    for t in range(140, 150):
        step, _, _ = theirs(x[:, t : t + 1], past_key_values=cache)
        row = attend(
            q[:, :, t : t + 1],
            k[:, :, : t + 1],
            v[:, :, : t + 1],
            enc,
            at=Layout.decode(t),
            to=Layout.dense(t + 1),
            scale=1.0,
        )
        assert gap(theirs.o(row.transpose(1, 2).reshape(2, 1, -1)), step) < 1e-5


def test_a_whole_t5_keeps_its_logits_with_milepost_in_place_of_its_self_attention():
    config = transformers.T5Config(
        vocab_size=97,
        d_model=C,
        d_kv=D,
        d_ff=96,
        num_layers=2,
        num_decoder_layers=2,
        num_heads=HEADS,
        dropout_rate=0.0,
        decoder_start_token_id=0,
    )
    model = transformers.T5ForConditionalGeneration(config).eval()
    stacks = {False: model.encoder, True: model.decoder}
    for stack in stacks.values():
        torch.nn.init.normal_(stack.block[0].layer[0].SelfAttention.relative_attention_bias.weight, std=2.0)
    ids, answer = torch.randint(1, 97, (2, 70)), torch.randint(1, 97, (2, 50))
    with torch.no_grad():
        theirs = model(input_ids=ids, decoder_input_ids=answer, use_cache=False).logits

    for causal, stack in stacks.items():
        enc = encoding(stack.block[0].layer[0].SelfAttention)  # one table a stack, kept in its first layer

        def forward(
            self: torch.nn.Module, hidden_states: Tensor, enc: T5 = enc, causal: bool = causal, **_: object
        ) -> tuple[Tensor, None, None]:
            q, k, v = (heads(p(hidden_states)) for p in (self.q, self.k, self.v))
            y = attend(q, k, v, enc, causal=causal, scale=1.0)
            return self.o(y.transpose(1, 2).reshape(*hidden_states.shape[:2], -1)), None, None

        for block in stack.block:
            block.layer[0].SelfAttention.forward = types.MethodType(forward, block.layer[0].SelfAttention)
    with torch.no_grad():
        ours = model(input_ids=ids, decoder_input_ids=answer, use_cache=False).logits
    assert gap(ours, theirs) < 1e-5 * theirs.abs().max()
