"""safetensors files and their index: the header's JSON changed, its length, the offsets, the end of the file."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path
from typing import Any

from milepost.checkpoints import inspect
from milepost.checkpoints.files.tensors import INDEX, in_folder, values
from tools.attack.mutation import NUMBERS, as_json, changed, damaged
from tools.attack.seeds import checkpoint

WORDS = ("F32", "F16", "BF16", "F64", "I64", "BOOL", "F8_E4M3", "dtype", "shape", "data_offsets", "__metadata__")


def prepare(folder: Path) -> Any:
    """A tiny GPT-2, which has a table of positions to be read."""
    source = checkpoint(folder / "model", "gpt2")
    raw = (source / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    return source, json.loads(raw[8 : 8 + size]), raw[8 + size :]


def attack(state: Any, rng: random.Random) -> None:
    """One file, and sometimes an index."""
    folder, header, data = state
    made = changed(header, rng, WORDS) if rng.random() < 0.8 else dict(header)
    if rng.random() < 0.1 and isinstance(made, dict):
        made["many"] = {"dtype": "F32", "shape": [1] * rng.choice((17, 200000)), "data_offsets": [0, 4]}
    head = as_json(made)
    head = damaged(head, rng) if rng.random() < 0.2 else head
    size = len(head) if rng.random() < 0.9 else rng.choice(NUMBERS[:14]) & (2**64 - 1)
    body = data[: rng.randrange(len(data))] if rng.random() < 0.2 else data
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", size) + head + body)
    index = folder / INDEX
    index.unlink(missing_ok=True)
    if rng.random() < 0.05:
        index.write_bytes(as_json(changed({"weight_map": dict.fromkeys(header, "model.safetensors")}, rng)))
    held, _ = in_folder(folder, complete=rng.random() < 0.5)
    inspect(folder, weights=True, allow_unknown=True)
    for tensor in rng.sample(list(held.values()), min(3, len(held))):
        if tensor.plain:
            values(tensor)
