"""Other models of transformers against milepost: Shaw's vectors (Wav2Vec2-BERT), sinusoids (Marian), learned tables
(OPT, GPT-2).
"""

from __future__ import annotations

import importlib

import pytest
import torch
from torch import Tensor

from milepost import Layout, Learned, Shaw, Sinusoidal, attend

transformers = importlib.import_module("transformers")
wav2vec2_bert = importlib.import_module("transformers.models.wav2vec2_bert.modeling_wav2vec2_bert")
marian = importlib.import_module("transformers.models.marian.modeling_marian")
opt = importlib.import_module("transformers.models.opt.modeling_opt")

H, D, C = 4, 16, 64


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def gap(a: Tensor, b: Tensor) -> float:
    return (a.double() - b.double()).abs().max().item()


@pytest.mark.parametrize(("left", "right"), [(16, 16), (64, 8), (5, 30)])
@pytest.mark.parametrize("length", [1, 10, 150])
def test_a_wav2vec2_bert_layer_is_shaw_with_the_last_vectors_repeated_on_its_shorter_side(left, right, length):
    config = transformers.Wav2Vec2BertConfig(
        hidden_size=C,
        num_attention_heads=H,
        position_embeddings_type="relative_key",
        left_max_position_embeddings=left,
        right_max_position_embeddings=right,
        attention_dropout=0.0,
    )
    config._attn_implementation = "eager"
    layer = wav2vec2_bert.Wav2Vec2BertSelfAttention(config).eval()
    torch.nn.init.normal_(layer.distance_embedding.weight)
    x = torch.randn(2, length, C)
    theirs, weights = layer(x)[:2]
    clip = max(left, right)
    enc = Shaw(heads=H, head_dim=D, clip=clip)
    with torch.no_grad():
        enc.a.copy_(layer.distance_embedding.weight[torch.arange(-clip, clip + 1).clamp(-left, right) + left][None])
    q, k, v = (p(x).view(2, length, H, D).transpose(1, 2) for p in (layer.linear_q, layer.linear_k, layer.linear_v))
    ours = attend(q, k, v, enc, at=Layout.dense(length), causal=False, details=True)
    assert gap(ours.weights, weights) < 1e-5
    assert gap(layer.linear_out(ours.output.transpose(1, 2).reshape(2, length, C)), theirs) < 1e-5


def test_marian_has_sinusoids_with_all_sines_first():
    """Its angles are float64, so only the table's own rounding to float32 is between us."""
    table = marian.MarianSinusoidalPositionalEmbedding(4096, 32)
    theirs = table.create_weight()
    enc = Sinusoidal(width=32, order="halves")
    pos = torch.tensor([0, 1, 2, 255, 256, 257, 2047, 4095])
    assert gap(enc.code(pos), theirs[pos]) <= 2**-24
    x = torch.randn(1, 8, 32)
    assert gap(enc.embed(x, pos), x + theirs[pos]) <= 2**-22
    assert gap(Sinusoidal(width=32).embed(x, pos), x + theirs[pos]) > 0.5


def test_opt_reads_its_learned_table_two_rows_further_for_left_padded_batches_too():
    theirs = opt.OPTLearnedPositionalEmbedding(50, C)
    enc = Learned(length=50, width=C, offset=2)
    with torch.no_grad():
        enc.table.copy_(theirs.weight)
    mask = torch.ones(2, 50, dtype=torch.long)
    mask[1, :13] = 0
    x, at = torch.randn(2, 50, C), Layout.padded(mask)
    real = mask.bool()
    assert torch.equal(enc.embed(x, at.pos)[real], (x + theirs(mask))[real])
    step = Layout.decode(torch.tensor([49, 36]))
    assert torch.equal(enc.embed(x[:, -1:], step.pos), x[:, -1:] + theirs(mask, past_key_values_length=49))
    with pytest.raises(ValueError, match="past the end"):
        enc.embed(x[:, :1], torch.tensor([50]))


def test_gpt2_adds_a_row_of_its_learned_table():
    model = transformers.GPT2Model(
        transformers.GPT2Config(vocab_size=97, n_positions=40, n_embd=C, n_layer=0, n_head=H, embd_pdrop=0.0)
    ).eval()
    enc = Learned(length=40, width=C)
    with torch.no_grad():
        enc.table.copy_(model.wpe.weight.normal_())
        ids, pos = torch.randint(0, 97, (2, 30)), torch.stack([torch.arange(30), torch.arange(10, 40)])
        theirs = model(ids, position_ids=pos).last_hidden_state
        assert gap(model.ln_f(enc.embed(model.wte(ids), pos)), theirs) < 1e-6
