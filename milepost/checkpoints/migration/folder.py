"""The folder of a migrated model: what `measure.folder` writes, with weights of another architecture.

    config.json, *.safetensors    of the new architecture, in the precision of the source
    tokenizer and other files     the source's; a lab model of 256 tokens reads bytes, and gets a tokenizer that says so
    milepost.json, milepost/      what was done, and the report

The swapped model, before it is tuned, is a folder of the same kind, which tuning begins with.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from milepost.checkpoints.files import INDEX, SourceFiles, write_config, write_files
from milepost.checkpoints.migration.source import Origin
from milepost.checkpoints.model.quiet import quiet
from milepost.measure.folder import saving
from milepost.measure.results import write
from milepost.rope.config.files import load

BYTES = 256


def save(model: Any, dtype: torch.dtype, folder: Path) -> SourceFiles:
    """Write a model of transformers as a checkpoint; what `model.tune` begins with."""
    held = {name: value.to(dtype) if value.is_floating_point() else value for name, value in model.state_dict().items()}
    with quiet(), saving("the swapped model", folder):
        model.save_pretrained(folder, state_dict=held)
    raw = dict(load(folder / "config.json")) | {"dtype": str(dtype).removeprefix("torch.")}
    if model.config.model_type == "gpt_neox":  # engines that read older configs
        raw |= {"rotary_pct": 1.0, "rotary_emb_base": int(model.config.rope_parameters["rope_theta"])}
    write_config(folder / "config.json", raw)
    return SourceFiles(str(folder), folder, raw, "", tuple(sorted(path.name for path in folder.glob("*.safetensors"))))


def write_rest(origin: Origin, start: SourceFiles, served: int, work: Path, tell: Callable[[str], None]) -> None:
    """Everything but the weights."""
    others = tuple(name for name in origin.files.others if name != INDEX)
    write_files(replace(origin.files, others=others), start.config, served, work, tell)
    if origin.family == "lab" and origin.loaded.vocabulary == BYTES:
        write(work / "tokenizer.json", json.dumps(byte_tokenizer(), ensure_ascii=False) + "\n")
        write(
            work / "tokenizer_config.json",
            json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": served}) + "\n",
        )


def byte_tokenizer() -> dict[str, Any]:
    """tokenizer.json whose tokens are the 256 bytes, in order: byte-level BPE without a merge.

    Its alphabet is GPT-2's: bytes that can be printed stand for themselves, the others for characters from 256 on.
    """
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    moved = [byte for byte in range(BYTES) if byte not in plain]
    vocabulary = {chr(byte): byte for byte in plain} | {chr(BYTES + n): byte for n, byte in enumerate(moved)}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model: dict[str, Any] = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False,
        "byte_fallback": False, "vocab": dict(sorted(vocabulary.items(), key=lambda pair: pair[1])), "merges": [],
    }  # fmt: skip
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
        "pre_tokenizer": level, "post_processor": None, "decoder": level, "model": model,
    }  # fmt: skip
