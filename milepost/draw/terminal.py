"""A document in a terminal: its tables, notes and sentences, and the answer last, where the eye is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from milepost.draw import table as tables

if TYPE_CHECKING:
    from milepost.draw.document import Document

STYLES = {"PASS": "green", "FAIL": "bold red", "WARN": "yellow", "????": "yellow", "-": "dim", "unseen": "red"}
"""Of words that judge."""
ANSWERS = {True: "bold green", False: "bold red", None: "bold"}


def document(found: Document) -> Iterator[Table | Text]:
    """What is printed, one after another."""
    for one in found.terminal_tables:
        if any(one.head) or not one.title:
            yield table(one)
        else:
            yield Text(one.title, "italic")
            yield from (Text("  " + ": ".join(cell for cell in row if cell)) for row in one.rows)
        yield Text("")
    yield from (Text(f"note: {note}", "yellow") for note in found.notes)
    for sentence in found.sentences:
        yield Text(
            sentence,
            "bold red" if sentence.startswith(("FAIL", "Not ")) else "yellow" if sentence.startswith("warning") else "",
        )
    if found.answer:
        yield Text(found.answer, ANSWERS[found.ok])


def table(one: tables.Table) -> Table:
    """A table of words, numbers to the right; words that judge have their colour."""
    about: dict[str, Any] = {} if one.ruled else {"box": None, "pad_edge": False}
    made = Table(
        title=Text(one.title) if one.title else None,
        title_justify="left",
        header_style="bold",
        show_header=any(one.head),
        show_lines=one.ruled,
        **about,
    )
    for at, column in enumerate(one.head):
        right = at > 0 and all(tables.is_number(row[at]) for row in one.rows)
        made.add_column(Text(column), justify="right" if right else "left", overflow="fold")
    for row in one.rows:
        made.add_row(*(Text(cell, STYLES.get(cell, "")) for cell in row))
    return made
