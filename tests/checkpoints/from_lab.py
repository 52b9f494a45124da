"""A lab model with rope, written as the GPT-NeoX that it is: a checkpoint in Hugging Face form whose weights were
really trained.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tiny_models import transformers

from milepost.lab.model import Decoder

TRAINED = 32
"""Tokens that the model of these tests is trained on."""


def to_neox(model: Decoder, folder: Path) -> Path:
    """Write ``model``; q, k and v of each head lie side by side there, and biases that the lab has not are zero."""
    shape = model.shape
    config = transformers.GPTNeoXConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.width,
        max_position_embeddings=shape.length,
        hidden_act="gelu",
        use_parallel_residual=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
        bos_token_id=None,
        eos_token_id=None,
        tie_word_embeddings=False,
    )
    made = transformers.GPTNeoXForCausalLM(config).eval()
    weights: dict[str, Any] = {"gpt_neox.embed_in.weight": model.tokens.weight, "lm_head.weight": model.head.weight}
    for part in ("weight", "bias"):
        weights[f"gpt_neox.final_layer_norm.{part}"] = getattr(model.norm, part)
    heads, size = shape.heads, shape.width // shape.heads
    for n, block in enumerate(model.blocks):
        name = f"gpt_neox.layers.{n}"
        fused = block.qkv.weight.unflatten(0, (3, heads, size)).transpose(0, 1).flatten(0, 2)
        weights |= {
            f"{name}.attention.query_key_value.weight": fused,
            f"{name}.attention.query_key_value.bias": torch.zeros(3 * shape.width),
        }
        weights |= {
            f"{name}.attention.dense.weight": block.out.weight,
            f"{name}.attention.dense.bias": torch.zeros(shape.width),
        }
        for ours, theirs in (
            ("norm_1", "input_layernorm"),
            ("norm_2", "post_attention_layernorm"),
            ("up", "mlp.dense_h_to_4h"),
            ("down", "mlp.dense_4h_to_h"),
        ):
            weights |= {f"{name}.{theirs}.{part}": getattr(getattr(block, ours), part) for part in ("weight", "bias")}
    made.load_state_dict({key: value.detach().clone() for key, value in weights.items()})
    made.save_pretrained(folder)
    return folder


def byte_tokenizer(folder: Path) -> Path:
    """A tokenizer.json whose tokens are the bytes, beside a model."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    plain = [
        *range(33, 127),
        *range(161, 173),
        *range(174, 256),
    ]  # bytes that stand for themselves; the others are moved past 255, in order
    moved = [byte for byte in range(256) if byte not in plain]
    order = {chr(byte): byte for byte in plain} | {chr(256 + n): byte for n, byte in enumerate(moved)}
    assert set(order) == set(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab=order, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder
