"""GGUF files: lengths, counts, types and offsets changed, arrays nested, files cut, or sparse and huge."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

from milepost.checkpoints import inspect
from milepost.checkpoints.files.tensors import in_gguf, values
from milepost.rope.config.gguf_header import metadata
from tools.attack.mutation import NUMBERS, damaged
from tools.attack.seeds import gguf_file

U32, U64, TEXT, ARRAY = 4, 10, 8, 9
HUGE = 1 << 36
"""Bytes of a sparse file, which takes no room."""


def prepare(folder: Path) -> Any:
    """A whole file, and the place of the attacked one."""
    return gguf_file(folder).read_bytes(), folder / "attacked.gguf"


def attack(state: Any, rng: random.Random) -> None:
    """One file."""
    raw, file = state
    shape = rng.randrange(4)
    made = damaged(raw[:4096], rng) + raw[4096:] if shape == 0 else _replaced(raw, rng) if shape == 1 else _built(rng)
    file.write_bytes(made)
    if rng.random() < 0.15:
        with file.open("r+b") as opened:
            opened.truncate(HUGE)
    metadata(file)
    held = in_gguf(file)
    inspect(file, weights=rng.random() < 0.5, allow_unknown=True)
    for tensor in rng.sample(list(held.values()), min(3, len(held))):
        if tensor.plain:
            values(tensor)


def _replaced(raw: bytes, rng: random.Random) -> bytes:
    """A file with one or two numbers of its header that are others."""
    made = bytearray(raw)
    for _ in range(rng.randrange(1, 3)):
        at = rng.randrange(4, min(len(made), 3000) - 8)
        made[at : at + 8] = struct.pack("<Q", rng.choice(NUMBERS[:14]) & (2**64 - 1))
    return bytes(made)


def _text(word: bytes) -> bytes:
    return struct.pack("<Q", len(word)) + word


def _built(rng: random.Random) -> bytes:
    """A header of arrays and tensors that no model has."""
    pairs = [_text(b"general.architecture") + struct.pack("<I", TEXT) + _text(rng.choice((b"llama", b"gpt2", b"x")))]
    for n in range(rng.randrange(4)):
        count = rng.choice((0, 1, 5, 4000, 10**6, 2**40, 2**63))
        kind = rng.choice((0, U32, 6, TEXT, ARRAY, U64, 77))
        body = bytes(rng.choice((0, 12, 400, 40000)))
        pairs.append(_text(b"llama.%d" % n) + struct.pack("<IIQ", ARRAY, kind, count) + body)
    tensors = [
        _text(rng.choice((b"rope_freqs.weight", b"token_embd.weight", b"position_embd.weight")))
        + struct.pack("<I", axes := rng.choice((0, 1, 2, 4, 9)))
        + b"".join(struct.pack("<Q", rng.choice(NUMBERS[:14]) & (2**64 - 1)) for _ in range(axes))
        + struct.pack("<IQ", rng.choice((0, 1, 2, 30, 99)), rng.choice((0, 32, 2**40, 2**63)))
        for _ in range(rng.randrange(3))
    ]
    claimed = [len(part) if rng.random() < 0.9 else rng.choice((10**6, 2**60)) for part in (tensors, pairs)]
    return b"GGUF" + struct.pack("<IQQ", 3, *claimed) + b"".join(pairs) + b"".join(tensors) + bytes(64)
