"""Reports of what was measured through servers: from their data alone."""

from __future__ import annotations

from typing import Any

from milepost.draw import Document, Figure, Mark, Section, Table, facts

Row = dict[str, Any]
WORDS = {"BLIND": "????", "NONE": "-"}
"""What a table shows for these verdicts."""


def verification(data: Row) -> Document:
    """The checks, and how far each candidate is from what the server runs."""
    checks = Table(["verdict", "check", "what it says"], [_check(row) for row in data["checks"]])
    sections = [Section("Checks", "Each number is in nats a token, unless it says otherwise.", tables=[checks])]
    tables = [checks]
    if data["candidates"]:
        nearest = Table(*_candidates(data), "how far the server is from each candidate, nats a token")
        words = (
            "Each rotation was run here on the same weights, and its losses compared with the server's, target by "
            "target. Those marked can't be told from the nearest. Those that were far from it on the first tokens of "
            "each text were not run on the rest."
        )
        sections.append(Section("Candidates", words, [_distances(data)], [nearest]))
        tables.append(nearest)
    return Document(
        f"verify {data['model']}",
        _summary(data),
        "Is the served model the model that its config describes, and does all of a text reach it?",
        sections=[*sections, facts(data["provenance"])],
        notes=data["notes"],
        ok=data["ok"],
        terminal_tables=tables,
        inline=sections,
    )


def _summary(data: Row) -> str:
    count = {word: sum(row["verdict"] == word for row in data["checks"]) for word in ("PASS", "FAIL", "WARN", "BLIND")}
    rotation = [f": {row['sentence']}" for row in data["checks"] if row["name"] == "rotation"]
    words = f"{'PASS' if data['ok'] else 'FAIL'} {data['model']}{''.join(rotation)}"
    return f"{words}; {count['PASS']} checks passed, {count['FAIL']} failed, {count['WARN'] + count['BLIND']} open"


def _check(row: Row) -> list[str]:
    numbers = [
        f"{word} {row[name]:.2g}"
        for word, name in (("found", "measured"), ("allowed", "allowed"), ("a fault gives", "control"))
        if row[name] is not None
    ]
    more = f"\n{', '.join(numbers)} ({row['unit']})" if numbers else ""
    return [WORDS.get(row["verdict"], row["verdict"]), row["name"], row["sentence"] + more]


def _candidates(data: Row) -> tuple[list[str], list[list[str]]]:
    rows = []
    for row in data["candidates"]:
        more = row["more_than_the_best"]
        known = "" if more["low"] is None else f"[{more['low']:+.3f}, {more['high']:+.3f}]"
        same = "the same here" if row["same"] else ""
        rows.append([row["candidate"], f"{row['distance']:.4f}", known, str(row["tokens"]), same])
    return ["candidate", "distance", "more than the nearest, 95%", "tokens", ""], rows


def _distances(data: Row) -> Figure:
    rows = [row for row in data["candidates"] if row["distance"] > 0]
    allowed = next((row["allowed"] for row in data["checks"] if row["name"] == "rotation"), None)
    marks = () if not allowed else (Mark("x", allowed, "arithmetic explains"),)
    return Figure(
        "points", "Distance of each candidate from the server", "nats a token (log scale)",
        lines={"distance": [row["distance"] for row in rows]}, y_names=tuple(row["candidate"] for row in rows),
        marks=marks, log_x=True,
    )  # fmt: skip


def comparison(data: Row) -> Document:
    """Where two models part."""
    rows = [row for row in data["rows"] if row["value"] is not None]
    table = Table(
        ["tokens", "A", "B", "B - A", "95% interval", "mean |B - A|", ""],
        [
            [
                f"{row['start']}-{row['end'] - 1}", f"{row['a']:.3f}", f"{row['b']:.3f}", f"{row['value']:+.4f}",
                "" if row["low"] is None else f"[{row['low']:+.4f}, {row['high']:+.4f}]", f"{row['apart']:.4f}",
                "beyond the threshold" if row["parts"] else "",
            ]
            for row in rows
        ],
        "loss of the same tokens, nats a token",
    )  # fmt: skip
    figure = Figure(
        "lines", "B - A at each place of a text", "place in the text, tokens", "nats a token",
        [row["end"] for row in rows], lines={"B - A": [row["value"] for row in rows]},
        sides={"B - A": [(row["low"], row["high"]) for row in rows]},
        marks=tuple(Mark("y", at, "threshold") for at in (data["threshold"], -data["threshold"])),
    )  # fmt: skip
    words = f"A is {data['a']}, B is {data['b']}. The threshold is {data['threshold']:.3g} nats a token."
    section = Section("Losses", words, [figure], [table])
    return Document(
        f"compare {data['a']} {data['b']}", _parted(data), "Two models on the same tokens: where do their losses part?",
        sections=[section, facts(data["provenance"])], notes=data["notes"], ok=data["ok"], terminal_tables=[table],
        inline=[section],
    )  # fmt: skip


def _parted(data: Row) -> str:
    mean, limit = data["difference"], f"the threshold of {data['threshold']:.3g} nats a token"
    most = max((row["apart"] for row in data["rows"] if row["apart"] is not None), default=0.0)
    if data["ok"]:
        return (
            f"PASS: B is {mean['value']:+.4f} nats a token from A, nowhere beyond {limit}; tokens differ by {most:.3g} "
            "at most, on average over a stretch"
        )
    worst = max((row for row in data["rows"] if row["parts"]), key=lambda row: abs(row["value"]))
    return (
        f"FAIL: B parts from A from about token {data['parts_from']} on: {worst['value']:+.3f} nats a token at "
        f"{worst['start']} to {worst['end'] - 1}, beyond {limit}"
    )


def recommendation(data: Row) -> Document:
    """The settings that were served, the best first."""
    table = Table(
        ["setting", "loss at the longest", "95% interval", "against the first", "95% interval", "loss at the shortest"],
        [
            [
                row["setting"], _number(row["long"]["value"]), _between(row["long"]), _signed(row["gain"]["value"]),
                _between(row["gain"]), _number(row["short"]["value"]),
            ]
            for row in data["rows"]
        ],
        "loss of the same last tokens, nats a token",
    )  # fmt: skip
    section = Section("Settings", data["how"], tables=[table])
    return Document(
        f"recommend for {data['target_length']} tokens", " ".join(data["verdict"]),
        "Which of these served settings reads long texts best, and what do short texts pay?",
        sections=[section, facts(data["provenance"])], notes=data["notes"], ok=data["works"], terminal_tables=[table],
        inline=[section],
    )  # fmt: skip


def _number(value: float | None) -> str:
    return "no number" if value is None else f"{value:.3f}"


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.3f}"


def _between(row: Row) -> str:
    return "" if row["low"] is None else f"[{row['low']:+.3f}, {row['high']:+.3f}]"
