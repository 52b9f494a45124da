"""Tokenizers: what turns a text into a checkpoint's tokens.

No code of a checkpoint is run, and no special tokens are put in.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from milepost.rope import ConfigError
from milepost.rope.config.files import is_offline

Numbers = np.ndarray[Any, Any]


class Tokenizer(Protocol):
    """Text to tokens and back. ``begin`` is the token that texts of this kind may begin with, ``about`` what provenance
    says, ``size`` how many tokens there are.
    """

    begin: int | None
    about: str
    size: int

    def encode(self, text: str) -> Sequence[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class Bytes:
    """A token for each byte of UTF-8."""

    begin: int | None = None
    about = "bytes"
    size = 256

    def encode(self, text: str) -> Sequence[int]:
        return list(text.encode("utf-8"))

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")


class HuggingFaceTokenizer:
    """A tokenizer of transformers, or a tokenizer.json alone."""

    def __init__(self, made: Any, about: str):
        self._made, self.about = made, about
        begin = getattr(made, "bos_token_id", None)
        self.begin, self.size = begin if isinstance(begin, int) else None, len(made)

    def encode(self, text: str) -> Sequence[int]:
        found: Sequence[int] = self._made(text, add_special_tokens=False, verbose=False)["input_ids"]
        return found

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._made.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        return text


class Tokenized:
    """What reads text as tokens: a model with a tokenizer, or without one."""

    name: str
    tokenizer: Tokenizer | None
    vocabulary: int

    def encode(self, text: str) -> Numbers:
        """Tokens of a text, without special ones."""
        if self.tokenizer is None:
            raise ConfigError(
                f"{self.name} has no tokenizer: give one (tokenizer.json, or bytes), "
                "or a .npy file of token ids as the text"
            )
        ids = np.asarray(self.tokenizer.encode(text), dtype=np.int64)
        if ids.size and int(ids.max()) >= self.vocabulary:
            raise ConfigError(
                f"the tokenizer does not fit: it gave token {int(ids.max())}, and {self.name} knows tokens 0 to "
                f"{self.vocabulary - 1}; name the right one"
            )
        return ids


def find_tokenizer(name: str | Path, **how: Any) -> Tokenizer:
    """``bytes``, a tokenizer.json or GGUF file, or what transformers finds in a folder or under a name on the Hub."""
    if str(name) == "bytes":
        return Bytes()
    path = Path(name).expanduser()
    if path.suffix == ".gguf" and path.is_file():
        path, how = path.parent, {**how, "gguf_file": path.name}
    if not path.exists() and (path.suffix in (".json", ".model", ".txt") or str(name).count("/") > 1):
        raise ConfigError(
            f"there is no tokenizer at {path}: give a tokenizer.json, a folder, a name on the Hub, or bytes"
        )
    try:
        from transformers import AutoTokenizer, PreTrainedTokenizerFast

        if path.is_file():
            fast: Any = PreTrainedTokenizerFast
            return HuggingFaceTokenizer(fast(tokenizer_file=str(path)), path.name)
        local = path.is_dir() or is_offline(str(name))
        made = AutoTokenizer.from_pretrained(
            str(path) if path.is_dir() else str(name), trust_remote_code=False, local_files_only=local, **how
        )
    except ImportError as error:
        raise ConfigError(f"a tokenizer needs the {error.name} package: pip install 'milepost[hf]'") from None
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # transformers' own errors are of many kinds; a panic of tokenizers is no Exception
        reason = (str(error) or type(error).__name__).strip().splitlines()[0][:160]
        raise ConfigError(
            f"no tokenizer can be loaded from {name}: {reason}; give one (tokenizer.json, or bytes), or a .npy file of "
            "token ids as text"
        ) from None
    return HuggingFaceTokenizer(made, type(made).__name__)


def has_tokenizer(folder: Path) -> bool:
    """Whether a folder has a tokenizer of its own."""
    names = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "vocab.txt", "spiece.model")
    return any((folder / name).is_file() for name in names)
