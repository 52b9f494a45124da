"""What `milepost resize` did, in the terminal. From its data alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

WORDS = {True: ("PASS", "green"), False: ("FAIL", "bold red"), None: ("-", "dim")}


def summary(data: dict[str, Any]) -> str:
    """One line: what was done."""
    old, new = (" x ".join(map(str, data[key])) for key in ("source", "target"))
    kept = f", {data['prefix']} rows before it as they were" if data["prefix"] else ""
    return f"{data['model']} ({data['family']}): table of {old} for {new} ({data['how']}{kept}); written to {data['out']}"


def terminal(data: dict[str, Any]) -> Iterator[Table | Text]:
    """Checks, what was changed, notes, and one line."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for check in data["checks"]:
        word, style = WORDS[check["passed"]]
        table.add_row(Text(word, style), Text(check["name"]), Text(check["sentence"]))
    yield table
    for key, (old, new) in data["changed"].items():
        yield Text(f"config.json: {key} {old} -> {new}")
    for note in data["notes"]:
        yield Text(f"note: {note}", "yellow")
    yield Text(summary(data), "bold green" if data["ok"] else "bold red")
