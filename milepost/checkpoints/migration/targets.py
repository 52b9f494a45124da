"""Targets: the same weights in an architecture of transformers with other positions, which any engine loads.

    rope            GPT-NeoX: sequential residual, biases, all channels of a head turned, base 10000
    alibi           Falcon: sequential residual, biases, heads apart, alibi = true
    nope            GPT-2 and OPT as they are with a table of zeros (it still ends where the table ends); Llama's kind
                    as SmolLM3 without rotation
    longer-table    GPT-2 and OPT as they are, with more rows

GPT-NeoX and Falcon keep q, k and v of each head side by side. Falcon's ALiBi is slope x key, rounded to bfloat16, and
divided by sqrt(D) with the logits: the model is tuned in that form. A lab model becomes a GPT-2 where its own
architecture stays.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from milepost.checkpoints.migration.body import Body
from milepost.checkpoints.model.quiet import quiet
from milepost.rope import ConfigError

BASE = 10000.0
NEOX = {
    "norm_1": "input_layernorm",
    "norm_2": "post_attention_layernorm",
    "out": "attention.dense",
    "up": "mlp.dense_h_to_4h",
    "down": "mlp.dense_4h_to_h",
}
FALCON = NEOX | {"out": "self_attention.dense"}
GPT2 = {"norm_1": "ln_1", "norm_2": "ln_2", "out": "attn.c_proj", "up": "mlp.c_fc", "down": "mlp.c_proj"}


def to_neox(body: Body, length: int) -> Any:
    """A GPT-NeoX for ``length`` tokens; the older keys say the same to engines that read those."""
    import transformers

    if body.head_dim % 2:
        raise ConfigError(
            f"rope turns channels in pairs, and the heads of this model have {body.head_dim} ({body.width} / "
            f"{body.heads}): move it to alibi instead"
        )
    config = transformers.GPTNeoXConfig(
        **_sizes(body, length), intermediate_size=body.inner, hidden_act=body.activation, layer_norm_eps=body.eps,
        use_parallel_residual=False, attention_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": BASE, "partial_rotary_factor": 1.0},
    )  # fmt: skip
    weights = {"gpt_neox.embed_in.weight": body.weights["tokens"], **_norm(body, "gpt_neox.final_layer_norm")}
    weights |= _fused_layers(body, "gpt_neox.layers", NEOX, "attention.query_key_value")
    return _made(transformers.GPTNeoXForCausalLM, config, weights)


def to_falcon(body: Body, length: int) -> Any:
    """A Falcon with ALiBi for ``length`` tokens."""
    import transformers

    config = transformers.FalconConfig(
        **_sizes(body, length), ffn_hidden_size=body.inner, activation=body.activation, layer_norm_epsilon=body.eps,
        alibi=True, new_decoder_architecture=False, multi_query=False, parallel_attn=False, bias=True,
    )  # fmt: skip
    weights = {"transformer.word_embeddings.weight": body.weights["tokens"], **_norm(body, "transformer.ln_f")}
    weights |= _fused_layers(body, "transformer.h", FALCON, "self_attention.query_key_value")
    return _made(transformers.FalconForCausalLM, config, weights)


def to_gpt2(body: Body, table: Tensor) -> Any:
    """A GPT-2 with ``table`` (rows, C): what a lab model is, but for positions."""
    import transformers

    config = transformers.GPT2Config(
        vocab_size=body.vocabulary, n_positions=len(table), n_embd=body.width, n_layer=body.layers, n_head=body.heads,
        n_inner=body.inner, activation_function=body.activation, resid_pdrop=body.dropout, embd_pdrop=body.dropout,
        attn_pdrop=body.attention_dropout, layer_norm_epsilon=body.eps, tie_word_embeddings=body.tied, **body.special,
    )  # fmt: skip
    weights = {
        "transformer.wte.weight": body.weights["tokens"],
        "transformer.wpe.weight": table,
        "lm_head.weight": body.weights["head"],
    }
    weights |= _norm(body, "transformer.ln_f")
    for n in range(body.layers):
        for name, value in _layer(body, n, f"transformer.h.{n}", GPT2).items():
            weights[name] = value.T if value.ndim == 2 else value
        qkv = [torch.cat([body.weights[f"{n}.{name}.{part}"] for name in "qkv"]) for part in ("weight", "bias")]
        weights |= {f"transformer.h.{n}.attn.c_attn.weight": qkv[0].T, f"transformer.h.{n}.attn.c_attn.bias": qkv[1]}
    return _made(transformers.GPT2LMHeadModel, config, weights)


def with_table(model: Any, table: Tensor) -> Any:
    """The same GPT-2 or OPT with another table (offset + rows, C)."""
    config = type(model.config).from_dict(model.config.to_dict())
    name, offset = (
        ("transformer.wpe.weight", 0) if config.model_type == "gpt2" else ("model.decoder.embed_positions.weight", 2)
    )
    config.max_position_embeddings = len(table) - offset
    if hasattr(config, "n_ctx"):  # older GPT-2 configs say it twice
        config.n_ctx = len(table)
    return _made(type(model), config, {**model.state_dict(), name: table})


def to_smollm3(model: Any) -> Any:
    """A Llama, or one of its kind, as a SmolLM3 none of whose layers turns. Biases that only SmolLM3 has are zero."""
    import transformers

    old = model.config
    heads = int(getattr(old, "head_dim", None) or old.hidden_size // old.num_attention_heads)
    held = model.state_dict()
    biased, mlp_biased = (any(f".{part}.bias" in name for name in held) for part in ("q_proj", "gate_proj"))
    config = transformers.SmolLM3Config(  # type: ignore[call-arg]
        vocab_size=old.vocab_size, hidden_size=old.hidden_size, intermediate_size=old.intermediate_size,
        num_hidden_layers=old.num_hidden_layers, num_attention_heads=old.num_attention_heads,
        num_key_value_heads=old.num_key_value_heads, hidden_act=old.hidden_act,
        max_position_embeddings=old.max_position_embeddings, rms_norm_eps=old.rms_norm_eps, attention_bias=biased,
        mlp_bias=mlp_biased, attention_dropout=old.attention_dropout or 0.0,
        tie_word_embeddings=bool(old.tie_word_embeddings), use_sliding_window=False, no_rope_layers=[0] *
        old.num_hidden_layers, layer_types=["full_attention"] * old.num_hidden_layers, head_dim=heads,
        bos_token_id=old.bos_token_id, eos_token_id=old.eos_token_id, pad_token_id=old.pad_token_id,
    )  # fmt: skip
    if biased:
        held |= {
            f"model.layers.{n}.self_attn.o_proj.bias": torch.zeros(old.hidden_size)
            for n in range(old.num_hidden_layers)
        } | held
    return _made(transformers.SmolLM3ForCausalLM, config, held)


def _sizes(body: Body, length: int) -> dict[str, Any]:
    """Keys that the configs of GPT-NeoX and Falcon share."""
    return {
        "vocab_size": body.vocabulary, "hidden_size": body.width, "num_hidden_layers": body.layers,
        "num_attention_heads": body.heads, "attention_dropout": body.attention_dropout,
        "hidden_dropout": body.dropout, "max_position_embeddings": length, "tie_word_embeddings": body.tied,
        **body.special,
    }  # fmt: skip


def _norm(body: Body, name: str) -> dict[str, Tensor]:
    return {f"{name}.{part}": body.weights[f"norm.{part}"] for part in ("weight", "bias")}


def _layer(body: Body, n: int, prefix: str, names: dict[str, str]) -> dict[str, Tensor]:
    return {
        f"{prefix}.{theirs}.{part}": body.weights[f"{n}.{ours}.{part}"]
        for ours, theirs in names.items()
        for part in ("weight", "bias")
    }


def _fused_layers(body: Body, prefix: str, names: dict[str, str], attention: str) -> dict[str, Tensor]:
    """The head and all layers, with q, k and v of each head side by side: (H 3 D, C)."""
    weights = {"lm_head.weight": body.weights["head"]}
    for n in range(body.layers):
        weights |= _layer(body, n, f"{prefix}.{n}", names)
        for part in ("weight", "bias"):
            rows = [body.weights[f"{n}.{name}.{part}"] for name in "qkv"]
            heads = torch.stack([row.view(body.heads, body.head_dim, *row.shape[1:]) for row in rows], 1)
            weights[f"{prefix}.{n}.{attention}.{part}"] = heads.flatten(0, 2)
    return weights


def _made(kind: Any, config: Any, weights: dict[str, Tensor]) -> Any:
    """A model of transformers with exactly these weights, copied."""
    with quiet(), torch.random.fork_rng(devices=[]):
        model = kind(config).eval()
        model.load_state_dict({name: value.detach().clone() for name, value in weights.items()}, strict=True)
        model.tie_weights()
    return model.to(next(iter(weights.values())).device)
