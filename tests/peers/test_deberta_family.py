"""transformers' DeBERTa, versions 1 and 2, against milepost: rows of the tables, attention scores and whole layers."""

from __future__ import annotations

import importlib
import math

import pytest
import torch
from torch import Tensor

from milepost import DeBERTa, Layout, attend

transformers = importlib.import_module("transformers")

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")

FIXED = "peer fixed it: move to parity"
H, D, C = 4, 16, 64


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def v2() -> object:
    return importlib.import_module("transformers.models.deberta_v2.modeling_deberta_v2")


@pytest.fixture(scope="module")
def v1() -> object:
    return importlib.import_module("transformers.models.deberta.modeling_deberta")


def gap(a: Tensor, b: Tensor) -> float:
    return (a.double() - b.double()).abs().max().item()


def split(x: Tensor) -> Tensor:
    return x.view(*x.shape[:2], H, D).transpose(1, 2)


def merge(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def table(x: Tensor) -> Tensor:
    """Rows x width to heads x rows x D: how milepost keeps a projected table."""
    return x.view(x.shape[0], H, D).transpose(0, 1)


def config(kind: str, **more: object) -> object:
    made = {
        "hidden_size": C,
        "num_attention_heads": H,
        "relative_attention": True,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    return getattr(transformers, kind)(**{**made, **more})


def randomised(layer: torch.nn.Module) -> torch.nn.Module:
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.15)
    return layer.eval()


@torch.no_grad()
def filled(enc: DeBERTa, keys: Tensor | None, queries: Tensor | None) -> DeBERTa:
    for mine, theirs in ((enc.keys, keys), (enc.queries, queries)):
        if mine is not None and theirs is not None:
            mine.copy_(table(theirs))
    return enc


@pytest.mark.parametrize(("buckets", "span"), [(256, 512), (32, 128), (16, 64), (128, 2048)])
def test_every_distance_falls_into_the_bucket_of_version_2(v2, buckets, span):
    distance = torch.arange(-3 * span, 3 * span + 1)
    theirs = (v2.make_log_bucket_position(distance, buckets, span).long() + buckets).clamp(0, 2 * buckets - 1)
    ours = DeBERTa(heads=1, head_dim=4, buckets=buckets, span=span).row(distance, torch.zeros_like(distance))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize(
    ("buckets", "span", "length"),
    [(256, 512, 150), (256, 512, 700), (32, 128, 200), (-1, 64, 40), (-1, 64, 150)],
    ids=["v3", "v3 past its span", "few buckets past their span", "no buckets", "no buckets past the span"],
)
@pytest.mark.parametrize("terms", [("c2p", "p2c"), ("c2p",), ("p2c",)], ids="+".join)
@pytest.mark.parametrize("share", [True, False], ids=["shared projections", "own projections"])
def test_a_layer_of_version_2_gives_the_same_weights_and_output(v2, buckets, span, length, terms, share):
    """v3 checkpoints share the projections of content (share_att_key) and have 256 buckets, whose middle is at
    distance 128.
    """
    setup = config(
        "DebertaV2Config",
        position_buckets=buckets,
        max_relative_positions=span,
        pos_att_type=list(terms),
        share_att_key=share,
    )
    layer = randomised(v2.DisentangledSelfAttention(setup))
    side = buckets if buckets > 0 else span
    x, rel = torch.randn(1, length, C), torch.randn(2 * side, C)
    theirs, weights = layer(x, torch.ones(1, 1, length, length), output_attentions=True, rel_embeddings=rel)

    to_key = layer.key_proj if share else getattr(layer, "pos_key_proj", None)
    to_query = layer.query_proj if share else getattr(layer, "pos_query_proj", None)
    enc = DeBERTa(
        heads=H, head_dim=D, buckets=buckets if buckets > 0 else None, span=span, c2p="c2p" in terms, p2c="p2c" in terms
    )
    filled(enc, to_key(rel) if to_key else None, to_query(rel) if to_query else None)
    q, k, v = (split(p(x)) for p in (layer.query_proj, layer.key_proj, layer.value_proj))
    ours = attend(q, k, v, enc, at=Layout.dense(length), causal=False, details=True)
    of_position = layer.disentangled_attention_bias(q.flatten(0, 1), k.flatten(0, 1), None, rel, 1 + len(terms)).view(
        1, H, length, length
    )
    scores = q @ k.transpose(-1, -2) / math.sqrt(D * (1 + len(terms))) + of_position
    # float32 sums of logits of this size round by about 2^-24 of it each, in another order
    allowed = 16 * 2**-24 * max(1.0, scores.abs().max().item())
    assert gap(ours.logits, scores) <= allowed
    assert gap(ours.weights, weights) <= allowed
    assert gap(merge(ours.output), theirs) <= allowed * v.abs().max().item() * 4


def test_a_padded_batch_of_version_2_attends_as_in_transformers(v2):
    setup = config(
        "DebertaV2Config",
        position_buckets=32,
        max_relative_positions=128,
        pos_att_type=["c2p", "p2c"],
        share_att_key=True,
    )
    layer = randomised(v2.DisentangledSelfAttention(setup))
    mask = torch.ones(2, 60, dtype=torch.bool)
    mask[1, 40:] = False
    x, rel = torch.randn(2, 60, C), torch.randn(64, C)
    theirs, _ = layer(x, mask[:, None, None] & mask[:, None, :, None], rel_embeddings=rel)
    enc = filled(DeBERTa(heads=H, head_dim=D, buckets=32, span=128), layer.key_proj(rel), layer.query_proj(rel))
    q, k, v = (split(p(x)) for p in (layer.query_proj, layer.key_proj, layer.value_proj))
    ours = merge(attend(q, k, v, enc, at=Layout.padded(mask), causal=False))
    assert gap(ours[mask], theirs[mask]) < 1e-4


@pytest.mark.parametrize("length", [30, 64, 150])
def test_a_layer_of_version_1_gives_the_same_weights_and_output(v1, length):
    """Version 1 cuts its table to the length of the text, and loses no row that a distance in it could need."""
    span = 64
    layer = randomised(
        v1.DisentangledSelfAttention(config("DebertaConfig", max_relative_positions=span, pos_att_type=["c2p", "p2c"]))
    )
    x, rel = torch.randn(2, length, C), torch.randn(2 * span, C)
    relative = v1.build_relative_position(x, x)
    theirs, weights = layer(
        x, torch.ones(2, 1, length, length), output_attentions=True, relative_pos=relative, rel_embeddings=rel
    )

    q, k, v = layer.transpose_for_scores(layer.in_proj(x)).chunk(3, dim=-1)
    q, v = q + split(layer.q_bias[None, None]), v + split(layer.v_bias[None, None])
    enc = filled(DeBERTa(heads=H, head_dim=D, buckets=None, span=span), layer.pos_proj(rel), layer.pos_q_proj(rel))
    ours = attend(q, k, v, enc, at=Layout.dense(length), causal=False, details=True)
    allowed = 16 * 2**-24 * max(1.0, ours.logits.abs().max().item())
    assert gap(ours.weights, weights) <= allowed
    assert gap(merge(ours.output), theirs) <= allowed * v.abs().max().item() * 4


# -- where the peer is wrong ------------------------------------------------------------------------------------


def test_a_float32_logarithm_moves_one_bucket_edge_of_transformers_and_whole_numbers_do_not(v2):
    """512 buckets over 4096 positions: ceil(171.000003) is 172, which float32 can't see."""
    buckets, span, distance = 512, 4096, 1643
    middle = buckets // 2
    exact = math.ceil(math.log(distance / middle) / math.log((span - 1) / middle) * (middle - 1)) + middle
    assert v2.make_log_bucket_position(torch.tensor([distance]), buckets, span).item() == exact - 1, FIXED
    enc = DeBERTa(heads=1, head_dim=4, buckets=buckets, span=span)
    assert enc.row(torch.tensor([distance]), torch.tensor([0])).item() - enc.side == exact
