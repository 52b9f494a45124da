"""Which rows of a checkpoint's tensors are heads of q and k: for `convert_layout`.

A projection is a list of heads, each of head_dim rows. Written as letters, with H query heads and G key heads:

    q_proj, k_proj       q...q | k...k                 Llama, Qwen, Gemma, OLMo, Phi, GPT-J, Cohere, GLM, ...
    query_key_value      qkv qkv ... (H times)         GPT-NeoX, Persimmon, Falcon with as many keys as queries
                         q...q k v   (G times)         Falcon with multi-query (G = 1), or its new decoder
    qkv_proj, Wqkv       q...q k...k v...v             Phi-3, ModernBERT
    qkv_proj             q...q v...v k...k (4 times)   CodeGen: one for each of four TPU cores

In every head that is a q or a k, the first `rotary` rows are put in another order; a v is never moved. A norm of q or
k has one number a channel, for one head or for all of them, and moves with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from milepost.checkpoints.files import PLAIN, StoredTensor
from milepost.rope import LayerRope, RopeSpec
from milepost.rope.config.keys import ConfigError, short
from milepost.rotation import Pairing, permutation

NORMS = {"q_norm": "q", "q_layernorm": "q", "k_norm": "k", "k_layernorm": "k"}
LAYER = re.compile(
    r"(?:(?:model|transformer|gpt_neox|language_model)\.)*(?:layers|h)\.(\d+)"
    r"\.(?:self_attn|self_attention|attention|attn)\.(\w+)\.(.+)"
)
"""A tensor of a text model's attention: layer, module in it, the rest. Towers of other modalities have other names."""


@dataclass(frozen=True)
class HeadRows:
    """How the rows of a tensor move: its heads as letters, the rows of a head, and how many of those are rotated."""

    heads: str
    head_dim: int
    rotary: int

    def order(self, to: Pairing) -> Tensor:
        """The old number of each new row."""
        rows = torch.arange(len(self.heads) * self.head_dim).reshape(len(self.heads), self.head_dim)
        turned = torch.tensor([letter in "qk" for letter in self.heads])
        rows[turned, : self.rotary] = rows[turned][:, permutation(self.rotary, to=to)]
        return rows.reshape(-1)


# -- what each model type has ----------------------------------------------------------------------------------------


def _heads(config: Any) -> tuple[int, int]:
    return config.num_attention_heads, getattr(config, "num_key_value_heads", None) or config.num_attention_heads


def _separate(config: Any) -> dict[str, str]:
    H, G = _heads(config)
    return {"q_proj": "q" * H, "k_proj": "k" * G}


def _phi3(config: Any) -> dict[str, str]:
    H, G = _heads(config)
    return {"qkv_proj": "q" * H + "k" * G + "v" * G}


def _modernbert(config: Any) -> dict[str, str]:
    H = config.num_attention_heads
    return {"Wqkv": "q" * H + "k" * H + "v" * H}


def _head_by_head(config: Any) -> dict[str, str]:
    return {"query_key_value": "qkv" * config.num_attention_heads}


def _falcon(config: Any) -> dict[str, str]:
    H = config.num_attention_heads
    if not config.new_decoder_architecture and not config.multi_query:
        return {"query_key_value": "qkv" * H}
    G = config.num_kv_heads if config.new_decoder_architecture else 1
    if H % G:
        raise ConfigError(
            f"num_attention_heads = {H} is no multiple of num_kv_heads = {G}: Falcon's query heads can't be shared out"
        )
    return {"query_key_value": ("q" * (H // G) + "kv") * G}


def _codegen(config: Any) -> dict[str, str]:
    H, cores = config.num_attention_heads, 4
    if H % cores:
        raise ConfigError(
            f"num_attention_heads = {H} is no multiple of {cores}, the parts that CodeGen's qkv_proj is made of"
        )
    return {"qkv_proj": ("q" * (H // cores) + "v" * (H // cores) + "k" * (H // cores)) * cores}


SEPARATE = (
    *("llama", "mistral", "ministral", "mixtral", "arcee", "seed_oss", "starcoder2", "smollm3"),
    *("granite", "granitemoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text"),
    *("gpt_oss", "olmo", "olmo2", "olmo3", "olmoe", "phi", "phimoe", "stablelm", "nemotron"),
    *("gptj", "cohere", "cohere2", "glm", "glm4", "helium", "ernie4_5"),
)
MODELS: dict[str, Callable[[Any], dict[str, str]]] = {
    **dict.fromkeys(SEPARATE, _separate),
    "gpt_neox": _head_by_head,
    "persimmon": _head_by_head,
    "falcon": _falcon,
    "phi3": _phi3,
    "modernbert": _modernbert,
    "codegen": _codegen,
}
"""By ``model_type`` of the text model: the heads in each projection that holds q or k. Each has a test by logits."""


# -- what a checkpoint has -------------------------------------------------------------------------------------------


def find_head_rows(config: Any, spec: RopeSpec, tensors: Mapping[str, StoredTensor]) -> dict[str, HeadRows]:
    """The tensors to rewrite, by name, for a text model's ``config`` of transformers. Raises where one does not fit."""
    heads = MODELS[config.model_type](config)
    ropes = layers(config, spec)
    missing = dict.fromkeys((n, module) for n, rope in enumerate(ropes) if rope is not None for module in heads)
    rows: dict[str, HeadRows] = {}
    for name, tensor in tensors.items():
        match = LAYER.fullmatch(name)
        if match is None or match[2] not in (*heads, *NORMS):
            continue
        layer, module, rest = int(match[1]), match[2], match[3]
        if layer >= len(ropes):
            raise ConfigError(
                f"the config has {len(ropes)} layers, and there is a tensor {name} of layer {layer}: "
                "config and weights don't belong together"
            )
        rope = ropes[layer]
        if rope is None:
            continue
        _check_plain(tensor, rest, module)
        rows[name] = (
            _projection(tensor, rest, heads[module], rope)
            if module in heads
            else _norm(tensor, NORMS[module], "".join(heads.values()).count(NORMS[module]), rope)
        )
        if rest == "weight":
            missing.pop((layer, module), None)
    if missing:
        layer, module = next(iter(missing))
        raise ConfigError(
            f"{len(missing)} weights of q and k are not in the checkpoint: layer {layer} has no {module}.weight, "
            f"where a model of type {config.model_type!r} keeps them; there are {short(_some(tensors, layer))}"
        )
    return rows


def layers(config: Any, spec: RopeSpec) -> list[LayerRope | None]:
    """The rope of each layer; None where it does not rotate."""
    count: int = config.num_hidden_layers
    if spec.layers and len(spec.layers) != count:
        raise ConfigError(f"the config lists {len(spec.layers)} layers, and num_hidden_layers = {count}")
    return [spec.layer(n) for n in range(count)]


def _check_plain(tensor: StoredTensor, rest: str, module: str) -> None:
    """Refuse tensors whose rows are not the channels of q and k: packed numbers, their scales, adapters."""
    leaf = rest.rsplit(".", 1)[-1]
    if leaf not in ("weight", "bias") or (
        rest != leaf and not (module in NORMS and re.fullmatch(r"norms\.\d+\.\w+", rest))
    ):
        raise ConfigError(
            f"{tensor.name} belongs to a quantised weight or an adapter: the rows of q and k can't be moved there. "
            "Convert the unquantised model, with adapters merged into it, and quantise the result"
        )
    if not tensor.plain:
        raise ConfigError(
            f"{tensor.name} has dtype {tensor.dtype}: q and k can be converted in {', '.join(PLAIN)}. "
            "Convert the unquantised model, and quantise the result"
        )


def _projection(tensor: StoredTensor, rest: str, letters: str, rope: LayerRope) -> HeadRows:
    rows = len(letters) * rope.head_dim
    if tensor.shape[:1] != (rows,) or len(tensor.shape) != (2 if rest == "weight" else 1):
        counts = ", ".join(f"{letters.count(letter)} heads of {letter}" for letter in "qkv" if letter in letters)
        raise ConfigError(
            f"{tensor.name} has shape {list(tensor.shape)}, and the config says {counts}, of {rope.head_dim} channels "
            f"each: {rows} rows. Config and weights don't belong together"
        )
    return HeadRows(letters, rope.head_dim, rope.rotary)


def _norm(tensor: StoredTensor, letter: str, most: int, rope: LayerRope) -> HeadRows:
    """A norm of q or k, for each head alike or for all ``most`` heads."""
    count, left = divmod(tensor.count, rope.head_dim)
    if left or count not in (1, most):
        raise ConfigError(
            f"{tensor.name} has shape {list(tensor.shape)}: a norm of {letter} has {rope.head_dim} numbers, for each "
            f"head alike, or {most * rope.head_dim}, for {most} heads of {rope.head_dim}"
        )
    return HeadRows(letter * count, rope.head_dim, rope.rotary)


def _some(names: Iterable[str], layer: int) -> list[str]:
    """Names to show for a layer where something is missing: its attention's, else any."""
    names = list(names)
    return [name for name in names if f".{layer}." in name and ("attn" in name or "attention" in name)][:3] or names[:3]
