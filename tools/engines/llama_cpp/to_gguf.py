"""From a config to a GGUF file: marked weights of transformers' class, converted by llama.cpp's own script."""

# ruff: noqa: E402

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}

import numpy as np
import torch
from library import SOURCE
from probe import NotMeasured

sys.path[:0] = [str(SOURCE / "gguf-py"), str(SOURCE)]
import convert_hf_to_gguf as converter
import gguf
from write_weights import MARK, TOKENS

WORDS = ["<unk>", "<s>", "</s>", "<0x0A>", *(f"▁{i}" for i in range(4, TOKENS))]
logging.disable(logging.WARNING)


@cache
def _writer() -> subprocess.Popen[str]:
    """The process that writes weights."""
    newest = {**os.environ, "PYTHONPATH": str(Path(sys.prefix) / "newest")}
    script = Path(__file__).with_name("write_weights.py")
    return subprocess.Popen(
        [sys.executable, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=newest
    )


def save(config: dict[str, Any], folder: Path) -> None:
    """A checkpoint of a config with marked weights; config.json is the config as it was given."""
    process = _writer()
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(json.dumps({"config": config, "folder": str(folder)}) + "\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        _writer.cache_clear()
        raise NotMeasured("the process that writes weights ended")
    if reason := json.loads(answer):
        raise NotMeasured(reason)


def convert(folder: Path, out: Path) -> None:
    """What `convert_hf_to_gguf.py FOLDER --outtype f32 --outfile OUT` does, but for the vocabulary."""
    with torch.inference_mode():
        hparams = converter.ModelBase.load_hparams(folder, False)
        name = converter.get_model_architecture(hparams, converter.ModelType.TEXT)
        try:
            if hasattr(converter, "get_model_class"):
                kind = converter.get_model_class(name)
            else:
                kind = converter.ModelBase.from_model_architecture(name, model_type=converter.ModelType.TEXT)
        except NotImplementedError:
            raise NotMeasured(f"llama.cpp's converter has no {name}") from None
        text = next(parent for parent in kind.__mro__ if parent.__name__ == "TextModel")
        text.get_vocab_base_pre = lambda self, tokenizer: "default"
        if hasattr(kind, "no_mtp"):
            kind.no_mtp = True  # as --no-mtp does: the small model has no layer that drafts
        model = kind(folder, gguf.LlamaFileType.ALL_F32, out, eager=True)
        model = getattr(model, "impl", model)  # Mistral 3 chooses between two
        model.set_vocab = lambda: _write_vocabulary(model.gguf_writer)
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
            model.write()


def _write_vocabulary(writer: Any) -> None:
    """Some tokens in place of the model's."""
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(WORDS)
    writer.add_token_scores([0.0] * TOKENS)
    writer.add_token_type_count(2)
    writer.add_token_types([2, 3, 3, 6, *[1] * (TOKENS - 4)])


class File:
    """A GGUF file: its keys, and where the rows of q and k come from."""

    def __init__(self, path: Path):
        self.reader = gguf.GGUFReader(path)
        self.tensors = {tensor.name: tensor for tensor in self.reader.tensors}
        self.arch = str(self.key("general.architecture"))

    def key(self, name: str) -> Any:
        held = self.reader.get_field(name)
        return None if held is None else held.contents()

    def own(self, name: str) -> Any:
        """A key of the architecture."""
        return self.key(f"{self.arch}.{name}")

    def order(self, layer: int, width: int) -> np.ndarray:
        """For each channel that the engine turns, the channel of the source's head that it is."""
        orders = []
        for part in ("q", "k"):
            names = [f"blk.{layer}.attn_{n}.weight" for n in (part, f"{part}_b", "qkv")]
            name = next((n for n in names if n in self.tensors), None)
            if name is None or (part == "k" and "qkv" in name) or (part == "k" and self.own("attention.kv_lora_rank")):
                continue
            marks = np.asarray(self.tensors[name].data)[:, 0] / MARK
            heads = self.own("attention.head_count")
            heads = heads[layer] if isinstance(heads, list) else heads
            size = self.own("attention.key_length") or self.own("embedding_length") // heads
            if self.own("attention.kv_lora_rank"):
                size = len(marks) // heads
            rows = np.rint(marks[:size][-width:]).astype(int)
            orders.append(rows - rows.min())
        if not orders:
            raise NotMeasured("the file has no rows of q that are known")
        if any(not np.array_equal(orders[0], other) for other in orders[1:]):
            raise ValueError("the converter reorders q and k differently")
        if sorted(orders[0]) != list(range(width)):
            raise NotMeasured(f"rows of one head come from several places: {orders[0][:6]}")
        return orders[0]
