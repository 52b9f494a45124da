"""Tensors: what a checkpoint's files hold, and where; single tensors are read when they are asked for.

    safetensors    length of the header, u64 | a JSON object: name -> dtype, shape, data_offsets | the numbers
    sharded        model.safetensors.index.json: name -> file
    GGUF           see rope/config/gguf_header

Headers are a few kilobytes and need no torch. A file that is cut short is refused by its header alone, before a number is read.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.rope.config import gguf_header
from milepost.rope.config.files import load
from milepost.rope.config.keys import ConfigError, short

if TYPE_CHECKING:
    from torch import Tensor

ONE, INDEX = "model.safetensors", "model.safetensors.index.json"
BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U64": 8,
    "U32": 4,
    "U16": 2,
    "U8": 1,
    "BOOL": 1,
}
BYTES |= dict.fromkeys(("F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 1)
PLAIN = ("F64", "F32", "F16", "BF16")
"""What is read as numbers. All else is packed, or of a quantiser's making."""
GGUF_PLAIN = {0: "F32", 1: "F16", 28: "F64", 30: "BF16"}
LONGEST_HEADER = 100 << 20
"""Of a safetensors file, as that format has it."""
PICKLES = (".bin", ".pt", ".pth", ".ckpt")
NO_WEIGHTS = ("training_args", "optimizer", "scheduler", "rng_state", "scaler")
"""What trainers leave beside a model."""


@dataclass(frozen=True)
class Held:
    """One tensor: its file, its dtype in the file's words, its shape, and the bytes that hold it."""

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def plain(self) -> bool:
        """Whether its numbers can be read without undoing a quantisation."""
        return self.dtype in PLAIN


def in_folder(folder: Path) -> tuple[dict[str, Held], str]:
    """Every tensor of a folder's safetensors files; or none, and a word about what is there instead."""
    index, one = folder / INDEX, folder / ONE
    if index.is_file() and one.is_file():
        raise ConfigError(f"{folder} has {ONE} and {INDEX}: which of them holds the model? keep one; {ALONE}")
    if index.is_file():
        return _sharded(folder, index), ""
    if one.is_file():
        return in_safetensors(one), ""
    others = sorted(folder.glob("*.safetensors"))
    if len(others) == 1:
        return in_safetensors(others[0]), ""
    if others:
        raise ConfigError(
            f"{folder} has {len(others)} safetensors files and no {INDEX}, so it is not known which of them are the model"
        )
    pickled = [
        path.name
        for path in sorted(folder.iterdir())
        if path.suffix in PICKLES and not path.name.startswith(NO_WEIGHTS)
    ]
    if pickled:
        return (
            {},
            f"the weights are in {short(pickled[0])}, a pickle, which can run code and is not loaded: save them as safetensors",
        )
    return {}, f"{folder} has no weights ({ONE}, or {INDEX} and its files)"


def _sharded(folder: Path, index: Path) -> dict[str, Held]:
    listed = load(index).get("weight_map")
    if (
        not isinstance(listed, Mapping)
        or not listed
        or not all(isinstance(file, str) and file == Path(file).name for file in listed.values())
    ):
        raise ConfigError(f"{index} must have a weight_map from names of tensors to names of files beside it")
    missing = [name for name in sorted(set(listed.values())) if not (folder / name).is_file()]
    if missing:
        raise ConfigError(
            f"{index} names {len(missing)} files that are not there, the first is {short(missing[0])}; {ALONE}"
        )
    found: dict[str, Held] = {}
    for name in sorted(set(listed.values())):
        found |= in_safetensors(folder / name)
    lost = [name for name, file in listed.items() if name not in found or found[name].file.name != file]
    if lost:
        raise ConfigError(
            f"{index} and its files don't agree about {len(lost)} tensors, the first is {short(lost[0])}; {ALONE}"
        )
    return found


ALONE = "name config.json itself to read the config alone"


def in_safetensors(file: Path) -> dict[str, Held]:
    """What one file holds, by its header; refused where the header is damaged, or the file does not have all the bytes that it speaks of."""
    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            first = opened.read(8)
            length = struct.unpack("<Q", first)[0] if len(first) == 8 else -1
            if first == b"version ":
                raise ConfigError(
                    f"{file} is a Git LFS pointer, not the weights themselves: fetch them with `git lfs pull`; {ALONE}"
                )
            if not 2 <= length <= min(size - 8, LONGEST_HEADER):
                raise ConfigError(
                    f"{file} is not a whole safetensors file: its header should have {max(length, 0)} bytes, and the file has {size} in all; {ALONE}"
                )
            header = json.loads(opened.read(length))
    except OSError as error:
        raise ConfigError(f"can't read {file}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{file} is not a whole safetensors file: its header is no JSON; {ALONE}") from None
    if not isinstance(header, dict):
        raise ConfigError(f"{file} is not a safetensors file: its header is {short(header)}, not an object")
    held = {name: _placed(file, name, given, 8 + length) for name, given in header.items() if name != "__metadata__"}
    end = max((one.start + stored for one, stored in held.values()), default=8 + length)
    if end > size:
        cut = sum(one.start + stored > size for one, stored in held.values())
        raise ConfigError(
            f"{file} is cut short: its header speaks of {end} bytes, and it has {size}; {cut} of {len(held)} tensors are not whole; {ALONE}"
        )
    return {name: one for name, (one, _) in held.items()}


def _placed(file: Path, name: str, given: Any, start: int) -> tuple[Held, int]:
    """A tensor by its entry, and the number of its bytes."""
    try:
        dtype, shape, (begin, end) = given["dtype"], tuple(given["shape"]), given["data_offsets"]
        whole = all(type(n) is int and n >= 0 for n in (*shape, begin, end)) and begin <= end and isinstance(dtype, str)
    except (TypeError, KeyError, ValueError):
        whole = False
    if not whole or (dtype in BYTES and end - begin != BYTES[dtype] * math.prod(shape)):
        raise ConfigError(f"{file} is damaged: its header says {short(given)} of tensor {short(name)}, which can't be")
    return Held(name, file, dtype, shape, start + begin), end - begin


def in_gguf(file: Path) -> dict[str, Held]:
    """What a GGUF file holds; shapes as torch has them, the axis that runs fastest last."""
    return {
        name: Held(
            name, file, GGUF_PLAIN.get(placed.kind, f"GGUF type {placed.kind}"), placed.sizes[::-1], placed.start
        )
        for name, placed in gguf_header.tensors(file).items()
    }


def values(held: Held) -> Tensor:
    """The numbers of one plain tensor, in float64."""
    import torch

    assert held.plain
    kinds = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    count = math.prod(held.shape)
    with held.file.open("rb") as opened:
        opened.seek(held.start)
        raw = opened.read(count * BYTES[held.dtype])
    if len(raw) < count * BYTES[held.dtype]:
        raise ConfigError(
            f"{held.file} is cut short: tensor {short(held.name)} needs {count * BYTES[held.dtype]} bytes, and {len(raw)} are there"
        )
    if not count:
        raise ConfigError(f"{held.file}: tensor {short(held.name)} is empty, of shape {list(held.shape)}")
    made = torch.frombuffer(bytearray(raw), dtype=kinds[held.dtype]).reshape(held.shape).double()
    if not bool(torch.isfinite(made).all()):
        raise ConfigError(
            f"{held.file}: tensor {short(held.name)} holds numbers that are not finite: the checkpoint is damaged"
        )
    return made


def ending(tensors: Mapping[str, Held], *suffixes: str) -> list[Held]:
    """The tensors whose names end in one of these, whole words only: ``wpe.weight`` is in ``transformer.wpe.weight``."""
    return [
        held
        for name, held in tensors.items()
        if any(name == suffix or name.endswith("." + suffix) for suffix in suffixes)
    ]
