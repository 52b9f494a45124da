"""Text: what a checkpoint is measured on, as its own tokens.

Windows never overlap, and nothing is ever read twice to make a text longer.

    text = read_text("moby-dick.txt", subject)           # a file, a folder of files, or a .npy file of token ids
    windows, groups = text.windows(4096, 8)              # 8 x 4097 tokens

A bootstrap draws groups: files where there are many, windows where there are few. Models differ in whether a text
should begin with a special token, and what their files say about it is often wrong: so it is measured, on the text
itself, which of the two the model loses less with.
"""

from __future__ import annotations

import hashlib
import math
import tokenize
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from milepost.checkpoints.model.loaded import Loaded
from milepost.checkpoints.model.tokenizers import Tokenized
from milepost.rope import ConfigError

Numbers = np.ndarray[Any, Any]
MANY = 8
"""From so many files on, a bootstrap draws files."""
TRIED = (8, 256)
"""Windows, and tokens of each, on which a first token is tried; half of the tokens are scored."""


@dataclass(frozen=True)
class Text:
    """Tokens of each file. ``begin`` is put before every window; ``digest`` names the very bytes."""

    files: tuple[Numbers, ...]
    names: tuple[str, ...]
    source: str
    digest: str
    tokenizer: str
    bytes_per_token: float | None
    begin: int | None = None
    began: Mapping[str, float] | None = None
    left_out: int = 0

    @property
    def tokens(self) -> int:
        return sum(map(len, self.files))

    def describe(self) -> dict[str, Any]:
        """What a result says about its text."""
        about = {
            "source": self.source,
            "sha256": self.digest,
            "tokenizer": self.tokenizer,
            "files": len(self.files),
            "tokens": self.tokens,
        }
        begin = {"begin": self.begin, "loss_with_and_without_it": None if self.began is None else dict(self.began)}
        return {**about, **begin, "bytes_per_token": self.bytes_per_token, "binary_files_left_out": self.left_out}

    def windows(self, length: int, count: int, *, least: int = 2) -> tuple[Numbers, Numbers]:
        """Up to ``count`` windows (n x length + 1) spread over the text, and the group of each (n,); at least
        ``least``, or an error."""
        taken = length + (self.begin is None)
        places = [(number, a) for number, row in enumerate(self.files) for a in range(0, len(row) - taken + 1, taken)]
        if len(places) < least:
            ratio = self.bytes_per_token
            more = "" if ratio is None else f", about {math.ceil(least * taken * ratio / 1000)} kB in one file"
            raise ValueError(
                f"{self.source} is too short: {least} windows of {length} tokens without overlap need {least * taken} "
                f"tokens{more}; its {len(self.files)} files have {self.tokens} tokens in all, which is room for "
                f"{len(places)}: give more text, or ask for shorter lengths"
            )
        chosen = [places[n * len(places) // min(count, len(places))] for n in range(min(count, len(places)))]
        cut = np.stack([self.files[number][a : a + taken] for number, a in chosen])
        if self.begin is not None:
            cut = np.concatenate([np.full((len(cut), 1), self.begin, cut.dtype), cut], 1)
        groups = np.array([number for number, _ in chosen])
        return cut, groups if len(set(groups.tolist())) >= MANY else np.arange(len(chosen))

    def halves(self) -> tuple[Text, Text]:
        """Two parts apart: every other file, or the first and the last half of each where there are few."""
        if len(self.files) >= 2 * MANY:
            parts = [(self.files[n::2], self.names[n::2]) for n in (0, 1)]
        else:
            cuts = [[row[: len(row) // 2] for row in self.files], [row[len(row) // 2 :] for row in self.files]]
            parts = [(tuple(cut), self.names) for cut in cuts]
        first, second = (replace(self, files=tuple(files), names=tuple(names)) for files, names in parts)
        return replace(first, source=f"{self.source}, part 1 of 2"), replace(
            second, source=f"{self.source}, part 2 of 2"
        )


def read_text(path: str | Path, subject: Loaded) -> Text:
    """The text of a path in a checkpoint's tokens; sets ``subject.begin`` too."""
    text = read_tokens(path, subject)
    subject.begin = None
    text = _begun(text, subject)
    subject.begin = text.begin
    return text


def read_tokens(path: str | Path, subject: Tokenized) -> Text:
    """The text of a path in a model's tokens, without a first token."""
    where = Path(path).expanduser()
    if where.suffix == ".npy":
        text = _ids(where, subject)
    else:
        contents, left_out = _read(where)
        rows = tuple(subject.encode(content.decode("utf-8", "replace")) for content in contents.values())
        digest = hashlib.sha256(
            b"".join(name.encode() + b"\0" + content + b"\0" for name, content in contents.items())
        ).hexdigest()
        size = sum(map(len, rows))
        if not size:
            raise ValueError(f"{where} has no tokens")
        text = Text(
            rows,
            tuple(contents),
            where.name,
            digest,
            subject.tokenizer.about if subject.tokenizer is not None else "",
            sum(map(len, contents.values())) / size,
            left_out=left_out,
        )
    return text


def _read(path: Path) -> tuple[dict[str, bytes], int]:
    from milepost.lab.corpus import text_files

    return text_files(path)


def _ids(path: Path, subject: Tokenized) -> Text:
    try:
        with np.errstate(over="ignore"):  # refuses a header that claims more than the file has
            np.load(path, mmap_mode="r", allow_pickle=False)
        content = path.read_bytes()
        ids = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError, MemoryError, OverflowError, tokenize.TokenError) as error:
        raise ConfigError(f"{path} is no .npy file of token ids: {str(error).splitlines()[0][:120]}") from None
    if ids.dtype.kind not in "iu" or ids.ndim not in (1, 2) or not ids.size:
        raise ConfigError(
            f"{path} must hold token ids, whole numbers in one row or in a row for each text; it holds {ids.dtype} of "
            f"shape {ids.shape}"
        )
    if ids.min() < 0 or ids.max() >= subject.vocabulary:
        raise ConfigError(
            f"{path} holds tokens {ids.min()} to {ids.max()}, and {subject.name} knows tokens 0 to "
            f"{subject.vocabulary - 1}"
        )
    rows = tuple(row.astype(np.int64) for row in (ids if ids.ndim == 2 else ids[None]))
    names = tuple(f"{path.name}[{n}]" for n in range(len(rows)))
    return Text(rows, names, path.name, hashlib.sha256(content).hexdigest(), "token ids", None)


def _begun(text: Text, subject: Loaded) -> Text:
    """The text with the first token that the model loses less with, if its tokenizer has one."""
    token = None if subject.tokenizer is None or text.tokenizer == "token ids" else subject.tokenizer.begin
    if token is None or not 0 <= token < subject.vocabulary:
        return text
    length = min(TRIED[1], subject.trained or TRIED[1], max(map(len, text.files)) - 1)
    if length < 8:
        return text
    windows, _ = text.windows(length, TRIED[0], least=1)
    ids = torch.from_numpy(windows).to(subject.device)
    with_it = ids.clone()
    with_it[:, 0] = token
    scored = slice(1, None)  # the same targets: all but the first, which one of the two has no word for
    lost = {
        word: float(subject.losses(some)[:, scored].double().mean())
        for word, some in (("with", with_it), ("without", ids))
    }
    return replace(text, begin=token if lost["with"] < lost["without"] else None, began=lost)
