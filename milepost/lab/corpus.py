"""Corpus: texts as tokens, training files and test files apart.

By default the sources of Python's standard library, found on this machine: real text with structure at many
distances, and nothing to download. Which files are for testing is decided by a hash of their names, so it is the same
everywhere.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

Numbers = np.ndarray[Any, Any]
TESTED = 4
"""One file in so many is for testing."""
SMALLEST = 2000
"""Bytes below which a source file is left out."""
SKIPPED = (
    "site-packages",
    "dist-packages",
    "__pycache__",
    "idlelib",
    "lib2to3",
    "ensurepip",
    "turtledemo",
    "node_modules",
)


@dataclass(frozen=True)
class Corpus:
    """Tokens of the training files in one row, and of each test file.

    ``digest`` names the very bytes, a tokenizer's too. ``bytes_per_token`` is that of the test files, which turns nats
    a token into bits a byte. ``second`` is another text that is tested on and never trained on.
    """

    train: Numbers
    test: tuple[Numbers, ...]
    names: tuple[str, ...]
    vocabulary: int
    digest: str
    source: str
    tokenizer: str = "bytes"
    bytes_per_token: float = 1.0
    left_out: int = 0
    second: Corpus | None = None

    def describe(self) -> dict[str, Any]:
        """What a result says about its text."""
        sizes = {
            "train_tokens": len(self.train),
            "test_tokens": sum(map(len, self.test)),
            "test_files": len(self.test),
            "binary_files_left_out": self.left_out,
        }
        about = {
            "source": self.source,
            "sha256": self.digest.split()[0],
            "tokenizer": self.tokenizer,
            "vocabulary": self.vocabulary,
        }
        second = {} if self.second is None else {"second": self.second.describe()}
        return {**about, "bytes_per_token": self.bytes_per_token, **sizes, **second}


def standard_library() -> list[Path]:
    """The sources of Python's standard library."""
    home = Path(sysconfig.get_paths()["stdlib"])
    paths = []
    for folder, inner, files in os.walk(home):
        inner[:] = [name for name in inner if name not in SKIPPED and not (Path(folder) == home and "test" in name)]
        paths += [Path(folder) / name for name in files if name.endswith(".py")]
    return sorted(path for path in paths if path.stat().st_size > SMALLEST)


def read(text: str | Path | None = None, tokenizer: str = "bytes", *, longest: int, trained: int = 1) -> Corpus:
    """The corpus of a file or folder (by default the standard library); test files are longer than ``longest``."""
    files, source, left_out = _files(text)
    encode, vocabulary, about = _tokenizer(tokenizer)
    names = [name for name in files if _number(name) % TESTED == 0]
    if (
        len(files) < 2 * TESTED or not names or len(names) == len(files)
    ):  # few files: the last part of each is for testing
        train = [content[: len(content) * 7 // 8] for content in files.values()]
        test = {name: content[len(content) * 7 // 8 :] for name, content in files.items()}
    else:
        train = [content for name, content in files.items() if name not in names]
        test = {name: files[name] for name in names}
    tokens = {name: encode(content) for name, content in test.items()}
    long = {name: row for name, row in tokens.items() if len(row) > longest}
    if not long:
        most = max(map(len, tokens.values()))
        raise ValueError(
            f"{source}: the longest test text has {most} tokens, and {longest + 1} are needed to test {longest}; "
            "give more text, or test shorter"
        )
    row = np.concatenate([encode(content) for content in train])
    if len(row) <= max(longest, trained):
        raise ValueError(
            f"{source} has {len(row)} tokens to train on, and more than {max(longest, trained)} are needed; "
            "give a larger file or folder"
        )
    ratio = sum(len(test[name]) for name in long) / sum(map(len, long.values()))
    return Corpus(
        row, tuple(long.values()), tuple(long), vocabulary, _digest(files, about), source, Path(tokenizer).name, ratio,
        left_out,
    )  # fmt: skip


def read_second(text: str | Path, tokenizer: str = "bytes", *, longest: int) -> Corpus:
    """A text to test on alone: every file of it that is longer than ``longest``."""
    files, source, left_out = _files(text)
    encode, size, about = _tokenizer(tokenizer)
    rows = {name: encode(content) for name, content in files.items()}
    long = {name: row for name, row in rows.items() if len(row) > longest}
    if not long:
        raise ValueError(
            f"--second-text {source}: its longest file has {max(map(len, rows.values()))} tokens, and {longest + 1} "
            f"are needed to test {longest}; give longer texts, or test shorter"
        )
    ratio = sum(len(files[name]) for name in long) / sum(map(len, long.values()))
    nothing = np.zeros(0, dtype=np.int64)
    return Corpus(
        nothing, tuple(long.values()), tuple(long), size, _digest(files, about), source, Path(tokenizer).name, ratio,
        left_out,
    )  # fmt: skip


def with_second(first: Corpus, second: Corpus) -> Corpus:
    """A corpus with another text to test on; its digest names both, the first text first."""
    return replace(first, second=second, digest=f"{first.digest} {second.digest}")


def vocabulary(tokenizer: str = "bytes") -> int:
    """How many tokens a tokenizer knows."""
    return _tokenizer(tokenizer)[1]


def _digest(files: dict[str, bytes], tokenizer: bytes) -> str:
    """A name for the very bytes of files and of a tokenizer's own file."""
    held = b"".join(name.encode() + b"\0" + content + b"\0" for name, content in files.items())
    return hashlib.sha256(held + tokenizer).hexdigest()


def _number(name: str) -> int:
    return int(hashlib.sha256(name.encode()).hexdigest(), 16)


def _files(text: str | Path | None) -> tuple[dict[str, bytes], str, int]:
    """Names and bytes of the text files, what to call them, and how many were binary."""
    if text is None:
        home = Path(sysconfig.get_paths()["stdlib"])
        return (
            {path.relative_to(home).as_posix(): path.read_bytes() for path in standard_library()},
            "the sources of Python's standard library",
            0,
        )
    files, left_out = text_files(Path(text))
    return files, Path(text).name, left_out


def text_files(path: Path) -> tuple[dict[str, bytes], int]:
    """Names and bytes of a file, or of the files of a folder that hold text; and how many hold none."""
    try:
        if not path.exists():
            raise ValueError(f"there is no text at {path}")
        inside = [p for p in path.rglob("*") if p.is_file() and not p.name.startswith(".")]
        paths = [path] if path.is_file() else sorted(inside)
        files = {p.relative_to(path).as_posix() if p != path else p.name: p.read_bytes() for p in paths}
    except OSError as error:
        raise ValueError(f"can't read {error.filename or path}: {error.strerror or error}") from None
    files = {name: content for name, content in files.items() if content}
    if not files:
        raise ValueError(f"{path} holds no text: it is empty")
    texts = {name: content for name, content in files.items() if b"\0" not in content[:8192]}
    if not texts:
        raise ValueError(f"{path} holds binary data, not text: {next(iter(files))} has NUL bytes")
    return texts, len(files) - len(texts)


def _tokenizer(name: str) -> tuple[Callable[[bytes], Numbers], int, bytes]:
    """What turns bytes into tokens, how many tokens there are, and the bytes of the tokenizer's own file."""
    if name == "bytes":
        return lambda content: np.frombuffer(content, dtype=np.uint8).astype(np.int64), 256, b""
    path = Path(name)
    if not path.is_file():
        raise ValueError(f"--tokenizer is bytes, or a tokenizer.json file; there is no file {name}")
    try:
        from tokenizers import Tokenizer

        made = Tokenizer.from_file(str(path))
    except ImportError:
        raise ValueError("a tokenizer file needs the tokenizers package: pip install 'milepost[hf]'") from None
    except Exception as error:
        raise ValueError(f"{path} is no tokenizer.json: {str(error).splitlines()[0][:120]}") from None
    return (
        lambda content: np.array(
            made.encode(content.decode("utf-8", "replace"), add_special_tokens=False).ids, dtype=np.int64
        ),
        made.get_vocab_size(),
        path.read_bytes(),
    )


def batch(row: Numbers, length: int, rows: int, seed: int, step: int) -> Numbers:
    """``rows`` stretches of ``length`` + 1 tokens for one step: the same for every model of this seed."""
    places = np.random.default_rng((seed, step)).integers(0, len(row) - length, rows)
    return np.stack([row[p : p + length + 1] for p in places])


def windows(test: Sequence[Numbers], length: int, most: int) -> list[tuple[int, Numbers]]:
    """Stretches of ``length`` + 1 tokens of the test files, (file, tokens), spread over the files, at most ``most``."""
    size = length + 1
    starts = range(0, max(map(len, test), default=0) - length, size)
    cut = [(n, row[at : at + size]) for at in starts for n, row in enumerate(test) if len(row) >= at + size]
    return cut[:most]
