"""What `milepost extend` did: in the terminal, as report.md and as report.html. From its data alone.

Loss before and after first, then what was changed, what was verified and how it was tuned.
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
from milepost.report.tables import plain
from milepost.report.told import Part, interval
from milepost.report.verification import summary as verified

LONGEST = 160
"""Characters of a value that are shown."""


def summary(data: dict[str, Any]) -> str:
    """One line: what was done."""
    named = f"{data['method']}, factor {data['factor']:g} from the trained {data['trained']} tokens"
    return f"{data['model']} for {data['target']} tokens instead of {data['served']}: {named}; weights {data['weights']}; written to {data['out']}"


def sentences(data: dict[str, Any]) -> list[str]:
    """What the losses say, and whether it is more than chance; then the verdict of verify."""
    said = []
    for row in data["losses"]:
        gap = row["difference"]
        if gap["value"] is None:
            said.append(f"With {row['length']} tokens of context the loss is no number: the model overflows there.")
            continue
        word = "more" if gap["value"] > 0 else "less"
        said.append(f"With {row['length']} tokens of context it loses {abs(gap['value']):.4f} nats a token {word} than before, {told.sure(gap)}.")
    return [*said, verified(data["verification"]) + "."]


def parts(data: dict[str, Any]) -> list[Part]:
    """Every table that has rows."""
    made = [_losses(data), _lengths(data), _changed(data), told.checks("verify", data["verification"]["checks"]), told.tuned(data["tuned"])]
    return [(title, head, rows) for title, head, rows in made if rows]


def _losses(data: dict[str, Any]) -> Part:
    rows = []
    for row in data["losses"]:
        cells = [interval(row[name], sign=name == "difference") for name in ("before", "after", "difference")]
        rows.append([str(row["length"]), *cells, f"{row['windows']} x {row['targets']}"])
    return "loss of the same last tokens, nats a token, with 95% intervals", ["context", "before", "after", "after - before", "windows x tokens"], rows


def _lengths(data: dict[str, Any]) -> Part:
    rows = [["served tokens", str(data["served"]), str(data["target"])]]
    for kind in data["scaling"]["after"]:
        name = "" if kind == "all" else f" of {kind} layers"
        rows.append([f"rotation{name}", data["scaling"]["before"].get(kind, ""), data["scaling"]["after"][kind]])
    for kind in data["unseen"]["after"]:
        counts = [str(len(data["unseen"][when].get(kind, []))) for when in ("before", "after")]
        rows.append([f"pairs that meet unseen angles at {data['target']}" + ("" if kind == "all" else f", {kind}"), *counts])
    return "positions", ["", "before", "after"], rows


def _changed(data: dict[str, Any]) -> Part:
    return "config.json", ["key", "before", "after"], [[key, _short(old), _short(new)] for key, (old, new) in data["changed"].items()]


def _short(value: Any) -> str:
    text = "not there" if value is None else str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def notes(data: dict[str, Any]) -> list[str]:
    """What its reader should know."""
    left = [f"not copied: {name}" for name in data["left_out"]]
    return [*data["notes"], *left]


# -- drawn -------------------------------------------------------------------------------------------------------------------------


def terminal(data: dict[str, Any]) -> Iterator[Table | Text]:
    """Losses and positions, then one sentence for each thing found."""
    for title, head, rows in (_losses(data), _lengths(data), told.tuned(data["tuned"])):
        if rows:
            yield plain(head, rows, title=title)
            yield Text("")
    for note in notes(data):
        yield Text(f"note: {note}", "yellow")
    yield Text(summary(data), "bold")
    for sentence in sentences(data):
        yield Text(sentence, "bold red" if sentence.startswith("FAIL") else "")


def markdown(data: dict[str, Any]) -> str:
    """report.md."""
    return told.markdown(f"{data['model']} for {data['target']} tokens", summary(data), sentences(data), parts(data), notes(data))


def fragment(data: dict[str, Any]) -> str:
    """The tables as HTML, for a notebook."""
    return told.fragment(summary(data), sentences(data), parts(data), notes(data))


def page(data: dict[str, Any]) -> str:
    """report.html, self-contained."""
    losses, tuned = data["losses"], data["tuned"]
    drawn = {_losses(data)[0]: [by_length(data)] if losses else [], "tuning": [told.training(tuned)] if tuned and tuned["loss"] else []}
    sections = told.sections(parts(data), drawn, data["provenance"])
    return whole_page(f"extend {data['model']}", summary(data), " ".join(sentences(data)), notes(data), sections)


def by_length(data: dict[str, Any]) -> Any:
    """Loss before and after at both lengths, with intervals."""
    fig = told.figure("Loss of the same last tokens")
    for when, colour in (("before", "#d97706"), ("after", "#2563eb")):
        rows = [row for row in data["losses"] if row[when]["value"] is not None]
        sure = all(row[when]["low"] is not None for row in rows)
        above, below = ([abs(row[when][side] - row[when]["value"]) for row in rows] if sure else None for side in ("high", "low"))
        bars = {"type": "data", "symmetric": False, "array": above, "arrayminus": below} if sure else None
        fig.add_scatter(
            x=[row["length"] for row in rows], y=[row[when]["value"] for row in rows], error_y=bars, name=when, mode="lines+markers",
            line={"color": colour}, meta={"label": when, "kind": "loss"},
        )  # fmt: skip
    ticks = [row["length"] for row in data["losses"]]
    fig.update_xaxes(title_text="tokens of context", type="log", tickvals=ticks, ticktext=[str(n) for n in ticks])
    fig.update_yaxes(title_text="loss, nats a token")
    return fig


def save(data: dict[str, Any], out: Path) -> Path:
    """Write report.html, report.md and extension.json."""
    return fill(out, "extension", data, markdown(data), page(data))
