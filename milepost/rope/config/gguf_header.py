"""The header of a GGUF file (versions 2 and 3): its key-values, and the tensors of factors. Weights are not touched.

    file         "GGUF" | version u32 | tensors u64 | key-values u64 | the key-values | the tensors | padding | data
    key-value    name | type u32 | value        a text: length u64 | UTF-8        an array: type u32 | count u64 | items
    tensor       name | number of sizes u32 | sizes u64 | type u32 | offset in data u64

All numbers are little-endian; data begins at a multiple of general.alignment. A vocabulary is 100 000 texts that nobody
here asks for: long arrays are stepped over, and no list is built. So a file that was cut after its header can still be
read.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from milepost.rope.config.keys import ConfigError, short

WANTED = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors with a factor for each pair."""
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B", 10: "Q", 11: "q", 12: "d"}
"""Types of values that are numbers, in the letters of `struct`."""
BOOL, TEXT, ARRAY = 7, 8, 9
FLOAT32 = 0
"""Tensors have types of their own; this is the first."""
LISTED = 1024
"""Arrays of numbers up to this length are kept: values by layer are that short, vocabularies are not."""
STEPS = 1 << 22
"""Bytes of text and items of arrays that one header may make us walk through: several times the largest there is."""
NESTED = 1 << 12
"""Steps that an array in an array costs: no model has any, and each takes as long as so many texts."""
DEEP = 4
U32, U64 = struct.Struct("<I"), struct.Struct("<Q")
T = TypeVar("T")


@dataclass(frozen=True)
class Tensor:
    """A tensor's sizes and values."""

    shape: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Placed:
    """Where a tensor's numbers are: ``sizes``, the fastest axis first, its type's number, and the first byte."""

    sizes: tuple[int, ...]
    kind: int
    start: int


def check_sizes(file: Path, placed: Mapping[str, Placed], sizes: Mapping[int, tuple[int, int]]) -> None:
    """Refuse a tensor whose numbers are not all in the file; ``sizes``: numbers and bytes of a block of each type."""
    held = file.stat().st_size
    for name, tensor in placed.items():
        numbers, size = sizes.get(tensor.kind, (1, 0))
        end = tensor.start + math.prod(tensor.sizes) // numbers * size
        if end > held:
            raise ConfigError(
                f"{file} is cut short or damaged: tensor {short(name)} of sizes {short(list(tensor.sizes))} ends at "
                f"byte {end}, and the file has {held}"
            )


def metadata(file: str | os.PathLike[str]) -> dict[str, Any]:
    """The key-values of a GGUF file by name, and the tensors of `WANTED` that it has."""
    return _opened(file, _read)


def tensors(file: str | os.PathLike[str]) -> dict[str, Placed]:
    """Every tensor of a GGUF file, in the file's order: where it is, not what it holds."""
    return _opened(file, lambda header: _parts(header)[1])


def _opened(file: str | os.PathLike[str], read: Callable[[_Header], T]) -> T:
    try:
        if not Path(file).is_file():
            raise ConfigError(f"{file} is not a file")
        with open(file, "rb") as opened:
            if os.fstat(opened.fileno()).st_size == 0:
                raise ConfigError(f"{file} is empty: a GGUF file begins with the letters GGUF")
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return read(_Header(data, str(file)))
    except OSError as error:
        raise ConfigError(f"can't read {file}: {error.strerror or error}") from None


def _read(header: _Header) -> dict[str, Any]:
    values, placed = _parts(header)
    for name in WANTED:
        if name in placed:
            values[name] = header.floats(name, placed[name])
    return values


def _parts(header: _Header) -> tuple[dict[str, Any], dict[str, Placed]]:
    """The key-values, and where the tensors are."""
    header.begin()
    tensors = header.count("tensors", most=1 << 20)
    pairs = header.count("key-values", most=1 << 16)
    values: dict[str, Any] = {}
    for _ in range(pairs):
        name = header.name()
        if name in values:
            raise header.wrong(f"has the key {short(name)} twice")
        value = header.value(header.number(U32), name)
        if value is not None:
            values[name] = value
    listed = [header.tensor() for _ in range(tensors)]
    if len({name for name, *_ in listed}) < len(listed):
        twice = next(name for name, count in Counter(name for name, *_ in listed).items() if count > 1)
        raise header.wrong(f"has the tensor {short(twice)} twice")
    alignment = values.get("general.alignment", 32)
    if isinstance(alignment, bool) or not isinstance(alignment, int) or not 8 <= alignment <= 1 << 16 or alignment % 8:
        raise header.wrong(f"has general.alignment = {short(alignment)}, which must be a multiple of 8, up to 65536")
    start = header.at + -header.at % alignment
    return values, {name: Placed(sizes, kind, start + offset) for name, sizes, kind, offset in listed}


class _Header:
    """A place in the file that moves on as things are read. What does not fit is refused before it is allocated."""

    def __init__(self, data: mmap.mmap, file: str):
        self.data, self.file, self.size = data, file, len(data)
        self.at, self.left = 0, STEPS

    def wrong(self, what: str) -> ConfigError:
        return ConfigError(f"{self.file} {what}")

    def take(self, size: int) -> int:
        """Where the next ``size`` bytes begin; they must be there."""
        start = self.at
        if size > self.size - start:
            raise self.wrong(
                f"is cut short or damaged: at byte {start} its header needs {size} more bytes, "
                f"and the file has {self.size - start}"
            )
        self.at += size
        return start

    def spend(self, steps: int) -> None:
        """Count what is walked through."""
        self.left -= steps
        if self.left < 0:
            raise self.wrong(
                f"has a header with more than {STEPS} bytes of text and items of arrays: no model has that many, "
                "the file is damaged"
            )

    def number(self, kind: struct.Struct) -> Any:
        return kind.unpack_from(self.data, self.take(kind.size))[0]

    def begin(self) -> None:
        """The magic and the version."""
        magic = self.data[self.take(4) : self.at]
        if magic != b"GGUF":
            raise self.wrong(f"is no GGUF file: it begins with {short(magic)}, not with the letters GGUF")
        version = self.number(U32)
        if version & 0xFFFF == 0 and version:
            raise self.wrong(
                "is a big-endian GGUF file; only little-endian ones are read: "
                "convert it with gguf-py's gguf_convert_endian"
            )
        if version not in (2, 3):
            raise self.wrong(f"is a GGUF file of version {version}; versions 2 and 3 are read")

    def count(self, what: str, *, most: int) -> int:
        count = int(self.number(U64))
        if count > most:
            raise self.wrong(f"says that it has {count} {what}, and no model has more than {most}: the file is damaged")
        return count

    def name(self) -> str:
        """The name of a key or a tensor."""
        size = self.number(U64)
        if not 0 < size < 1 << 16:
            raise self.wrong(
                f"has a name of {size} bytes at byte {self.at}: names have 1 to 65535, the file is damaged"
            )
        self.spend(size)
        start = self.take(size)
        try:
            return self.data[start : self.at].decode()
        except UnicodeDecodeError:
            raise self.wrong(f"has a name at byte {start} that is no UTF-8 text: the file is damaged") from None

    def value(self, kind: int, name: str) -> Any:
        """A number, a text or a list; None for what is only stepped over."""
        if kind == ARRAY:
            return self.array(name, 1)
        if kind == TEXT:
            size = self.number(U64)
            start = self.take(size)
            if size >= 1 << 16:
                return None
            self.spend(size)
            return self.data[start : self.at].decode(errors="replace")
        return self.numbers(kind, 1, name)[0]

    def numbers(self, kind: int, count: int, name: str) -> list[Any]:
        """So many numbers; nothing is built where they are too many to keep."""
        if kind not in NUMBERS:
            raise self.wrong(
                f"has a value of an unknown type, {kind}, under {short(name)}: types are 0 to 12, the file is damaged"
            )
        letter = NUMBERS[kind]
        start = self.take(count * struct.calcsize(f"<{letter}"))
        if count > LISTED:
            return []
        values = list(struct.unpack_from(f"<{count}{letter}", self.data, start))
        if kind != BOOL:
            return values
        if any(value > 1 for value in values):
            raise self.wrong(f"has a truth value under {short(name)} that is neither 0 nor 1: the file is damaged")
        return [bool(value) for value in values]

    def array(self, name: str, depth: int) -> list[Any] | None:
        """A short array of numbers; None for the others, which are stepped over."""
        if depth > DEEP:
            raise self.wrong(f"has arrays in arrays, more than {DEEP} deep, under {short(name)}: the file is damaged")
        kind, count = self.number(U32), self.number(U64)
        if kind == TEXT:
            self.texts(count, name)
        elif kind == ARRAY:
            self.spend(count * NESTED)
            for _ in range(count):
                self.array(name, depth + 1)
        else:
            values = self.numbers(kind, count, name)
            return values if count <= LISTED else None
        return None

    def texts(self, count: int, name: str) -> None:
        """Step over so many texts. The loop is the time that a header takes, so it does nothing else."""
        if count > (self.size - self.at) // 8:
            raise self.wrong(
                f"says that {short(name)} has {count} texts, and {self.size - self.at} bytes are left: "
                "it is cut short or damaged"
            )
        self.spend(count)
        data, at, length = self.data, self.at, U64.unpack_from
        try:
            for _ in range(count):
                at += 8 + length(data, at)[0]
        except (struct.error, OverflowError):
            at = self.size + 1
        if at > self.size:
            raise self.wrong(f"is cut short or damaged: it ends inside the texts of {short(name)}")
        self.at = at

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """The name, sizes, type and offset of a tensor."""
        name, axes = self.name(), self.number(U32)
        if axes > 4:
            raise self.wrong(f"has a tensor {short(name)} with {axes} axes: there are at most 4, the file is damaged")
        sizes = tuple(self.number(U64) for _ in range(axes))
        return name, sizes, self.number(U32), self.number(U64)

    def floats(self, name: str, placed: Placed) -> Tensor:
        """The values of a small float32 tensor."""
        sizes, kind, start = placed.sizes, placed.kind, placed.start
        count = math.prod(sizes)
        if kind != FLOAT32:
            raise self.wrong(f"has {name} of type {kind}: it is always float32, which is type {FLOAT32}")
        if not 0 < count < 1 << 16:
            raise self.wrong(
                f"has {name} of sizes {list(sizes)}: it has one number for each pair of channels, the file is damaged"
            )
        if start + 4 * count > self.size:
            raise self.wrong(f"is cut short: {name} ends at byte {start + 4 * count}, and the file has {self.size}")
        return Tensor(sizes, struct.unpack_from(f"<{count}f", self.data, start))
