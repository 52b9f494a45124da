"""What tensors a checkpoint's files hold, and where; single tensors are read when they are asked for.

    safetensors    one file, or model.safetensors.index.json and the files that it names
    GGUF           see rope/config/gguf_header

Headers are a few kilobytes and need no torch. A file that is cut short is refused by its header alone, before a number
is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from milepost.rope.config import gguf_header
from milepost.rope.config.files import load
from milepost.rope.config.keys import ConfigError, short

if TYPE_CHECKING:
    import torch
    from torch import Tensor

ONE, INDEX = "model.safetensors", "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt")
OTHER_WEIGHTS = (
    *PICKLES,
    *(".safetensors", ".gguf", ".onnx", ".onnx_data", ".h5", ".msgpack", ".ot", ".npz"),
)
"""How names of files of weights end."""
NO_WEIGHTS = ("training_args", "optimizer", "scheduler", "rng_state", "scaler")
"""How names of pickles begin that trainers leave beside a model."""
PLAIN = ("F64", "F32", "F16", "BF16")
"""What is read as numbers. All else is packed, or of a quantiser's making."""
GGUF_PLAIN = {0: "F32", 1: "F16", 28: "F64", 30: "BF16"}
AXES = 16
"""The most axes that a tensor may have: models have 5, torch knows 64."""


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file: its dtype in the file's words, its shape, and the first of the bytes that hold it."""

    name: str
    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def plain(self) -> bool:
        """Whether its numbers can be read without undoing a quantisation."""
        return self.dtype in PLAIN

    @property
    def count(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Its bytes in a safetensors file, whose names of dtypes say the bits: F8_E4M3, BF16; BOOL has 8."""
        bits = re.search(r"\d+", self.dtype)
        return self.count * (8 if bits is None else int(bits[0])) // 8


def in_folder(folder: Path, *, complete: bool = False) -> tuple[dict[str, StoredTensor], str]:
    """Every tensor of a folder's safetensors files; or none, and what is there instead.

    ``complete`` also refuses tensors that an index does not list.
    """
    index, single = folder / INDEX, folder / ONE
    if index.is_file() and single.is_file():
        raise ConfigError(f"{folder} has {ONE} and {INDEX}: which of them holds the model? keep one")
    if index.is_file():
        return _sharded(folder, index, complete), ""
    others = [single] if single.is_file() else sorted(folder.glob("*.safetensors"))
    if len(others) == 1:
        return in_safetensors(others[0]), ""
    if others:
        raise ConfigError(
            f"{folder} has {len(others)} safetensors files and no {INDEX}, so it is not known which of them are the "
            "model"
        )
    for path in sorted(folder.iterdir()):
        if path.suffix in PICKLES and not path.name.startswith(NO_WEIGHTS):
            return {}, (
                f"the weights are in {short(path.name)}, a pickle, which can run code and is not loaded: "
                "save them as safetensors"
            )
    return {}, f"{folder} has no weights ({ONE}, or {INDEX} and its files)"


def _sharded(folder: Path, index: Path, complete: bool) -> dict[str, StoredTensor]:
    listed = load(index).get("weight_map")
    if (
        not isinstance(listed, Mapping)
        or not listed
        or not all(isinstance(file, str) and file == Path(file).name for file in listed.values())
    ):
        raise ConfigError(f"{index} must have a weight_map from names of tensors to names of files beside it")
    names = sorted(set(listed.values()))
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise ConfigError(f"{index} names {len(missing)} files that are not there, the first is {short(missing[0])}")
    stored = {key: tensor for name in names for key, tensor in in_safetensors(folder / name).items()}
    places = {name: tensor.file.name for name, tensor in stored.items()}
    wrong = [name for name in ({**listed, **places} if complete else listed) if places.get(name) != listed.get(name)]
    if wrong:
        raise ConfigError(
            f"{index} and its files don't agree about {len(wrong)} tensors, the first is {short(wrong[0])}"
        )
    return stored


def in_safetensors(file: Path) -> dict[str, StoredTensor]:
    """What one file holds, in the order in which it lies there."""
    from safetensors import SafetensorError, safe_open

    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            if opened.read(8) == b"version ":
                raise ConfigError(
                    f"{file} is a Git LFS pointer, not the weights themselves: fetch them with `git lfs pull`"
                )
        with safe_open(file, "np") as held:
            slices = {name: held.get_slice(name) for name in held.offset_keys()}
            stored = [StoredTensor(n, file, s.get_dtype(), tuple(s.get_shape()), 0) for n, s in slices.items()]
    except OSError as error:
        raise ConfigError(f"can't read {file}: {error.strerror or error}") from None
    except SafetensorError as error:
        reason = " ".join(str(error).removeprefix("Error while deserializing header: ").split())[:200]
        raise ConfigError(f"{file} is not a whole safetensors file ({size} bytes): {reason}") from None
    many = next((tensor for tensor in stored if len(tensor.shape) > AXES), None)
    if many is not None:
        raise ConfigError(
            f"{file}: tensor {short(many.name)} has {len(many.shape)} axes, and no model has more than {AXES}: "
            "the file is damaged"
        )
    start = size - sum(tensor.size for tensor in stored)  # the numbers lie together, up to the file's end
    placed = {}
    for tensor in stored:
        placed[tensor.name] = replace(tensor, start=start)
        start += tensor.size
    return placed


def in_gguf(file: Path) -> dict[str, StoredTensor]:
    """What a GGUF file holds; shapes as torch has them, the axis that runs fastest last."""
    return {
        name: StoredTensor(
            name, file, GGUF_PLAIN.get(placed.kind, f"GGUF type {placed.kind}"), placed.sizes[::-1], placed.start
        )
        for name, placed in gguf_header.tensors(file).items()
    }


def torch_dtypes() -> dict[str, torch.dtype]:
    """The dtypes of torch that the plain ones are."""
    import torch

    return {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def main_dtype(tensors: Mapping[str, StoredTensor]) -> torch.dtype:
    """What most of the plain tensors are stored in."""
    names = [tensor.dtype for tensor in tensors.values() if tensor.plain]
    return torch_dtypes()[max(sorted(set(names)), key=names.count)]


def values(tensor: StoredTensor) -> Tensor:
    """The numbers of one plain tensor, in float64."""
    import torch

    assert tensor.plain
    if not tensor.count:
        raise ConfigError(f"{tensor.file}: tensor {short(tensor.name)} is empty, of shape {list(tensor.shape)}")
    there = max(0, tensor.file.stat().st_size - tensor.start)
    if there < tensor.size:
        raise ConfigError(
            f"{tensor.file} is cut short: tensor {short(tensor.name)} needs {tensor.size} bytes, and {there} are there"
        )
    with tensor.file.open("rb") as opened:
        opened.seek(tensor.start)
        raw = opened.read(tensor.size)
    numbers = torch.frombuffer(bytearray(raw), dtype=torch_dtypes()[tensor.dtype]).reshape(tensor.shape).double()
    if not bool(torch.isfinite(numbers).all()):
        raise ConfigError(
            f"{tensor.file}: tensor {short(tensor.name)} holds numbers that are not finite: the checkpoint is damaged"
        )
    return numbers


def ending(tensors: Mapping[str, StoredTensor], *suffixes: str) -> list[StoredTensor]:
    """The tensors whose names end in one of these, whole words only: ``wpe.weight`` ends ``transformer.wpe.weight``."""
    return [tensor for name, tensor in tensors.items() if f".{name}".endswith(tuple(f".{s}" for s in suffixes))]
