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


def document(shown: Document) -> Iterator[Table | Text]:
    """What is printed, one after another."""
    for each in shown.terminal_tables:
        if any(each.head) or not each.title:
            yield table(each)
        else:
            yield Text(each.title, "italic")
            yield from (Text("  " + ": ".join(cell for cell in row if cell)) for row in each.rows)
        yield Text("")
    yield from (Text(f"note: {note}", "yellow") for note in shown.notes)
    for sentence in shown.sentences:
        yield Text(
            sentence,
            "bold red" if sentence.startswith(("FAIL", "Not ")) else "yellow" if sentence.startswith("warning") else "",
        )
    if shown.answer:
        yield Text(shown.answer, ANSWERS[shown.ok])


def table(shown: tables.Table) -> Table:
    """A table of words, numbers to the right; words that judge have their colour."""
    about: dict[str, Any] = {} if shown.ruled else {"box": None, "pad_edge": False}
    made = Table(
        title=Text(shown.title) if shown.title else None,
        title_justify="left",
        header_style="bold",
        show_header=any(shown.head),
        show_lines=shown.ruled,
        **about,
    )
    for at, column in enumerate(shown.head):
        right = at > 0 and all(tables.is_number(row[at]) for row in shown.rows)
        made.add_column(Text(column), justify="right" if right else "left", overflow="fold")
    for row in shown.rows:
        made.add_row(*(Text(cell, STYLES.get(cell, "")) for cell in row))
    return made
