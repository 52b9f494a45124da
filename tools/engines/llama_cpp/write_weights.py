"""Writes checkpoints of configs, one for each line that comes in: {"config": ..., "folder": ...}. Answers a line each.

Runs in a process of its own, since it needs a newer transformers, which knows more models, than llama.cpp's converter.

In every matrix, the first column of row r is r / 4096. The converter reorders rows of q and k for some architectures
and splits or joins matrices for others; the marks say where each row of the source went.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging

MARK, TOKENS = 1 / 4096, 64
SAME = {"kimi_k2": "deepseek_v3"}
"""Model types that transformers builds as another."""
SCALED = ("rope_scaling", "rope_parameters", "rope_theta")


def plain(config: dict[str, Any]) -> dict[str, Any]:
    """The config without what is about its rotation, which has no part in the weights: no class stops at it."""
    return {key: plain(value) if key in ("text_config", "thinker_config") else value
            for key, value in config.items() if key not in SCALED}  # fmt: skip


def save(config: dict[str, Any], folder: Path) -> str:
    """A checkpoint of a config with marked weights; what is returned is why there is none."""
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
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 2:
                weight[:, 0] = torch.arange(len(weight)) * MARK
    model.save_pretrained(folder)
    words = {f"w{i}": i for i in range(TOKENS)}
    PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordPiece(words, unk_token="w0"))).save_pretrained(folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").unlink(missing_ok=True)
    return ""


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(save(asked["config"], Path(asked["folder"]))), flush=True)
