""".npy files of tokens: the header and its claims changed, the data cut."""

from __future__ import annotations

import io
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from milepost.checkpoints.model.text import read_text
from tools.attack.mutation import damaged

SHAPES = ("(10000000000000,)", "(4611686018427387904, 4)", "(-5,)", "(0,)", "(3, 3, 3)", "()", "(16,)")
KINDS = ("<i8", "<u8", "<i4", "<f4", "|O", "|S9", "<i16", ">i8", "|b1")


def prepare(folder: Path) -> Any:
    """A whole file, and where the attacked one is."""
    held = io.BytesIO()
    np.save(held, np.arange(400) % 32)
    return held.getvalue(), folder / "text.npy"


def attack(state: Any, rng: random.Random) -> None:
    """One file."""
    raw, file = state
    if rng.random() < 0.6:
        claims = f"'descr': '{rng.choice(KINDS)}', 'fortran_order': False, 'shape': {rng.choice(SHAPES)}, "
        head = f"{{{claims}}}"
        head = head.ljust(117) + "\n"
        raw = raw[:8] + len(head).to_bytes(2, "little") + head.encode() + raw[128:]
    file.write_bytes(damaged(raw, rng, 2) if rng.random() < 0.6 else raw)
    read_text(file, SimpleNamespace(vocabulary=32, name="a model", tokenizer=None, begin=None))  # type: ignore[arg-type]
