"""The report of `milepost recommend`: the answer first, then every method with its gain, its cost and its loss by
length; and what to paste.
"""

from __future__ import annotations

from typing import Any

from milepost.draw import Document, Figure, Mark, Section, Style, Table, facts
from milepost.draw.svg.colours import COLOURS

Row = dict[str, Any]
HEAD = [
    "method",
    "setting",
    "gain at the target",
    "short texts pay",
    "left to the trained length",
    "reaches it",
    "sees all",
    "a config says it",
]


def document(data: Row) -> Document:
    """Gains and costs, loss by length, what was tried, and what to paste."""
    question = (
        f"What should be set so that this model reads {data['target_length']} tokens? It was trained for "
        f"{data['trained_length']}."
    )
    brief = Section("", figures=[by_length(data)], tables=[Table(HEAD, rows(data))])
    exports = [
        Table([""], [[export["text"] if "text" in export else f"refused: {export['refused']}"]], engine)
        for engine, export in data["exports"].items()
    ]
    return Document(
        f"recommend {data['model']}",
        " ".join(data["verdict"]),
        question,
        sections=_sections(data),
        notes=data["notes"],
        ok=data["works"],
        terminal_tables=[_short(data), *exports],
        inline=[brief],
    )


def _sections(data: Row) -> list[Section]:
    words = (
        "To the right: nats gained at the target. Upwards: nats that texts of the trained length pay. Best is right "
        "and low. * is the "
        "answer."
    )  # fmt: skip
    sections = [
        Section("Gain and cost", words, [gains(data)], [Table(HEAD, rows(data))]),
        Section(
            "Loss by length",
            f"{_how(data)} Intervals of differences stand in the table above.",
            [by_length(data)],
            [lengths(data)],
        ),
    ]
    if data["tried"]:
        words = (
            "Of each method the smallest factor is taken that loses no more than its best one, on a part of the text "
            "that is not "
            "reported on."
        )  # fmt: skip
        sections.append(Section("Settings that were tried", words, tables=[tried(data)]))
    words = "In the words of each engine, read back as that engine reads them."
    for engine, export in data["exports"].items():
        sentence = (
            {"code": export["text"], "words": words} if "text" in export else {"words": f"Refused: {export['refused']}"}
        )
        sections.append(Section(f"To paste: {engine}", **sentence))
    return [*sections, facts(data["provenance"])]


def _how(data: Row) -> str:
    p = data["provenance"]["protocol"]
    counts = ", ".join(f"{number} windows {word}" for word, number in p["windows"].items())
    scored = f"The last {p['targets']} tokens of each window are scored, whatever is read before them; {counts}."
    return f"{scored} {p['settings'].capitalize()}. {p['intervals'].capitalize()}."


def rows(data: Row) -> list[list[str]]:
    """Every method, the largest gain first."""
    return [
        [
            row["method"] + (" *" if row["method"] == data["top"] else ""),
            row["setting"],
            *(_sure(row[field]) for field in ("gain", "cost", "gap")),
            *(_yes(row[field]) for field in ("reaches", "whole", "config")),
        ]
        for row in data["rows"]
    ]


def _short(data: Row) -> Table:
    """The same where there is little room."""
    cells = [
        [
            full[0],
            full[2],
            full[3].split(" (")[0],
            full[5],
            row["setting"] if row["factor"] is None else f"factor {row['factor']:g}",
        ]
        for row, full in zip(data["rows"], rows(data), strict=True)
    ]
    title = f"{data['model']}, {data['target_length']} tokens"
    return Table(["method", "gain", "short texts pay", "reaches", "setting"], cells, title)


def lengths(data: Row) -> Table:
    """Loss of every method at every length."""
    head = ["method", *[str(one["length"]) for one in data["rows"][0]["loss_by_length"]]]
    return Table(head, [[row["method"], *map(_loss, row["loss_by_length"])] for row in data["rows"]])


def tried(data: Row) -> Table:
    """Every setting that was tried, on the part of the text that settings were chosen on."""
    cells = [[one["method"], one["setting"], _loss(one), _yes(one["chosen"])] for one in data["tried"]]
    return Table(["method", "setting", "loss at the target", "chosen"], cells)


def _loss(one: Row) -> str:
    return "" if one["loss"] is None else f"{one['loss']:.3f}"


def _sure(row: Row) -> str:
    if row["value"] is None:
        return "not measured"
    value = _zero(row["value"])
    return (
        f"{value:+.3f}"
        if row["low"] is None
        else f"{value:+.3f} ({_zero(row['low']):+.3f} to {_zero(row['high']):+.3f})"
    )


def _zero(value: float) -> float:
    return 0.0 if abs(value) < 5e-4 else value


def _yes(value: bool) -> str:
    return "yes" if value else "no"


# -- figures ----------------------------------------------------------------------------------------------------------


def by_length(data: Row) -> Figure:
    """Loss of the same targets against what was read before them.

    What no config can say is dashed; the answer is thick.
    """
    known = [one["length"] for one in data["rows"][0]["loss_by_length"]]
    losses = {row["method"]: {one["length"]: one["loss"] for one in row["loss_by_length"]} for row in data["rows"]}
    return Figure(
        "lines", "Loss of the same last tokens", "tokens read (log scale)", "loss, nats a token", known,
        lines={method: [by.get(n) for n in known] for method, by in losses.items()}, styles=_styles(data),
        x_ticks=tuple(known), log_x=True, marks=(Mark("x", data["trained_length"], "trained length"),),
    )  # fmt: skip


def gains(data: Row) -> Figure:
    """Long gain against short cost, a point for each method; hollow where no config can say it."""
    known = {
        row["method"]: row
        for row in data["rows"]
        if row["gain"]["value"] is not None and row["cost"]["value"] is not None
    }
    titles = (f"nats gained at {data['target_length']} tokens", f"nats paid at {data['trained_length']} tokens")
    return Figure(
        "scatter",
        "What is gained, and what it costs",
        *titles,
        lines={method: [row["cost"]["value"]] for method, row in known.items()},
        sides={method: [(row["cost"]["low"], row["cost"]["high"])] for method, row in known.items()},
        xs={method: [row["gain"]["value"]] for method, row in known.items()},
        x_sides={method: [(row["gain"]["low"], row["gain"]["high"])] for method, row in known.items()},
        styles=_styles(data),
    )


def _styles(data: Row) -> dict[str, Style]:
    return {
        row["method"]: Style(
            group="in a config" if row["config"] else "in no config", colour=number % len(COLOURS), dash=0 if
            row["config"] else 1, mark="circle", hollow=not row["config"], thick=row["method"] == data["top"],
        )
        for number, row in enumerate(data["rows"])
    }  # fmt: skip
