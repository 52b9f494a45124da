"""Body: a GPT-2-like decoder without its positions, in plain names, whatever family it came from.

    x = tokens[ids] + old[p]
    x += out(attention(norm_1(x)));    x += down(act(up(norm_2(x))))      for each layer
    logits = head(norm(x))

GPT-2    weights are stored transposed (Conv1D), q, k and v in one. Its factors on attention logits are put into q: then
         they are 1/sqrt(D), as elsewhere
OPT      q, k and v apart; the first two rows of its table serve no position
lab      no biases in attention: zeros

``old`` holds what was added at each position (a learned table's usable rows, or a sinusoidal code): never part of
``weights``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from milepost.encodings.sinusoidal import Sinusoidal
from milepost.lab.model import Decoder
from milepost.rope import ConfigError

ACTIVATIONS = ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu")
LAYER = ("norm_1", "q", "k", "v", "out", "norm_2", "up", "down")
OPT_OFFSET = 2
SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id")


@dataclass(frozen=True)
class Body:
    """A decoder without positions.

    ``weights`` by plain names: tokens, head, norm.weight, 0.q.weight (C C), 0.q.bias (C) ...
    """

    vocabulary: int
    width: int
    layers: int
    heads: int
    inner: int
    activation: str
    eps: float
    tied: bool
    dropout: float
    attention_dropout: float
    special: Mapping[str, Any]
    weights: Mapping[str, Tensor]
    old: Tensor

    def __post_init__(self) -> None:
        if self.activation not in ACTIVATIONS:
            raise ConfigError(
                f"the activation {self.activation!r} is none of {', '.join(ACTIVATIONS)}, which are those that "
                "the new architectures have"
            )
        expected = {"tokens", "head", "norm.weight", "norm.bias"}
        expected |= {f"{n}.{name}.{part}" for n in range(self.layers) for name in LAYER for part in ("weight", "bias")}
        assert set(self.weights) == expected

    @property
    def head_dim(self) -> int:
        """Channels of a head."""
        return self.width // self.heads


def of_gpt2(model: Any) -> Body:
    """The body of transformers' GPT2LMHeadModel."""
    config, inner = model.config, model.transformer
    if config.add_cross_attention:
        raise ConfigError(
            "this GPT-2 has cross-attention (add_cross_attention), which the new architectures have no place for: "
            "only decoders alone can be moved"
        )
    width = config.n_embd
    weights: dict[str, Tensor] = {"tokens": inner.wte.weight, "head": model.lm_head.weight, **_pair("norm", inner.ln_f)}
    for n, block in enumerate(inner.h):
        factor = block.attn.scaling * math.sqrt(width // config.n_head)
        for part, (weight, bias) in enumerate(
            zip(block.attn.c_attn.weight.T.split(width), block.attn.c_attn.bias.split(width), strict=True)
        ):
            times = factor if part == 0 else 1.0
            weights |= {f"{n}.{'qkv'[part]}.weight": weight * times, f"{n}.{'qkv'[part]}.bias": bias * times}
        for name, linear in (("out", block.attn.c_proj), ("up", block.mlp.c_fc), ("down", block.mlp.c_proj)):
            weights |= {f"{n}.{name}.weight": linear.weight.T, f"{n}.{name}.bias": linear.bias}
        weights |= _pair(f"{n}.norm_1", block.ln_1) | _pair(f"{n}.norm_2", block.ln_2)
    return Body(
        config.vocab_size, width, config.n_layer, config.n_head, config.n_inner or 4 * width,
        config.activation_function, config.layer_norm_epsilon, bool(config.tie_word_embeddings), config.resid_pdrop,
        config.attn_pdrop, _special(config), _own(weights), inner.wpe.weight.detach().clone(),
    )  # fmt: skip


def of_opt(model: Any) -> Body:
    """The body of transformers' OPTForCausalLM."""
    config, inner = model.config, model.model.decoder
    if (
        not config.do_layer_norm_before
        or config.word_embed_proj_dim != config.hidden_size
        or inner.final_layer_norm is None
    ):
        raise ConfigError(
            "this OPT normalises after its layers, or projects its embeddings (as OPT-350m does), which the new "
            "architectures have no place for: "
            "rope and alibi take OPT models that normalise before; nope and longer-table take this one"
        )
    weights: dict[str, Tensor] = {
        "tokens": inner.embed_tokens.weight,
        "head": model.lm_head.weight,
        **_pair("norm", inner.final_layer_norm),
    }
    for n, layer in enumerate(inner.layers):
        attention = layer.self_attn
        names = {
            "q": attention.q_proj,
            "k": attention.k_proj,
            "v": attention.v_proj,
            "out": attention.out_proj,
            "up": layer.fc1,
            "down": layer.fc2,
        }
        for name, part in (*names.items(), ("norm_1", layer.self_attn_layer_norm), ("norm_2", layer.final_layer_norm)):
            weights |= _pair(f"{n}.{name}", part)
    return Body(
        config.vocab_size, config.hidden_size, config.num_hidden_layers, config.num_attention_heads, config.ffn_dim,
        config.activation_function, inner.final_layer_norm.eps, bool(config.tie_word_embeddings), config.dropout,
        config.attention_dropout, _special(config), _own(weights),
        inner.embed_positions.weight[OPT_OFFSET:].detach().clone(),
    )  # fmt: skip


def of_lab(model: Decoder) -> Body:
    """The body of a lab model, whose table or code is the first layer's encoding."""
    shape = model.shape
    enc: Any = model.encodings[0]
    weights: dict[str, Tensor] = {"tokens": model.tokens.weight, "head": model.head.weight, **_pair("norm", model.norm)}
    for n, block in enumerate(model.blocks):
        made: Any = block
        for name, weight in (*zip("qkv", made.qkv.weight.chunk(3), strict=True), ("out", made.out.weight)):
            weights |= {f"{n}.{name}.weight": weight, f"{n}.{name}.bias": weight.new_zeros(shape.width)}
        for name, part in (("norm_1", made.norm_1), ("norm_2", made.norm_2), ("up", made.up), ("down", made.down)):
            weights |= _pair(f"{n}.{name}", part)
    if isinstance(enc, Sinusoidal):
        old = enc.code(torch.arange(shape.length, device=model.device), torch.float32)
    else:
        old = enc.table[enc.offset :]
    old = old / model.code_spread
    return Body(
        shape.vocabulary, shape.width, shape.layers, shape.heads, 4 * shape.width, "gelu", model.norm.eps, False, 0.0,
        0.0, dict.fromkeys(SPECIAL), _own(weights), old.detach().clone(),
    )  # fmt: skip


def _pair(name: str, part: Any) -> dict[str, Tensor]:
    """Weight and bias; those that a part has not are what changes nothing."""
    weight, bias = part.weight, part.bias
    if weight is None:
        weight = torch.ones(part.normalized_shape)
    return {f"{name}.weight": weight, f"{name}.bias": weight.new_zeros(len(weight)) if bias is None else bias}


def _special(config: Any) -> dict[str, Any]:
    """Token ids that mean something, where the vocabulary has them."""
    ids = {name: getattr(config, name, None) for name in SPECIAL}
    known = range(config.vocab_size)
    return {name: value if not isinstance(value, int) or value in known else None for name, value in ids.items()}


def _own(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone().contiguous() for name, value in weights.items()}


def table_of(model: nn.Module) -> tuple[nn.Embedding, int] | None:
    """The learned table of a GPT-2 or an OPT, and the rows before its first position."""
    decoder: Any = model
    kind = getattr(getattr(model, "config", None), "model_type", None)
    if kind == "gpt2":
        return decoder.transformer.wpe, 0
    return (decoder.model.decoder.embed_positions, OPT_OFFSET) if kind == "opt" else None
