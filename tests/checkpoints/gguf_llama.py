"""A Llama of transformers as a GGUF file that llama.cpp would read: its own names, its own order of channels, numbers in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def write_llama(model: Any, file: Path, scaling: tuple[str, float, int] | None = None) -> Path:
    """``scaling``: the type, the factor and the trained length that the file says."""
    config = model.config
    out = gguf.GGUFWriter(str(file), "llama")
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_block_count(config.num_hidden_layers)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    out.add_rope_freq_base(config.rope_parameters["rope_theta"])
    out.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    out.add_vocab_size(config.vocab_size)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("default")
    letters = [chr(n) for n in range(33, 127)]
    out.add_token_list([*letters, "!!", *[f"<{n}>" for n in range(config.vocab_size)]][: config.vocab_size])
    out.add_token_types([1] * config.vocab_size)
    out.add_token_merges(["! !"])
    if scaling is not None:
        kind, factor, trained = scaling
        out.add_rope_scaling_type(gguf.RopeScalingType(kind))
        out.add_rope_scaling_factor(factor)
        out.add_rope_scaling_orig_ctx_len(trained)
    for name, value in model.state_dict().items():
        out.add_tensor(_name(name), _order(name, value.numpy(), config))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return file


def _name(name: str) -> str:
    for theirs, ours in NAMES.items():
        if theirs in name:
            block = f"blk.{name.split('.')[2]}." if "layers" in name else ""
            return f"{block}{ours}.weight"
    raise KeyError(name)


def _order(name: str, value: Any, config: Any) -> Any:
    """Pairs of q and k become neighbours."""
    heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads if "k_proj" in name else 0
    if not heads:
        return value
    size = value.shape[0] // heads
    return np.ascontiguousarray(
        value.reshape(heads, 2, size // 2, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
    )
