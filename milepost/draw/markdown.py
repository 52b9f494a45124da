"""A document in Markdown: its words and tables, to paste."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milepost.draw.document import Document, Section

SIGNS = re.compile(r"\||\*(?=\S)|(?<!\w)_(?=\S)|\](?=[(\[:])|:(?=//)|(?<=\bwww)\.", re.IGNORECASE)
"""What would begin a column or an emphasis, or make a link or an image of what stands before it, or of an address."""
CODE = re.compile(r"((?<!`)`[^`]+`(?!`))")
"""Words in single backquotes, paired as Markdown pairs them."""


def document(shown: Document, picture: Callable[[Section], str], folded: bool) -> str:
    """Title, question, answer, sentences and notes, then every section that has something to read."""
    parts = [f"# {words(shown.title)}", words(shown.question), words(shown.answer), *map(words, shown.sentences)]
    parts.append("\n".join(f"- {words(note)}" for note in shown.notes))
    judged = [section for section in shown.sections if section.status]
    if judged:
        rows = [[f"[{s.title}](#{s.anchor})", s.status, words(s.words)] for s in judged]
        parts.append(table(["claim", "verdict", "statement"], rows, cell=str))
    for section in shown.sections:
        body = _section(section, picture(section), folded)
        parts += [f"## {words(section.title)}", *body] if body else []
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(section: Section, picture: str, folded: bool) -> list[str]:
    """A section of figures alone has nothing to read."""
    held = [
        f"```\n{section.code}\n```" if section.code else "", words(section.chinese), picture,
        *(f"{name[:1].upper()}{name[1:]}: {words(value)}" for name, value in section.facts),
    ]  # fmt: skip
    for one in section.tables:
        held += (
            [f"### {words(one.title)}" if one.title else "", table(one.head, one.rows)]
            if folded or not one.fold
            else []
        )
    if not any(held) and section.figures:
        return []
    verdict = f"**{section.status}**. " if section.status else ""
    return [f"{verdict}{words(section.words)}", *held]


def table(head: Sequence[str], rows: Sequence[Sequence[str]], cell: Callable[[str], str] | None = None) -> str:
    """A table to paste."""
    cell = words if cell is None else cell
    lines = [["", *map(cell, head), ""], ["", *["---"] * len(head), ""], *(["", *map(cell, row), ""] for row in rows)]
    return "\n".join("|".join(line) if line[1] == "---" else " | ".join(line).strip() for line in lines)


def words(text: str) -> str:
    """Words that Markdown shows as they are: no HTML, no emphasis, no link, no column that was not meant; what stands
    in backquotes is code.
    """
    pieces = CODE.split(" ".join(text.split()))
    plain = (
        piece.replace("&", "&amp;").replace("<", "&lt;") if at % 2 == 0 else piece for at, piece in enumerate(pieces)
    )
    return "".join(SIGNS.sub(r"\\\g<0>", piece) if at % 2 == 0 else piece for at, piece in enumerate(plain))
