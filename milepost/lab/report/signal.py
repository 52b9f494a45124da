"""The report of a signal lab: is order along every axis learned, and does a far move change nothing? From
results.json alone.
"""

from __future__ import annotations

from typing import Any

from milepost.draw import Cells, Document, Figure, Mark, Section, Table
from milepost.lab.report.answer import listed, unfinished
from milepost.lab.report.figures import style
from milepost.lab.report.read import check_parts, has, has_rows
from milepost.lab.report.runs import Results, Run, by_name, name, named_once
from milepost.lab.report.tables import made
from milepost.lab.report.text import AGAIN, failed

KINDS = ("video", "eeg")
TITLE = "Order on every axis"
QUESTION = "Does a model know the order along every axis of a signal, and only the order?"


def document(results: Results) -> Document:
    """The parts of a report."""
    done = Section("Protocol and provenance", AGAIN, tables=[Table(*_provenance(results["provenance"]))])
    table = Table(*axis_table(results), "every axis")
    sections = [*([_axes(results)] if measured(results) else []), *failed(results), done]
    return Document(
        TITLE, answer(results), QUESTION, sections=sections, notes=notes(results), terminal_tables=[table],
        inline=[Section("", tables=[table])],
    )  # fmt: skip


def answer(results: Results) -> str:
    """Who learned which axes, and what a far move changes."""
    groups = by_name(measured(results))
    if not groups:
        return "No trial has been finished yet."
    many = len(axes(results))
    sentences = []
    for label, runs in groups.items():
        known = [
            axis for number, axis in enumerate(axes(results)) if all(run["by_axis"][number]["learned"] for run in runs)
        ]
        right = sum(run["accuracy"] for run in runs) / len(runs)
        words = "on no axis" if not known else f"on all {many} axes" if len(known) == many else f"on {listed(known)}"
        sentences.append(
            f"{label} knows the order {words} ({right:.1%} of signals told right, chance {runs[0]['chance']:.1%})"
        )
    turning = [row for run in measured(results) for row in run["by_axis"] if row["control"]]
    if not turning:
        return f"{'; '.join(sentences)}."
    most, least = max(row["change"] for row in turning), min(row["control"] for row in turning)
    far = (
        f"To move a signal by {turning[0]['moved_by']:,} places along any axis changes a logit by {most:.1g} at most, "
        "rounding of float64"
    )
    return f"{'; '.join(sentences)}. {far}; to move half of it, by {least:.1g} at least."


def notes(results: Results) -> list[str]:
    """What a reader must know before believing the answer."""
    one = measured(results) and len({run["seed"] for run in measured(results)}) == 1
    return [*unfinished(results), *(["One seed."] if one else [])]


def _axes(results: Results) -> Section:
    words = (
        "Two marks stand in every signal, and the label says of each axis which of them comes first. Right: the bit "
        "of this axis is "
        "told right. Turned: the told bit turns when the signal is mirrored along this axis. A model that does not "
        "see the axis is "
        "right half of the time, and nothing turns. Bars are 95% intervals."
    )
    drawn = [by_axis(results, field) for field in ("right", "turned")]
    return Section("Every axis", words, drawn, [Table(*axis_table(results))])


def axis_table(results: Results) -> Cells:
    """A row for each run and axis."""
    rows = []
    for run in measured(results):
        for row in run["by_axis"]:
            shares = [
                f"{row[field]:.1%} [{row[field + '_low']:.1%}, {row[field + '_high']:.1%}]"
                for field in ("right", "turned")
            ]
            change = [
                f"{row[field]:.1e}" if row[field] is not None else "not measured" for field in ("change", "control")
            ]
            rows.append(
                [
                    name(run),
                    str(run["seed"]),
                    row["axis"],
                    *shares,
                    f"{row['others']:.1%}",
                    *change,
                    "learned" if row["learned"] else "not learned",
                ]
            )
    return [
        "encoding",
        "seed",
        "axis",
        "right",
        "turned by a mirror",
        "other bits turned",
        "change, moved far",
        "control",
        "",
    ], rows


def by_axis(results: Results, field: str) -> Figure:
    """The share of each axis, a row for each of them, a point for each run with its interval."""
    runs = measured(results)
    by_line = dict(zip(named_once(runs), runs, strict=True))
    return Figure(
        "points",
        {"right": "Bit of the axis told right", "turned": "Bit of the axis turned by a mirror"}[field],
        "share of signals",
        "axis",
        lines={line: [row[field] for row in run["by_axis"]] for line, run in by_line.items()},
        sides={
            line: [(row[f"{field}_low"], row[f"{field}_high"]) for row in run["by_axis"]]
            for line, run in by_line.items()
        },
        styles={line: style(run, results) for line, run in by_line.items()},
        y_names=tuple(axes(results)),
        marks=(Mark("x", 0.5, "chance"),),
        low=0.0,
        high=1.0,
        percent=True,
    )


def _provenance(about: dict[str, Any]) -> Cells:
    plan, signals = about["protocol"]["plan"], about["protocol"]["signals"]
    sides = ", ".join(f"{side} x {axis}" for axis, side in zip(signals["axes"], signals["sides"], strict=True))
    rows = [
        ["signals", f"{signals['kind']}: {sides}; {plan['tested']} to test; sha256 {signals['sha256'][:16]}"],
        ["model", ", ".join(f"{key} {value}" for key, value in plan["shape"].items() if key != "sides")],
        ["steps", f"{plan['steps']} of {plan['rows']} signals; seeds {', '.join(map(str, plan['seeds']))}"],
        *made(about),
    ]
    return ["", ""], rows


# -- runs
# ---------------------------------------------------------------------------------------------------------------------


def check(results: Any, file: str) -> Results:
    """The same results, if a report on signals can be drawn from them."""
    protocol = check_parts(results, file)
    has(protocol, {"plan": dict, "signals": dict}, file, "provenance.protocol.")
    has(protocol["plan"], {"shape": dict, "seeds": list, "steps": int, "rows": int, "tested": int}, file, "plan.")
    has(protocol["signals"], {"kind": str, "axes": list, "sides": list, "sha256": str}, file, "signals.")
    for number, run in enumerate(results["runs"]):
        has(run, {"encoding": str, "strategy": str, "seed": int}, file, f"runs[{number}].")
        has_rows(run, "by_axis", ("axis", "right", "turned", "learned", "change"), file, f"runs[{number}].")
    return dict(results)


def measured(results: Results) -> list[Run]:
    """Runs that were finished."""
    return [run for run in results["runs"] if run.get("by_axis")]


def axes(results: Results) -> list[str]:
    """The names of the axes."""
    return list(results["provenance"]["protocol"]["signals"]["axes"])
