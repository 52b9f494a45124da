"""Words: everything that the page says, in English and in Chinese.

Words of the page have a key, ``say("clocks.title")``, in both files of words/. What the package says itself, such as the title of a portrait's
panel, is English: `phrase` finds its Chinese by the English with numbers left out, "Bias of head {}". Sentences that refuse have more than
numbers in them, "{0} is one of {1}, got {2}": `refusal` finds theirs in words/refusals.zh.json.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

LANGUAGES = ("en", "zh")
NUMBER = re.compile(r"\d+(?:\.\d+)?")
HOLE = re.compile(r"\\\{\d+\\\}")
"""A {0} of a sentence, as `re.escape` leaves it."""


@cache
def table(language: str) -> dict[str, str]:
    """The words of a language by their keys."""
    found: dict[str, str] = json.loads((Path(__file__).parent / "words" / f"{language}.json").read_text(encoding="utf-8"))
    return found


@cache
def refusals(language: str) -> list[tuple[re.Pattern[str], str]]:
    """Sentences that refuse, as patterns of the English, and what they are in a language: what has most words of its own comes first."""
    path = Path(__file__).parent / "words" / f"refusals.{language}.json"
    if not path.exists():  # English: as it is
        return []
    found: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    own = sorted(found, key=lambda english: len(HOLE.sub("", re.escape(english))), reverse=True)
    return [(re.compile(HOLE.sub("(.+?)", re.escape(english)), re.DOTALL), found[english]) for english in own]


class Words:
    """The words of one language."""

    def __init__(self, language: str):
        if language not in LANGUAGES:
            raise ValueError(f"lang is one of {', '.join(LANGUAGES)}, got {language[:20]!r}")
        self.language = language

    def say(self, key: str, **values: Any) -> str:
        """The words of a key, with numbers put in."""
        return table(self.language)[key].format(**values)

    def phrase(self, text: str) -> str:
        """What the package says in English, in this language; as it is where nobody has translated it."""
        if self.language == "en":
            return text
        found = table(self.language).get(f"phrase.{NUMBER.sub('{}', text)}")
        return text if found is None else found.format(*NUMBER.findall(text))

    def refusal(self, text: str) -> str:
        """A sentence that refuses, in this language; as it is where nobody has translated it."""
        for pattern, said in refusals(self.language):
            fits = pattern.fullmatch(text)
            if fits:
                return said.format(*fits.groups())
        return text

    def starting(self, prefix: str) -> dict[str, str]:
        """All words whose key starts so, by the rest of the key."""
        return {key.removeprefix(prefix): text for key, text in table(self.language).items() if key.startswith(prefix)}
