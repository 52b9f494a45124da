"""Words: tokens as text and back, for servers that take and give text alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from milepost.checkpoints.model.tokenizers import Tokenizer

Ids = Sequence[int] | np.ndarray[Any, Any]


class Words:
    """A tokenizer's words. ``begin`` is a first token that the server puts in by itself, so that it is not written."""

    def __init__(self, tokenizer: Tokenizer, begin: int | None = None):
        self.tokenizer, self.begin = tokenizer, begin

    def spell(self, ids: Ids) -> str:
        """Tokens as text."""
        written = ids[1:] if self.begin is not None and len(ids) and ids[0] == self.begin else ids
        return self.tokenizer.decode([int(n) for n in written])

    def tokens_of(self, text: str) -> list[int]:
        """A text's tokens."""
        return [int(n) for n in self.tokenizer.encode(text)]

    def reads_back(self, ids: Ids) -> bool:
        """Whether the text of these tokens is read as these tokens again."""
        first = [] if self.begin is None else [self.begin]
        return [*first, *self.tokens_of(self.spell(ids))] == [int(n) for n in ids]

    def token_of(self, word: str) -> int:
        """The one token that is written so; a negative number of its own where there is none, or several."""
        return self._tokens.get(word, -1 - hash(word) % (1 << 31))

    @cached_property
    def _tokens(self) -> dict[str, int]:
        written: dict[str, int] = {}
        twice = set()
        for token in range(self.tokenizer.size):
            word = self.tokenizer.decode([token])
            twice |= {word} & written.keys()
            written[word] = token
        return {word: token for word, token in written.items() if word not in twice}
