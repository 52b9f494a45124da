"""The report of `milepost recommend`: the answer first, then every method with its gain, its cost and its loss by length; and what to paste."""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from milepost.report import recommendation_figures as figures
from milepost.report.figure import Figure, Mark
from milepost.report.folder import save_folder
from milepost.report.fragment import pictures
from milepost.report.lab import markdown as table_to_paste
from milepost.report.lab_page import page as whole_page

Row = dict[str, Any]
HEAD = ["method", "setting", "gain at the target", "short texts pay", "left to the trained length", "reaches it", "sees all", "a config says it"]


def rows(data: Row) -> list[list[str]]:
    """Every method, the largest gain first."""
    return [
        [
            row["method"] + (" *" if row["method"] == data["top"] else ""), row["setting"], _sure(row["gain"]), _sure(row["cost"]), _sure(row["gap"]),
            _yes(row["reaches"]), _yes(row["whole"]), _yes(row["config"]),
        ]
        for row in data["rows"]
    ]  # fmt: skip


def lengths(data: Row) -> tuple[list[str], list[list[str]]]:
    """Loss of every method at every length."""
    head = ["method", *[str(one["length"]) for one in data["rows"][0]["loss_by_length"]]]
    return head, [[row["method"], *["" if one["loss"] is None else f"{one['loss']:.3f}" for one in row["loss_by_length"]]] for row in data["rows"]]


def tried(data: Row) -> tuple[list[str], list[list[str]]]:
    """Every setting that was tried, on the part of the text that settings were chosen on."""
    found = [[one["method"], one["setting"], "" if one["loss"] is None else f"{one['loss']:.3f}", _yes(one["chosen"])] for one in data["tried"]]
    return ["method", "setting", "loss at the target", "chosen"], found


def _sure(one: Row) -> str:
    if one["value"] is None:
        return "not measured"
    value = _zero(one["value"])
    return f"{value:+.3f}" if one["low"] is None else f"{value:+.3f} ({_zero(one['low']):+.3f} to {_zero(one['high']):+.3f})"


def _zero(value: float) -> float:
    return 0.0 if abs(value) < 5e-4 else value


def _yes(value: bool) -> str:
    return "yes" if value else "no"


# -- where it is shown -----------------------------------------------------------------------------------------------


def terminal(data: Row) -> Iterator[Table | Text]:
    """The table, notes, what to paste, and the answer last."""
    table = Table(box=None, pad_edge=False, header_style="bold", title=Text(f"{data['model']}, {data['target_length']} tokens"), title_justify="left")
    for column in ("method", "gain", "short texts pay", "reaches", "setting"):
        table.add_column(column, overflow="fold", no_wrap=column not in ("setting",))
    for row, cells in zip(data["rows"], rows(data), strict=True):
        style = "bold" if row["method"] == data["top"] else ""
        table.add_row(*[Text(cell, style) for cell in (cells[0], cells[2], cells[3].split(" (")[0], cells[5], _setting(row))])
    yield table
    for note in data["notes"]:
        yield Text(f"note: {note}", "yellow")
    for engine, one in data["exports"].items():
        yield Text(f"\n{engine}", "bold")
        yield Text(one["text"]) if "text" in one else Text(f"refused: {one['refused']}", "yellow")
    yield Text("")
    for sentence in data["verdict"]:
        yield Text(sentence, "bold green" if data["works"] else "bold yellow")


def _setting(row: Row) -> str:
    return str(row["setting"]) if row["factor"] is None else f"factor {row['factor']:g}"


def markdown(data: Row) -> str:
    """report.md."""
    parts = [f"# recommend {data['model']}", *data["verdict"], *[f"- {note}" for note in data["notes"]], table_to_paste(HEAD, rows(data))]
    parts += ["## Loss by length, nats a token", table_to_paste(*lengths(data))]
    if data["tried"]:
        parts += ["## Settings that were tried", table_to_paste(*tried(data))]
    for engine, one in data["exports"].items():
        parts += [f"## {engine}", f"```\n{one['text']}\n```" if "text" in one else f"Refused: {one['refused']}"]
    return "\n\n".join([*parts, _how(data)]) + "\n"


def _how(data: Row) -> str:
    p = data["provenance"]["protocol"]
    counts = ", ".join(f"{number} windows {word}" for word, number in p["windows"].items())
    scored = f"The last {p['targets']} tokens of each window are scored, whatever is read before them; {counts}."
    return f"{scored} {p['settings'].capitalize()}. {p['intervals'].capitalize()}."


def sections(data: Row) -> list[dict[str, Any]]:
    """The parts of the page."""
    found: list[dict[str, Any]] = [
        {
            "title": "Gain and cost", "words": "To the right: nats gained at the target. Upwards: nats that texts of the trained length pay. Best is right and "
            "low. * is the answer.", "figures": [figures.gains(data)], "table": (HEAD, rows(data)),
        },
        {
            "title": "Loss by length", "words": f"{_how(data)} Intervals of differences stand in the table above.",
            "figures": [figures.by_length(data)], "table": lengths(data),
        },
    ]  # fmt: skip
    if data["tried"]:
        words = "Of each method the smallest factor is taken that loses no more than its best one, on a part of the text that is not reported on."
        found.append({"title": "Settings that were tried", "words": words, "table": tried(data)})
    if data["exports"]:
        told = [[engine, one.get("text") or f"refused: {one['refused']}"] for engine, one in data["exports"].items()]
        found.append({"title": "To paste", "words": "In the words of each engine, read back as that engine reads them.", "table": (["", ""], told)})
    about = data["provenance"]
    protocol = [[key, str(value)] for key, value in about["protocol"].items()]
    found.append(
        {
            "title": "Protocol and provenance",
            "words": "",
            "table": (["", ""], [*protocol, *[[k, str(v)] for k, v in about.items() if k != "protocol"]]),
        }
    )
    return found


def page(data: Row) -> str:
    """report.html, self-contained."""
    question = f"What should be set so that this model reads {data['target_length']} tokens? It was trained for {data['trained_length']}."
    return whole_page(f"recommend {data['model']}", question, " ".join(data["verdict"]), data["notes"], sections(data))


def fragment(data: Row) -> str:
    """The verdict, loss by length as a picture, and a table, for notebooks."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in HEAD)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows(data))
    return f"<p>{html.escape(' '.join(data['verdict']))}</p>{pictures('', [by_length(data)], [], [])}<table><tr>{head}</tr>{body}</table>"


def by_length(data: Row) -> Figure:
    """Loss of the same last tokens under each method, for a notebook."""
    lengths = [one["length"] for one in data["rows"][0]["loss_by_length"]]
    found = {row["method"]: {one["length"]: one["loss"] for one in row["loss_by_length"]} for row in data["rows"]}
    lines = {method: [by.get(n) for n in lengths] for method, by in found.items()}
    marks = (Mark("x", data["trained_length"], "trained length"),)
    return Figure("lines", "Loss of the same last tokens", "tokens read", "nats a token", lengths, lines=lines, log_x=True, marks=marks)


def save(data: Row, out: Path) -> Path:
    """Write report.html, report.md and recommendation.json into ``out``: all three, or nothing."""
    return save_folder(out, "recommendation", data, markdown(data), page(data))
