"""The claims as a page, a document and a table. From claims.json alone.

Each claim has its statement in English and Chinese, its source, the experiment, a figure, the evidence, the rule and the verdict. Figures are drawn
as the reader comes to them; buttons show the claims of one verdict alone.
"""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from rich.table import Table
from rich.text import Text

from milepost.report.claims_page import template
from milepost.report.lab_style import COLOURS, MARKS
from milepost.results import write, write_json

Row = dict[str, Any]
VERDICTS = ("holds", "holds with a limit", "fails", "not decided here")
STYLES = {"holds": "green", "holds with a limit": "yellow", "fails": "bold red", "not decided here": "dim"}
GREY = "#888"
LINE, TICKS = 44, 8
"""Letters in a line of a title, which a phone has room for; and points of a logarithmic axis that are all named."""


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


def figure(data: dict[str, Any]) -> Any:
    """One picture as a plotly object: lines, or points with intervals; a dotted line at the rule's threshold."""
    from plotly import graph_objects as go

    fig = go.Figure()
    for number, (name, values) in enumerate(data["lines"].items()):
        colour = COLOURS[number % len(COLOURS)]
        how: dict[str, Any] = {"mode": "lines+markers", "line": {"color": colour, "width": 2}} if data["kind"] == "lines" else {"mode": "markers"}
        if name in data["low"]:
            how["error_y"] = _bars(values, data["low"][name], data["high"][name])
        x = [html.escape(one) if isinstance(one, str) else one for one in data["x"]]
        mark = {"color": colour, "symbol": MARKS[number % len(MARKS)], "size": 9 if data["kind"] == "points" else 6}
        fig.add_scatter(x=x, y=values, name=html.escape(name), marker=mark, **how)
    fig.update_xaxes(
        title_text=html.escape(data["x_title"]), type="log" if data["log_x"] else "category" if data["kind"] == "points" else "linear", automargin=True
    )
    fig.update_yaxes(title_text=html.escape(data["y_title"]), type="log" if data["log_y"] else "linear", exponentformat="power", automargin=True)
    if data["log_x"] and len(data["x"]) <= TICKS:
        fig.update_xaxes(tickvals=data["x"], ticktext=[f"{one:,g}" if one < 1e5 else f"{one:.0e}" for one in data["x"]])
    if data["mark"] is not None and (data["mark"] > 0 or not data["log_y"]):
        fig.add_hline(data["mark"], line_dash="dot", line_color=GREY)
    title = {"text": "<br>".join(html.escape(line) for line in wrap(data["title"], LINE)), "x": 0, "xanchor": "left", "font": {"size": 14}}
    fig.update_layout(
        template="plotly_white", height=340, margin={"l": 60, "r": 20, "t": 60, "b": 50}, legend={"orientation": "h", "y": -0.3}, title=title,
        font={"family": "system-ui, sans-serif"}, showlegend=len(data["lines"]) > 1,
    )  # fmt: skip
    return fig


def _bars(values: list[Any], low: list[Any], high: list[Any]) -> dict[str, Any]:
    """Intervals as plotly wants them: how far below and above."""
    both = [(0.0, 0.0) if v is None or a is None or b is None else (v - a, b - v) for v, a, b in zip(values, low, high, strict=True)]
    return {"type": "data", "symmetric": False, "arrayminus": [a for a, _ in both], "array": [b for _, b in both], "thickness": 1.5, "width": 4}


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
    from plotly.offline import get_plotlyjs

    rows = data["rows"]
    groups: dict[str, list[Row]] = {title: [] for name, title in data["groups"].items() if any(row["group"] == name for row in rows)}
    for row in rows:
        drawn = [figure(one).to_json().replace("<", "\\u003c") for one in row["figures"]]
        groups[data["groups"][row["group"]]].append({**row, "drawn": drawn, "clause_rows": clauses(row)})
    about = data["provenance"]
    facts = [[key, str(value)] for key, value in (*about["protocol"].items(), *((k, v) for k, v in about.items() if k != "protocol"))]
    made = Environment(autoescape=True).from_string(template())
    return made.render(answer=answer(rows), counts=counted(rows), total=len(rows), groups=groups, facts=facts, plotly=get_plotlyjs())


def markdown(data: dict[str, Any]) -> str:
    """claims.md: the same as words, to read and to compare."""
    parts = ["# Claims of the notes, measured", answer(data["rows"]), "| claim | verdict | statement |\n|---|---|---|"]
    parts[-1] += "".join(f"\n| [{r['id']}](#{r['id']}) | {r['verdict']} | {r['statement'].replace('|', chr(92) + '|')} |" for r in data["rows"])
    for row in data["rows"]:
        parts += [f"## {row['id']}", f"**{row['verdict']}**. {row['statement']} ({row['source']})", row["statement_zh"]]
        parts += [f"Experiment: {row['experiment']}", f"Evidence: {row['evidence']}", f"Rule: {row['rule']}"]
    return "\n\n".join(parts) + "\n"


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
