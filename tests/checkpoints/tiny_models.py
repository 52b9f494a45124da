"""Tiny real models of transformers for the tests of verify: weights so large that positions matter."""

from __future__ import annotations

import importlib
from typing import Any

import torch

transformers = importlib.import_module("transformers")
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SMALL = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.3,
    **TOKENS,
}
GPT = {
    "vocab_size": 64,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 512,
    "initializer_range": 0.3,
    **TOKENS,
}


def rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 50000.0, **more}}


YARN = rope("yarn", factor=4.0, original_max_position_embeddings=128)
DYNAMIC = {**rope("dynamic", factor=2.0), "max_position_embeddings": 128}
LONG = rope(
    "longrope",
    short_factor=[1.0] * 8,
    long_factor=[1.0 + n for n in range(8)],
    original_max_position_embeddings=128,
    factor=4.0,
)
GEMMA = {
    "head_dim": 16,
    "num_hidden_layers": 3,
    "sliding_window": 32,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
}

HONEST: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **SMALL, **rope("default")},
    "llama, llama3": {
        "model_type": "llama",
        **SMALL,
        **rope("llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=128),
    },
    "llama, yarn": {"model_type": "llama", **SMALL, **YARN},
    "llama, linear": {"model_type": "llama", **SMALL, **rope("linear", factor=4.0)},
    "qwen2": {"model_type": "qwen2", **SMALL},
    "qwen3": {"model_type": "qwen3", **SMALL, "head_dim": 16},
    "gemma3": {"model_type": "gemma3_text", **SMALL, **GEMMA},
    "phi3": {"model_type": "phi3", **SMALL},
    "gpt_neox": {"model_type": "gpt_neox", **SMALL},
    "gptj": {"model_type": "gptj", **GPT, "rotary_dim": 8},
    "falcon": {"model_type": "falcon", **SMALL, "alibi": False},
    "falcon, alibi": {"model_type": "falcon", **SMALL, "alibi": True, "multi_query": False},
    "bloom": {
        "model_type": "bloom",
        "vocab_size": 64,
        "hidden_size": 64,
        "n_layer": 2,
        "n_head": 4,
        "initializer_range": 0.3,
    },
    "mpt": {
        "model_type": "mpt",
        "vocab_size": 64,
        "d_model": 64,
        "n_layers": 2,
        "n_heads": 4,
        "max_seq_len": 512,
        "initializer_range": 0.3,
    },
    "gpt2": {"model_type": "gpt2", **GPT},
    "opt": {
        "model_type": "opt",
        "vocab_size": 64,
        "hidden_size": 64,
        "ffn_dim": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 512,
        "word_embed_proj_dim": 64,
        "init_std": 0.3,
    },
    "t5": {
        "model_type": "t5",
        "vocab_size": 64,
        "d_model": 64,
        "d_kv": 16,
        "d_ff": 64,
        "num_layers": 2,
        "num_heads": 4,
        "initializer_factor": 1.0,
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
        "eos_token_id": 1,
    },
    "smollm3": {"model_type": "smollm3", **SMALL, "num_hidden_layers": 3, "no_rope_layers": [1, 0, 1]},
}


def build(name: str, **more: Any) -> Any:
    """A model with random weights, the same each time."""
    given = {**HONEST[name], **more}
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(**given)
    auto = transformers.AutoModelForSeq2SeqLM if given["model_type"] == "t5" else transformers.AutoModelForCausalLM
    return auto.from_config(config).eval()


def rotary(model: Any) -> Any:
    """The module that holds the frequencies."""
    return next(part for part in model.modules() if type(part).__name__.endswith("RotaryEmbedding"))
