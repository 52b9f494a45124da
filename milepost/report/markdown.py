"""A report in Markdown: the words and tables of its sections, to paste."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def in_markdown(title: str, question: str, answer: str, notes: Sequence[str], sections: Sequence[dict[str, Any]]) -> str:
    """The sections that have tables, in Markdown."""
    parts = [f"# {title}", question, _safe(answer), *[_safe(note) for note in notes]]
    for section in sections:
        held = [("", *section["table"])] if "table" in section else []
        held += section.get("more", [])
        if held:
            parts += [f"## {_safe(section['title'])}", _safe(section["words"])]
        for words, head, rows in held:
            parts += [f"### {words}" if words else "", markdown(head, rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table to paste."""
    lines = ["| " + " | ".join(map(_safe, head)) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(map(_safe, row)) + " |" for row in rows)])


def _safe(words: str) -> str:
    """Words that Markdown shows as they are: no HTML, no column that was not meant."""
    return " ".join(words.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").split())
