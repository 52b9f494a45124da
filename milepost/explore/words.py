"""Words: everything that the page says, in English and in Chinese.

Words of the page have a key, ``say("clocks.title")``, in both files of words/. What the package says itself, such as
the title of a portrait's panel, is English: `phrase` finds its Chinese by the English with numbers left out, "Bias of
head {}". Sentences that refuse a query contain more than numbers, "{0} is one of {1}, got {2}": `refusal` finds their
Chinese in words/refusals.zh.json.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "words"
LANGUAGES = ("en", "zh")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
HOLE = re.compile(r"\\\{\d+\\\}")
"""A {0} of a sentence, as `re.escape` leaves it."""


@cache
def table(language: str) -> dict[str, str]:
    """The words in words/LANGUAGE.json by their keys."""
    words: dict[str, str] = json.loads((FOLDER / f"{language}.json").read_text(encoding="utf-8"))
    return words


@cache
def refusals(language: str) -> list[tuple[re.Pattern[str], str]]:
    """Sentences that refuse a query, as patterns of the English, with their translations; the longest come first."""
    if not (FOLDER / f"refusals.{language}.json").exists():  # English: as it is
        return []
    translated = table(f"refusals.{language}")
    longest_first = sorted(translated, key=lambda english: len(HOLE.sub("", re.escape(english))), reverse=True)
    return [(re.compile(HOLE.sub("(.+?)", re.escape(e)), re.DOTALL), translated[e]) for e in longest_first]


class PageWords:
    """The words of one language."""

    def __init__(self, language: str):
        if language not in LANGUAGES:
            raise ValueError(f"lang is one of {', '.join(LANGUAGES)}, got {language[:20]!r}")
        self.language = language

    def say(self, key: str, **values: Any) -> str:
        """The words of a key, with numbers put in."""
        return table(self.language)[key].format(**values)

    def phrase(self, text: str) -> str:
        """What the package says in English, in this language; as it is where there is no translation."""
        if self.language == "en":
            return text
        translation = table(self.language).get(f"phrase.{NUMBER.sub('{}', text)}")
        return text if translation is None else translation.format(*NUMBER.findall(text))

    def refusal(self, text: str) -> str:
        """A sentence that refuses a query, in this language; as it is where there is no translation."""
        for pattern, translation in refusals(self.language):
            if fits := pattern.fullmatch(text):
                return translation.format(*fits.groups())
        return text

    def starting(self, prefix: str) -> dict[str, str]:
        """All words whose key starts so, by the rest of the key."""
        return {key.removeprefix(prefix): text for key, text in table(self.language).items() if key.startswith(prefix)}
