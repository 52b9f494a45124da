"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from milepost.encodings.catalogue import Page
    from milepost.testing import Verdict

SHORT = {
    "shift_invariant": "shift-invariant",
    "toeplitz": "Toeplitz",
    "causal_only": "causal only",
    "rotation": "rotation",
    "length_dependent": "length-dependent",
    "content_dependent": "content-dependent",
}
STYLES = {True: "green", False: "bold red", None: "dim"}


def catalogue(pages: Sequence[Page]) -> Table:
    """Every encoding in a row."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("encoding", "acts at", "properties", "arguments", "reference"):
        table.add_column(column, overflow="fold")
    for p in pages:
        given = ", ".join(name if not default else f"{name}={default}" for name, default in p.arguments.items())
        table.add_row(Text(p.name, "bold"), Text(", ".join(p.points) or "nowhere"), Text(_properties(p)), Text(given), Text(p.reference))
    return table


def _properties(p: Page) -> str:
    return ", ".join(word for key, word in SHORT.items() if p.properties[key])


def side_by_side(pages: Sequence[Page]) -> Table:
    """A few encodings in columns, one question a row."""
    table = Table(header_style="bold", show_lines=True)
    table.add_column("")
    for p in pages:
        table.add_column(Text(p.title), overflow="fold")
    table.add_row("acts at", *[Text(", ".join(p.points) or "nowhere") for p in pages])
    for field in ("Mechanism", "Information", "Prior", "Content", "Storage", "Used by"):
        table.add_row(field.lower(), *[Text(p.facts.get(field, "")) for p in pages])
    table.add_row("properties", *[Text(_properties(p)) for p in pages])
    for question in ("extrapolation", "cost"):
        answers = [p.row()["measured"].get(question, "") for p in pages]
        if any(answers):
            table.add_row(f"measured {question}", *[Text(a or "not measured yet") for a in answers])
    table.add_row("reference", *[Text(p.reference) for p in pages])
    return table


def laws(encoding: str, verdicts: Sequence[Verdict]) -> Table:
    """Every law's answer for one encoding."""
    table = Table(title=Text(encoding), title_justify="left", box=None, header_style="bold")
    for column in ("", "law", "sentence"):
        table.add_column(column)
    for v in verdicts:
        table.add_row(Text(v.word, STYLES[v.passed]), Text(v.law), Text(f"{v.sentence} {v.detail}".strip()))
    return table


def laws_in_a_line(encoding: str, verdicts: Sequence[Verdict]) -> Text:
    """All is well, in one line."""
    passed, excused = sum(v.passed is True for v in verdicts), sum(v.passed is None for v in verdicts)
    return Text.assemble(("PASS ", "green"), f"{encoding}: {passed} laws hold, {excused} do not apply")


def rope_bench(result: dict[str, Any]) -> Table:
    """The ratio table of `bench rope`."""
    p = result["provenance"]["protocol"]
    table = Table(
        title=f"q and k of {p['heads']} heads x {p['length']} x {p['head_dim']}, {p['dtype']}, {p['device']}, best of {p['rounds']}", header_style="bold"
    )
    for column in ("implementation", "mode", "ms", "time / clone", "time / ours"):
        table.add_column(column, justify="left" if column in ("implementation", "mode") else "right")
    for row in sorted(result["rows"], key=lambda r: (r["mode"], r["seconds"])):
        table.add_row(row["implementation"], row["mode"], f"{row['seconds'] * 1e3:.1f}", f"{row['ratio']:.2f}", f"{row['times_ours']:.2f}")
    if result["not_installed"]:
        table.caption = f"not installed, so not measured: {', '.join(result['not_installed'])} (pip install 'milepost[bench]')"
    return table


def attention_bench(result: dict[str, Any]) -> Table:
    """The ratio table of `bench attention` and `bench decode`."""
    p = result["provenance"]["protocol"]
    table = Table(title=f"{p['heads']} heads x {p['head_dim']}, {p['dtype']}, {p['device']}, ratios to torch SDPA with no position", header_style="bold")
    for column in ("scheme", "implementation", "pass", "length", "ratio", "extra MB", ""):
        table.add_column(column, justify="right" if column in ("length", "ratio", "extra MB") else "left")
    for row in result["rows"]:
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        peak = "" if row["peak_mb"] is None else f"{row['peak_mb']:.0f}"
        ours = "bold" if row["implementation"] == "milepost" else ""
        table.add_row(row["scheme"], Text(row["implementation"], ours), row["pass"], str(row["length"]), Text(ratio, ours), peak, Text(row["note"]))
    return table


def plain(head: Sequence[str], rows: Sequence[Sequence[str]], *, title: str = "") -> Table:
    """A table of words; numbers to the right."""
    table = Table(title=Text(title), title_justify="left", box=None, header_style="bold", pad_edge=False)
    for number, column in enumerate(head):
        table.add_column(Text(column), justify="left" if number == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*[Text(cell) for cell in row])
    return table
