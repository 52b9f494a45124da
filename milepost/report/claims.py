"""The claims as a page, a document and a table. From claims.json alone.

Each claim has its statement in English and Chinese, its source, the experiment, a figure, the evidence, the rule and the verdict. Buttons show the claims
of one verdict alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from milepost.measure.results import write, write_json
from milepost.report.claims_page import template
from milepost.report.figure import Figure, Mark
from milepost.report.fragment import pictures
from milepost.report.svg import draw

Row = dict[str, Any]
VERDICTS = ("holds", "holds with a limit", "fails", "not decided here")
STYLES = {"holds": "green", "holds with a limit": "yellow", "fails": "bold red", "not decided here": "dim"}
WIDE = 400
"""Pixels of a figure, which a phone has room for."""


def counted(rows: Sequence[Row]) -> dict[str, int]:
    """How many claims have each verdict, in the order of the words."""
    found = Counter(row["verdict"] for row in rows)
    return {word: found[word] for word in VERDICTS}


def answer(rows: Sequence[Row]) -> str:
    """The count of verdicts in a sentence."""
    told = ", ".join(f"{count} {word}" for word, count in counted(rows).items() if count)
    return f"Of {len(rows)} claims: {told}."


def terminal(rows: Sequence[Row]) -> Table:
    """A line for each claim; the evidence of one that is asked for alone."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("claim", "verdict", "evidence"):
        table.add_column(column, overflow="fold", no_wrap=column != "evidence")
    for row in rows:
        table.add_row(Text(row["id"], "bold"), Text(row["verdict"], STYLES[row["verdict"]]), Text(row["evidence"]))
    return table


def figure(data: dict[str, Any]) -> Figure:
    """One picture: lines, or points with their intervals; a dotted line at the rule's threshold. What a logarithmic axis can't show is a gap."""
    log, mark = data["log_y"], data["mark"]
    lines = {name: [_shown(v, log) for v in values] for name, values in data["lines"].items()}
    marked = mark is not None and (mark > 0 or not log)
    if data["kind"] == "points":
        sides = {name: [(_shown(a, log), _shown(b, log)) for a, b in zip(low, data["high"][name], strict=True)] for name, low in data["low"].items()}
        marks, names = (Mark("x", mark, ""),) if marked else (), tuple(map(str, data["x"]))
        return Figure("points", data["title"], data["y_title"], lines=lines, sides=sides, y_names=names, log_x=log, marks=marks)
    marks = (Mark("y", mark, ""),) if marked else ()
    return Figure("lines", data["title"], data["x_title"], data["y_title"], data["x"], lines=lines, log_x=data["log_x"], log_y=log, marks=marks)


def _shown(value: float | None, log: bool) -> float | None:
    return None if value is None or (log and value <= 0) else value


def clauses(row: Row) -> tuple[list[str], list[list[str]]]:
    """The rule's clauses with what was measured."""
    words = {True: "yes", False: "no", None: "not clear"}
    return ["", "must be", "measured", ""], [
        [f"{c['words']} ({c['role']})", f"{c['side']} {c['bound']:.3g}", _said(c["measured"]), words[c["says"]] if c["measured"] else "not measured"]
        for c in row["clauses"]
    ]


def _said(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    value, low, high = found["value"], found["low"], found["high"]
    return f"{value:.4g}" if low == high else f"{value:.4g} ({low:.4g} to {high:.4g})"


def page(data: dict[str, Any]) -> str:
    """claims.html, self-contained."""
    from jinja2 import Environment

    rows = data["rows"]
    groups: dict[str, list[Row]] = {title: [] for name, title in data["groups"].items() if any(row["group"] == name for row in rows)}
    for row in rows:
        drawn = [draw(figure(one), WIDE) for one in row["figures"]]
        groups[data["groups"][row["group"]]].append({**row, "drawn": drawn, "clause_rows": clauses(row)})
    about = data["provenance"]
    facts = [[key, str(value)] for key, value in (*about["protocol"].items(), *((k, v) for k, v in about.items() if k != "protocol"))]
    made = Environment(autoescape=True).from_string(template())
    return made.render(answer=answer(rows), counts=counted(rows), total=len(rows), groups=groups, facts=facts)


def markdown(data: dict[str, Any], picture: Callable[[Row], str] = lambda row: "") -> str:
    """claims.md: the same as words, to read and to compare; with a picture of each where there is one."""
    parts = ["# Claims of the notes, measured", answer(data["rows"]), "| claim | verdict | statement |\n|---|---|---|"]
    parts[-1] += "".join(f"\n| [{r['id']}](#{r['id']}) | {r['verdict']} | {_words(r['statement'])} |" for r in data["rows"])
    for row in data["rows"]:
        parts += [f"## {row['id']}", f"**{row['verdict']}**. {_words(row['statement'])} ({_words(row['source'])})", _words(row["statement_zh"])]
        parts += [f"Experiment: {_words(row['experiment'])}", picture(row), f"Evidence: {_words(row['evidence'])}", f"Rule: {_words(row['rule'])}"]
    return "\n\n".join(filter(None, parts)) + "\n"


def _words(text: str) -> str:
    """Words that Markdown shows as they are: no HTML, no emphasis, no column; what stands in backquotes is code."""
    plain = (piece if piece.startswith("`") else re.sub(r"([*_|\[\]])", r"\\\1", escape(piece, quote=False)) for piece in re.split(r"(`[^`]*`)", text))
    return "".join(plain)


def fragment(rows: Sequence[Row]) -> str:
    """Each claim with its verdict, its pictures, the evidence and the rule, as HTML for a notebook."""
    drawn = [
        pictures(f"{row['id']}: {row['verdict']}", [figure(one) for one in row["figures"]], [row["statement"], row["evidence"], row["rule"]], [])
        for row in rows
    ]
    return f"<p>{escape(answer(rows))}</p>" + "".join(drawn)


def check_folder(out: Path, model: str | None, resume: bool) -> None:
    """Refuse a folder that holds claims already (but to go on), or something else, or that is in the model's own."""
    place, ours = out.expanduser().resolve(), ("claims.json", "claims.md", "claims.html", "checkpoint.json", "lab")
    if place.exists() and (not place.is_dir() or any(file.name not in ours and not file.name.endswith(".tmp") for file in place.iterdir())):
        raise ValueError(f"--out {out} is there already, and holds other things than claims: name another folder")
    if place.exists() and any(place.iterdir()) and not resume:
        raise ValueError(f"--out {out} holds claims already: go on with --resume, or name another folder")
    source = None if model is None else Path(model).expanduser()
    if source is not None and source.is_dir() and (source.resolve() == place or source.resolve() in place.parents):
        raise ValueError(f"--out {out} is inside of the model's folder, which is never written to: name another")


def save(data: dict[str, Any], out: Path) -> Path:
    """Write claims.json, claims.md and claims.html; the page's path."""
    write_json(out / "claims.json", data)
    write(out / "claims.md", markdown(data))
    return write(out / "claims.html", page(data))
