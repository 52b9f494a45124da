"""Writes checkpoints of configs, one for each line that comes in: {"config": ..., "folder": ...}. Answers a line each.

Runs in a process of its own, since it needs a newer transformers, which knows more models, than llama.cpp's converter.

In every matrix, the first column of row r is r / 4096. The converter reorders rows of q and k for some architectures
and splits or joins matrices for others; the marks say where each row of the source went.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedTokenizerFast,
)
from transformers.models.qwen2_5_omni.configuration_qwen2_5_omni import Qwen2_5OmniTextConfig
from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import Qwen2_5OmniThinkerTextModel
from transformers.utils import logging

MARK, TOKENS = 1 / 4096, 64
SAME = {"kimi_k2": "deepseek_v3"}
"""Model types that transformers builds as another."""
SCALED = ("rope_scaling", "rope_parameters", "rope_theta")


def plain(config: dict[str, Any]) -> dict[str, Any]:
    """The config without what is about its rotation, which has no part in the weights: no class stops at it."""
    return {key: plain(value) if key in ("text_config", "thinker_config") else value
            for key, value in config.items() if key not in SCALED}  # fmt: skip


NAMES = {
    "internlm2": ("attention.wqkv", "attention.wo", "feed_forward.w1", "feed_forward.w3", "feed_forward.w2",
                  "attention_norm", "ffn_norm", "model.tok_embeddings", "output"),
    "baichuan": ("self_attn.W_pack", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
                 "input_layernorm", "post_attention_layernorm", "model.embed_tokens", "lm_head"),
}  # fmt: skip
"""Models that transformers has no class for: the names that their authors' code gives to the weights of a Llama, with
q, k and v in one matrix."""


def packed(config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The weights of one of `NAMES`; InternLM2's matrix has the rows of a group of heads together."""
    width, inner, depth = (config[n] for n in ("hidden_size", "intermediate_size", "num_hidden_layers"))
    rows = (config["num_attention_heads"] + 2 * config["num_key_value_heads"]) * width // config["num_attention_heads"]
    shapes = ((rows, width), (width, width), (inner, width), (inner, width), (width, inner), (width,), (width,))
    *inside, first, last = NAMES[config["model_type"]]
    made = {f"model.layers.{n}.{name}.weight": torch.randn(shape)
            for n in range(depth) for name, shape in zip(inside, shapes, strict=True)}  # fmt: skip
    table = {f"{name}.weight": torch.randn(TOKENS, width) for name in (first, last)}
    return made | table | {"model.norm.weight": torch.ones(width)}


def thinking(config: dict[str, Any]) -> dict[str, torch.Tensor]:
    """The weights of the text model of Qwen2.5-Omni: its class would make the towers and the talker, too."""
    given = plain(config["thinker_config"]["text_config"])
    model = Qwen2_5OmniThinkerTextModel(Qwen2_5OmniTextConfig(**given))
    held = {f"thinker.model.{name}": weight.detach().clone() for name, weight in model.named_parameters()}
    return held | {"thinker.lm_head.weight": torch.randn(TOKENS, given["hidden_size"])}


def mark(weights: Iterable[torch.Tensor]) -> None:
    """Write the number of each row into its first column."""
    with torch.no_grad():
        for weight in weights:
            if weight.dim() == 2:
                weight[:, 0] = torch.arange(len(weight)) * MARK


def save(config: dict[str, Any], folder: Path) -> str:
    """A checkpoint of a config with marked weights; what is returned is why there is none."""
    if config["model_type"] in NAMES or "thinker_config" in config:
        weights = packed(config) if config["model_type"] in NAMES else thinking(config)
        mark(weights.values())
        folder.mkdir()
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        finish(config, folder)
        return ""
    given = plain(config)
    name = given.pop("model_type")
    if name in ("gpt_oss", "phi3"):
        given["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
    try:
        made = AutoConfig.for_model(SAME.get(name, name), **given)
    except Exception as error:
        return f"transformers has no class that would write the weights: {name}: {error}"
    reason = ""
    bare = str(config.get("architectures", [""])[0]).endswith("Model")
    for kind in (AutoModel,) if bare else (AutoModelForCausalLM, AutoModelForImageTextToText):
        try:
            model = kind.from_config(made, dtype=torch.float32)
            break
        except Exception as error:
            reason = reason or f"transformers builds no weights: {error}"
    else:
        return reason
    mark(model.parameters())
    model.save_pretrained(folder)
    finish(config, folder)
    return ""


def finish(config: dict[str, Any], folder: Path) -> None:
    """The files beside the weights: a tokenizer, and the config as it was given."""
    words = {f"w{i}": i for i in range(TOKENS)}
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordPiece(words, unk_token="w0"))).save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").unlink(missing_ok=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(save(asked["config"], Path(asked["folder"]))), flush=True)
