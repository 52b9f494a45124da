"""What `milepost resize` did: in the terminal, as report.md and as report.html. From its data alone.

The table's picture before and after first, then the proofs and what was changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from milepost.report import told
from milepost.report.folder import fill
from milepost.report.lab_page import page as whole_page
from milepost.report.told import Part

WORDS = {True: ("PASS", "green"), False: ("FAIL", "bold red"), None: ("-", "dim")}
TABLE = "the table"
COLOURS = {"before": "#d97706", "after": "#2563eb"}


def summary(data: dict[str, Any]) -> str:
    """One line: what was done."""
    kept = f", {data['prefix']} row{'s' if data['prefix'] > 1 else ''} before it kept" if data["prefix"] else ""
    return f"{data['model']} ({data['family']}): table of {_size(data['source'])} for {_size(data['target'])} ({data['how']}{kept}); written to {data['out']}"


def sentences(data: dict[str, Any]) -> list[str]:
    """Whether it was proved, and what became of neighbours."""
    failed = [check["name"] for check in data["checks"] if check["passed"] is False]
    passed = sum(check["passed"] is True for check in data["checks"])
    proved = f"FAIL: {', '.join(failed)}." if failed else f"PASS: {passed} checks passed."
    old, new = (data["alike"][when]["neighbours"] for when in ("before", "after"))
    if old is None or new is None:
        return [proved]
    return [proved, f"Neighbouring places have a cosine of {new:.3f} on average, where the model has seen {old:.3f}."]


def parts(data: dict[str, Any]) -> list[Part]:
    """Every table that has rows."""
    near = ["no number" if data["alike"][when]["neighbours"] is None else f"{data['alike'][when]['neighbours']:.4f}" for when in COLOURS]
    looks = [["places", _size(data["source"]), _size(data["target"])], ["mean cosine of neighbours", *near]]
    checks = [[WORDS[check["passed"]][0], check["name"], check["sentence"]] for check in data["checks"]]
    changed = [[key, str(old), str(new)] for key, (old, new) in data["changed"].items()]
    made: list[Part] = [
        (TABLE, ["", "before", "after"], looks), ("proofs", ["", "check", ""], checks), ("config.json", ["key", "before", "after"], changed)
    ]  # fmt: skip
    return [part for part in made if part[2]]


def notes(data: dict[str, Any]) -> list[str]:
    """What its reader should know."""
    return [*data["notes"], *[f"not copied: {name}" for name in data["left_out"]]]


def _size(sides: list[int]) -> str:
    return " x ".join(map(str, sides))


# -- drawn -------------------------------------------------------------------------------------------------------------------------


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
    for note in notes(data):
        yield Text(f"note: {note}", "yellow")
    for sentence in sentences(data)[1:]:
        yield Text(sentence)
    yield Text(summary(data), "bold green" if data["ok"] else "bold red")


def markdown(data: dict[str, Any]) -> str:
    """report.md."""
    return told.markdown(f"{data['model']} for {_size(data['target'])}", summary(data), sentences(data), parts(data), notes(data))


def fragment(data: dict[str, Any]) -> str:
    """The tables as HTML, for a notebook."""
    return told.fragment(summary(data), sentences(data), parts(data), notes(data))


def page(data: dict[str, Any]) -> str:
    """report.html, self-contained."""
    figures = [by_place(data)] if len(data["source"]) == 1 else [grid(data, when) for when in COLOURS]
    sections = told.sections(parts(data), {TABLE: figures}, data["provenance"])
    return whole_page(f"resize {data['model']}", summary(data), " ".join(sentences(data)), notes(data), sections)


def grid(data: dict[str, Any], when: str) -> Any:
    """How alike the middle cell is to every other, as a map; both maps have the same colours."""
    held = data["alike"][when]
    known = [v for one in data["alike"].values() for row in one["cosine"] for v in row if v is not None]
    (row, column), (rows, columns) = held["middle"], held["places"]
    fig = told.figure(f"{when.capitalize()}, {_size(data['source' if when == 'before' else 'target'])}: cosine with the middle")
    fig.add_heatmap(
        z=held["cosine"], x=columns, y=rows, zmin=min(known, default=-1.0), zmax=1.0, colorscale="Viridis", colorbar={"thickness": 12}, name="",
        hovertemplate="row %{y}, column %{x}: %{z:.3f}<extra></extra>",
    )  # fmt: skip
    mark = {"symbol": "square-open", "size": 14, "color": "#d97706", "line": {"width": 3}}
    fig.add_scatter(x=[column], y=[row], mode="markers", marker=mark, name="", hoverinfo="skip")
    fig.update_xaxes(title_text="column", constrain="domain")
    fig.update_yaxes(title_text="row", autorange="reversed", scaleanchor="x", constrain="domain")
    return fig


def by_place(data: dict[str, Any]) -> Any:
    """How alike the middle position is to every other, along the whole table: what was stretched well lies on what it was."""
    fig = told.figure("Cosine with the middle")
    for when, key in (("before", "source"), ("after", "target")):
        held, (length,) = data["alike"][when], data[key]
        x = [(place + 0.5) / length for place in held["places"][0]]
        fig.add_scatter(
            x=x, y=held["cosine"][0], name=f"{when}: {length}", mode="lines+markers", line={"color": COLOURS[when]}, customdata=held["places"][0],
            hovertemplate="position %{customdata}: %{y:.3f}<extra></extra>", meta={"label": when, "kind": "table"},
        )  # fmt: skip
    fig.update_xaxes(title_text="place, as a share of the table", range=[0, 1])
    fig.update_yaxes(title_text="cosine")
    return fig


def save(data: dict[str, Any], out: Path) -> Path:
    """Write report.html, report.md and resized.json."""
    return fill(out, "resized", data, markdown(data), page(data))
