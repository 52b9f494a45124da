"""The report of a signal lab: is order along every axis learned, and does a far move change nothing? From results.json alone."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from milepost.measure.results import write
from milepost.report.lab_answer import listed, unfinished
from milepost.report.lab_draw import GREY, empty
from milepost.report.lab_page import page
from milepost.report.lab_runs import Results, by_name, lost, name
from milepost.report.lab_style import look
from milepost.report.lab_tables import lost_table
from milepost.report.markdown import in_markdown
from milepost.report.signal_runs import axes, measured

TITLE = "Order on every axis"
QUESTION = "Does a model know the order along every axis of a signal, and only the order?"
Table = tuple[list[str], list[list[str]]]


def save(results: Results, folder: str | Path) -> list[Path]:
    """Write report.html and report.md."""
    folder, found = Path(folder), sections(results)
    said = (TITLE, QUESTION, answer(results), notes(results), found)
    return [write(folder / "report.html", page(*said)), write(folder / "report.md", in_markdown(*said))]


def answer(results: Results) -> str:
    """Who learned which axes, and what a far move changes."""
    groups = by_name(measured(results))
    if not groups:
        return "No trial has been finished yet."
    many = len(axes(results))
    said = []
    for label, runs in groups.items():
        known = [axis for number, axis in enumerate(axes(results)) if all(run["by_axis"][number]["learned"] for run in runs)]
        right = sum(run["accuracy"] for run in runs) / len(runs)
        words = "on no axis" if not known else f"on all {many} axes" if len(known) == many else f"on {listed(known)}"
        said.append(f"{label} knows the order {words} ({right:.1%} of signals told right, chance {runs[0]['chance']:.1%})")
    turning = [row for run in measured(results) for row in run["by_axis"] if row["control"]]
    if not turning:
        return f"{'; '.join(said)}."
    most, least = max(row["change"] for row in turning), min(row["control"] for row in turning)
    far = f"To move a signal by {turning[0]['moved_by']:,} places along any axis changes a logit by {most:.1g} at most, rounding of float64"
    return f"{'; '.join(said)}. {far}; to move half of it, by {least:.1g} at least."


def notes(results: Results) -> list[str]:
    """What a reader must know before believing the answer."""
    one = measured(results) and len({run["seed"] for run in measured(results)}) == 1
    return [*unfinished(results), *(["One seed."] if one else [])]


def sections(results: Results) -> list[dict[str, Any]]:
    """The parts of a report."""
    found: list[dict[str, Any]] = []
    if measured(results):
        words = (
            "Two marks stand in every signal, and the label says of each axis which of them comes first. Right: the bit of this axis is told right. Turned: "
            "the told bit turns when the signal is mirrored along this axis. A model that does not see the axis is right half of the time, and nothing "
            "turns. Bars are 95% intervals."
        )
        found.append({"title": "Every axis", "words": words, "figures": [_bars(results, field) for field in ("right", "turned")], "table": axis_table(results)})
    if lost(results):
        found.append({"title": "Failed or missing", "words": "Trials that gave no numbers, and why.", "table": lost_table(results)})
    words = "What was done, so that it can be done again."
    return [*found, {"title": "Protocol and provenance", "words": words, "table": _provenance(results["provenance"])}]


def axis_table(results: Results) -> Table:
    """A row for each run and axis."""
    rows = []
    for run in measured(results):
        for row in run["by_axis"]:
            shares = [f"{row[field]:.1%} [{row[field + '_low']:.1%}, {row[field + '_high']:.1%}]" for field in ("right", "turned")]
            change = [f"{row[field]:.1e}" if row[field] is not None else "not measured" for field in ("change", "control")]
            rows.append([name(run), str(run["seed"]), row["axis"], *shares, f"{row['others']:.1%}", *change, "learned" if row["learned"] else "not learned"])
    return ["encoding", "seed", "axis", "right", "turned by a mirror", "other bits turned", "change, moved far", "control", ""], rows


def _bars(results: Results, field: str) -> Any:
    fig = empty({"right": "Bit of the axis told right", "turned": "Bit of the axis turned by a mirror"}[field])
    runs = measured(results)
    for number, run in enumerate(runs):
        rows, label = run["by_axis"], name(run)
        error = {"type": "data", "symmetric": False, "array": [r[f"{field}_high"] - r[field] for r in rows]}
        error["arrayminus"] = [r[field] - r[f"{field}_low"] for r in rows]
        fig.add_scatter(
            x=[n + 0.6 * ((number + 0.5) / len(runs) - 0.5) for n in range(len(rows))], y=[r[field] for r in rows], error_y=error, mode="markers",
            name=html.escape(label), legendgroup=label, marker={"color": look(run, results).colour, "symbol": look(run, results).mark, "size": 10},
            text=[html.escape(r["axis"]) for r in rows], meta={"label": label, "kind": "encoding"},
            hovertemplate=f"{html.escape(label)}, seed {run['seed']}<br>%{{text}}: %{{y:.1%}}<extra></extra>",
        )  # fmt: skip
    fig.add_hline(0.5, line_dash="dot", line_color=GREY, annotation_text="chance")
    fig.update_xaxes(title_text="axis", tickvals=list(range(len(axes(results)))), ticktext=[html.escape(axis) for axis in axes(results)])
    fig.update_yaxes(title_text="share of signals", tickformat=".0%", range=[-0.05, 1.05])
    fig.update_layout(height=380)
    return fig


def _provenance(about: dict[str, Any]) -> Table:
    plan, signals = about["protocol"]["plan"], about["protocol"]["signals"]
    sides = ", ".join(f"{side} x {axis}" for axis, side in zip(signals["axes"], signals["sides"], strict=True))
    rows = [
        ["signals", f"{signals['kind']}: {sides}; {plan['tested']} to test; sha256 {signals['sha256'][:16]}"],
        ["model", ", ".join(f"{key} {value}" for key, value in plan["shape"].items() if key != "sides")],
        ["steps", f"{plan['steps']} of {plan['rows']} signals; seeds {', '.join(map(str, plan['seeds']))}"],
        *[[key.replace("_", " "), value] for key, value in about["protocol"].items() if isinstance(value, str)],
        ["made", f"{about.get('date', '?')}, {about.get('cores', '?')} cores, {about.get('system', '?')} {about.get('machine', '')}"],
        ["versions", f"Python {about.get('python', '?')}, " + ", ".join(f"{key} {value}" for key, value in about.get("versions", {}).items())],
    ]
    return ["", ""], rows
