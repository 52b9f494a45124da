"""Figures from the reference run of the lab, which comes with the package (milepost/measured/lab.json)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from milepost.draw.figure import Figure, Mark
from milepost.lab.choose import shipped
from milepost.lab.report.read import check

SHOWN = ("nope", "sinusoidal", "learned", "t5", "transformer_xl", "alibi", "rope", "rope + alibi")
STRETCHES = ("none", "linear", "ntk", "base", "yarn", "rerope", "self-extend")


@cache
def results() -> dict[str, Any]:
    """The reference run."""
    return check(shipped("lab"), "the lab results of the package")


def runs(encoding: str, strategy: str = "none") -> list[dict[str, Any]]:
    """The runs on text of one encoding and one strategy, a seed each."""
    return [
        r
        for r in results()["runs"]
        if r["encoding"] == encoding and r["strategy"] == strategy and r.get("loss_by_length")
    ]


def loss(encoding: str, length: int, strategy: str = "none") -> float | None:
    """Nats a token of the same last tokens under ``length`` tokens in all, mean over seeds; None past the end of a
    table."""
    found = [
        row["loss"] for run in runs(encoding, strategy) for row in run["loss_by_length"] if row["length"] == length
    ]
    return None if None in found or not found else sum(found) / len(found)


def lengths() -> list[int]:
    """The tested lengths."""
    return sorted(results()["provenance"]["protocol"]["plan"]["lengths"])


def _mark(at: float) -> Mark:
    return Mark("x", at, f"{at:g}")


def _against_length(title: str, lines: dict[str, list[Any]]) -> Figure:
    tested = [float(n) for n in lengths()]
    return Figure(
        "lines",
        title,
        "tokens that are read",
        "nats a token",
        tested,
        lines=lines,
        log_x=True,
        marks=(_mark(tested[0]),),
    )


def by_length() -> list[Figure]:
    return [
        _against_length(
            "Loss of the same last 32 tokens, trained at 64", {e: [loss(e, n) for n in lengths()] for e in SHOWN}
        )
    ]


def first_codes() -> list[Figure]:
    shown = ("nope", "integer", "binary", "sinusoidal", 'sinusoidal(width=24, how="concat")', "learned")
    return [
        _against_length("Codes that are added to the embedding", {e: [loss(e, n) for n in lengths()] for e in shown})
    ]


def content() -> list[Figure]:
    shown = ("shaw", "transformer_xl", "rope", "alibi")
    return [
        _against_length("Logits by content, beside rope and alibi", {e: [loss(e, n) for n in lengths()] for e in shown})
    ]


def migration() -> list[Figure]:
    """A GPT-2 moved to RoPE, as docs/migration/migration.json has it (tools/migrate_figure.py)."""
    told = json.loads((Path(__file__).parents[2] / "docs" / "migration" / "migration.json").read_text(encoding="utf-8"))
    rows = told["by_position"]
    names = {"before": "before", "swapped": "after the swap", "recovered": "after recovery"}
    lines = {word: [None if row[name] is None else row[name]["value"] for row in rows] for name, word in names.items()}
    middle = [(row["start"] + row["end"]) / 2 for row in rows]
    return [
        Figure(
            "lines",
            "A GPT-2 moved to RoPE: loss by position",
            "place in the text, tokens",
            "nats a token",
            middle,
            lines=lines,
            marks=(_mark(told["old"]),),
        )
    ]


def strategies() -> list[Figure]:
    return [
        _against_length(
            "One RoPE model, stretched without training",
            {s: [loss("rope", n, s) for n in lengths()] for s in STRETCHES},
        )
    ]


def by_position() -> list[Figure]:
    lines: dict[str, list[Any]] = {}
    places: list[float] = []
    for encoding in ("nope", "alibi", "rope", "rope + alibi"):
        found = [run["loss_by_position"] for run in runs(encoding)]
        places = [float(row["end"]) for row in found[0]]
        lines[encoding] = [sum(run[at]["loss"] for run in found) / len(found) for at in range(len(places))]
    return [
        Figure(
            "lines",
            "Loss by position in one long text, trained at 64",
            "position",
            "nats a token",
            places,
            lines=lines,
            log_x=True,
            marks=(_mark(64.0),),
        )
    ]


def heads() -> list[Figure]:
    """The share of attention by distance at the longest length, mean over heads and layers of the first seed."""
    lines, edges = {}, [1.0]
    for encoding in ("nope", "t5", "alibi", "rope"):
        first = next(run for run in runs(encoding) if "attention" in run)  # the package has those of one seed
        found = max(first["attention"], key=lambda look: look["length"])["heads"]
        edges = [float(edge) for edge in found[0]["edges"][1:]]
        lines[encoding] = [sum(head["distance"][at] for head in found) / len(found) for at in range(len(edges))]
    return [
        Figure(
            "lines",
            f"Where heads look in a text of {max(lengths())} tokens",
            "tokens back, up to",
            "share of attention",
            edges,
            lines=lines,
            log_x=True,
            marks=(_mark(64.0),),
        )
    ]


FIGURES = {
    "migration": migration,
    "lab-lengths": by_length,
    "lab-first-codes": first_codes,
    "lab-content": content,
    "lab-strategies": strategies,
    "lab-positions": by_position,
    "lab-heads": heads,
}
