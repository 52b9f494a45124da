"""The needle that retrieval looks for, in a checkpoint's own tokens.

Every answer is one token, so that one pass scores all candidates.

words       "The pass key is river." in the text, "What is the pass key? The pass key is" after it; ten words, each of
which is one
            token to the tokenizer, or ten digits where words are not
passage     where there is no tokenizer: eight tokens of another part of the text and one more, drawn at random; the
eight are read
            again at the end, and the one is asked for. Candidates are ten tokens of the text
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from milepost.checkpoints.model.text import Text
from milepost.checkpoints.model.tokenizers import Tokenized
from milepost.measure.retrieval import LEAST_HAYSTACK, Question, room

Numbers = np.ndarray[Any, Any]
K = 10
"""Candidates."""
PASSAGE = 8
"""Tokens of a passage that is read again."""
BEFORE, MIDDLE, AFTER = "\nThe pass key is", ". Remember it: the pass key is", ".\n"
ASKED = "\nWhat is the pass key? The pass key is"
WORDS = (
    "river", "apple", "stone", "horse", "paper", "green", "music", "table", "night", "glass", "fire", "house", "gold",
    "bread", "ship", "bird", "king", "tree", "rain", "road", "milk", "fish", "snow", "hand",
)  # fmt: skip
DIGITS = tuple("0123456789")


@dataclass(frozen=True)
class Needles:
    """How questions are made: ``kind`` is words or passage, ``candidates`` what is shown of them."""

    kind: str
    candidates: tuple[str, ...]
    tokens: Numbers
    build: Callable[[int, int], Question]


def make_needles(subject: Tokenized, text: Text, windows: Numbers, depths: int, shortest: int) -> Needles:
    """Questions about texts of these windows.

    They are in words where the text was made of words, and they fit into ``shortest`` tokens.
    """
    if text.tokenizer != "token ids" and subject.tokenizer is not None:
        for names, space in ((WORDS, ""), (DIGITS, ""), (DIGITS, " ")):
            single = _single_tokens(subject, names, space)
            if len(single) >= K:
                needles = _in_words(subject, dict(list(single.items())[:K]), space, depths)
                if room(needles.build(0, 0), shortest) >= LEAST_HAYSTACK:
                    return needles
    return _in_passages(text, windows, depths)


def _single_tokens(subject: Tokenized, names: tuple[str, ...], space: str) -> dict[str, int]:
    """The names that are one token after "is"; with ``space`` where the tokenizer wants the blank by itself."""
    before = subject.encode(ASKED + space).tolist()
    single: dict[str, int] = {}
    for name in names:
        whole = subject.encode(f"{ASKED} {name}").tolist()
        if len(whole) == len(before) + 1 and whole[:-1] == before and whole[-1] not in single.values():
            single[name] = whole[-1]
    return single


def _in_words(subject: Tokenized, names: dict[str, int], space: str, depths: int) -> Needles:
    before, middle, after, asked = (
        subject.encode(part + end) for part, end in ((BEFORE, space), (MIDDLE, space), (AFTER, ""), (ASKED, space))
    )
    tokens = np.array(list(names.values()))

    def build(trial: int, depth: int) -> Question:
        answer = _deal_answer(trial, depth, depths, len(tokens))
        key = tokens[answer : answer + 1]
        return Question(np.concatenate([before, key, middle, key, after]), asked, tokens, answer)

    return Needles("words", tuple(names), tokens, build)


def _in_passages(text: Text, windows: Numbers, depths: int) -> Needles:
    draw = np.random.default_rng(0)
    known = np.unique(np.concatenate(text.files))
    known = known[known != text.begin] if text.begin is not None else known
    if len(known) < 2:
        raise ValueError(f"{text.source} has {len(known)} different tokens, and retrieval asks for one of at least 2")
    tokens = draw.choice(known, min(K, len(known)), replace=False)
    passages = [windows[(n + 1) % len(windows), 1 : PASSAGE + 1] for n in range(len(windows))]

    def build(trial: int, depth: int) -> Question:
        answer = _deal_answer(trial, depth, depths, len(tokens))
        passage = passages[trial]
        return Question(np.concatenate([passage, tokens[answer : answer + 1]]), passage, tokens, answer)

    return Needles("passage", tuple(str(token) for token in tokens), tokens, build)


def _deal_answer(trial: int, depth: int, depths: int, count: int) -> int:
    """Answers in turn: each candidate is the true one as often as any other."""
    return (trial * depths + depth) % count
