"""A GGUF file that was damaged on its way, compared with the checkpoint that it was converted from."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from milepost.checkpoints.gguf_parity.compare_gguf import compare_gguf
from milepost.rope import open_config
from tools.attack import gguf_files
from tools.attack.mutation import as_json, changed, damaged
from tools.attack.seeds import checkpoint, gguf_file


def prepare(folder: Path) -> Any:
    """A checkpoint, its config, and its file."""
    source = checkpoint(folder / "model")
    config = json.loads((source / "config.json").read_text())
    return source, config, gguf_file(folder).read_bytes(), folder / "attacked.gguf"


def attack(state: Any, rng: random.Random) -> None:
    """One pair: the file damaged, or the config beside it changed."""
    source, config, raw, file = state
    way = rng.randrange(3)
    made = damaged(raw[:4096], rng) + raw[4096:] if way == 0 else gguf_files._replaced(raw, rng) if way == 1 else raw
    file.write_bytes(made)
    (source / "config.json").write_bytes(as_json(changed(config, rng) if way == 2 else config))
    compare_gguf(open_config(str(source), allow_unknown=True), open_config(str(file), allow_unknown=True))
