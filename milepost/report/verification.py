"""The checks of `milepost verify` as a table in the terminal, as report.md and as report.html."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from milepost.report.folder import save_folder
from milepost.report.lab_page import page as whole_page

STYLES = {"PASS": "green", "FAIL": "bold red", "WARN": "yellow", "BLIND": "yellow", "NONE": "dim"}
WORDS = {"BLIND": "????", "NONE": "-"}
"""What the table shows for them."""
FLOOR = 1e-6
"""A found zero is drawn here."""
HEAD = ("", "check", "found", "allowed", "a fault gives", "in", "")


def _cells(check: dict[str, Any]) -> list[str]:
    numbers = ["" if check[n] is None else f"{check[n]:.2g}" for n in ("measured", "allowed", "control")]
    return [WORDS.get(check["verdict"], check["verdict"]), check["name"], *numbers, check["unit"], check["sentence"]]


def summary(result: dict[str, Any]) -> str:
    """One line: how many of each."""
    count = {v: sum(c["verdict"] == v for c in result["checks"]) for v in STYLES}
    parts = [f"{count['PASS']} checks passed", f"{count['FAIL']} failed"]
    parts += [
        f"{count[v]} {words}"
        for v, words in (("WARN", "warnings"), ("BLIND", "could not have failed (????): nothing is proved"), ("NONE", "do not apply"))
        if count[v]
    ]
    return f"{'PASS' if result['ok'] else 'FAIL'} {result['model']}: {', '.join(parts)}"


def terminal(result: dict[str, Any]) -> Iterator[Table | Text]:
    """The table, notes, and one line."""
    table = Table(title=Text(f"{result['model']} ({result['model_type']})"), title_justify="left", box=None, show_header=False, pad_edge=False)
    for _ in range(3):
        table.add_column(overflow="fold")
    for check in result["checks"]:
        word, name, *numbers, unit, sentence = _cells(check)
        shown = Text(sentence)
        if any(numbers):
            parts = [f"{said} {n}" for said, n in zip(("found", "allowed", "a fault gives"), numbers, strict=True) if n]
            shown.append(f"\n{', '.join(parts)} ({unit})", "dim")
        table.add_row(Text(word, STYLES[check["verdict"]]), Text(name), shown)
    yield table
    for note in result["notes"]:
        yield Text(f"note: {note}", "yellow")
    yield Text(summary(result), "bold green" if result["ok"] else "bold red")


def markdown(result: dict[str, Any]) -> str:
    """report.md."""
    lines = [f"# verify {result['model']}", "", summary(result), "", "| | check | found | allowed | a fault gives | in | |", "|---|---|---:|---:|---:|---|---|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in _cells(check)) + " |" for check in result["checks"]]
    lines += ["", *[f"- {note}" for note in result["notes"]], "", _how(result)]
    return "\n".join(lines) + "\n"


def _how(result: dict[str, Any]) -> str:
    p = result["provenance"]["protocol"]
    return (
        f"Run in {p['dtype']} on {p['device']} with {p['attention']} attention. Logits may differ by {p['tolerance']}. "
        '"of rounding": 1 is what float32 angles may be off. "A fault gives": the same number with other positions, or without the bias; '
        "where that is not above what is allowed, nothing is proved (????)."
    )


def figure(result: dict[str, Any]) -> Any:
    """How far each check is from failing: what was found and what a fault would give, in units of what is allowed."""
    import plotly.graph_objects as go

    known = [c for c in result["checks"] if c["measured"] is not None and c["allowed"] and c["verdict"] != "NONE"][::-1]
    names = [c["name"] for c in known]
    fig = go.Figure(layout={"title": {"text": "Found, and what a fault would give"}, "height": 160 + 26 * len(known), "margin": {"l": 180, "r": 20}})
    for what, key, colour in (("found", "measured", "#2563eb"), ("a fault gives", "control", "#d97706")):
        values = [None if c[key] is None else max(c[key] / c["allowed"], FLOOR) for c in known]
        fig.add_scatter(x=values, y=names, mode="markers", name=what, marker={"color": colour, "size": 9}, meta={"label": what, "kind": "checks"})
    fig.add_vline(x=1, line={"color": "#888", "dash": "dot"})
    fig.update_xaxes(type="log", title_text="times what is allowed: beyond 1 it fails (log scale)")
    return fig


def page(result: dict[str, Any]) -> str:
    """report.html, self-contained."""
    rows = [_cells(check) for check in result["checks"]]
    sections: list[dict[str, Any]] = [{"title": "Checks", "words": _how(result), "table": (["verdict", *HEAD[1:-1], "what it says"], rows)}]
    if any(check["measured"] is not None and check["allowed"] for check in result["checks"]):
        sections[0]["figures"] = [figure(result)]
    about = result["provenance"]
    told = [[key, str(value)] for key, value in {**about["protocol"], **{k: v for k, v in about.items() if k != "protocol"}}.items()]
    sections.append({"title": "Protocol and provenance", "words": "", "table": (["", ""], told)})
    question = f"Does this model ({result['model_type']}), loaded and run, do with positions what its config asks for?"
    return whole_page(f"verify {result['model']}", question, summary(result), result["notes"], sections)


def save(result: dict[str, Any], out: Path) -> Path:
    """Write report.html, report.md and verification.json into ``out``: all three, or nothing."""
    return save_folder(out, "verification", result, markdown(result), page(result))
