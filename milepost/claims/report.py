"""The claims, from claims.json alone.

Each has its statement in English and Chinese, its source, the experiment, a figure, the evidence, the rule and the
verdict.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from milepost.draw import Document, Figure, Mark, Section, Table, facts
from milepost.measure.folder import check_outside
from milepost.measure.results import write, write_json

Row = dict[str, Any]
VERDICTS = ("holds", "holds with a limit", "fails", "not decided here")
PLURAL = {"holds": "hold", "holds with a limit": "hold with a limit", "fails": "fail"}
"""The verdicts of several claims, where the words differ."""
TITLE = "Claims of the notes, measured"
QUESTION = (
    "What is said of positional encodings, and what comes out when it is tried. A verdict follows from the "
    "measurement by the rule "
    "beside it."
)  # fmt: skip


def document(data: dict[str, Any]) -> Document:
    """All claims in their groups, each with its verdict, and what was run."""
    rows = data["rows"]
    claims = [section(row, title) for group, title in data["groups"].items() for row in rows if row["group"] == group]
    return Document(TITLE, answer(rows), QUESTION, sections=[*claims, facts(data["provenance"])])


def rows_document(rows: Sequence[Row]) -> Document:
    """Some claims, for a terminal and a notebook."""
    table = Table(["claim", "verdict", "evidence"], [[row["id"], row["verdict"], row["evidence"]] for row in rows])
    return Document("", answer(rows), terminal_tables=[table], inline=[section(row) for row in rows])


def section(row: Row, group: str = "") -> Section:
    """One claim."""
    about = [
        ("source", row["source"]),
        (f"experiment ({row['kind']})", row["experiment"]),
        ("evidence", row["evidence"]),
        ("rule", row["rule"]),
    ]
    drawn = [figure(drawn) for drawn in row["figures"]]
    rule = Table(*clauses(row), "the rule, clause by clause", fold=True)
    return Section(
        row["id"], row["statement"], drawn, [rule], facts=about, chinese=row["statement_zh"], status=row["verdict"],
        group=group, anchor=row["id"],
    )  # fmt: skip


def counted(rows: Sequence[Row]) -> dict[str, int]:
    """How many claims have each verdict, in the order of the words."""
    counts = Counter(row["verdict"] for row in rows)
    return {word: counts[word] for word in VERDICTS}


def answer(rows: Sequence[Row]) -> str:
    """The count of verdicts in a sentence."""
    counts = [
        f"{count} {word if count == 1 else PLURAL.get(word, word)}" for word, count in counted(rows).items() if count
    ]
    return f"Of {len(rows)} claim{'' if len(rows) == 1 else 's'}: {', '.join(counts)}."


def figure(data: dict[str, Any]) -> Figure:
    """One picture: lines, or points with their intervals; a dotted line at the rule's threshold.

    What a logarithmic axis can't show is a gap.
    """
    log, mark = data["log_y"], data["mark"]
    lines = {name: [_shown(v, log) for v in values] for name, values in data["lines"].items()}
    marked = mark is not None and (mark > 0 or not log)
    if data["kind"] == "points":
        pairs = {name: zip(low, data["high"][name], strict=True) for name, low in data["low"].items()}
        sides = {name: [(_shown(a, log), _shown(b, log)) for a, b in both] for name, both in pairs.items()}
        marks, names = (Mark("x", mark, ""),) if marked else (), tuple(map(str, data["x"]))
        return Figure(
            "points", data["title"], data["y_title"], lines=lines, sides=sides, y_names=names, log_x=log, marks=marks
        )
    marks = (Mark("y", mark, ""),) if marked else ()
    about: dict[str, Any] = {"lines": lines, "log_x": data["log_x"], "log_y": log, "marks": marks}
    return Figure("lines", data["title"], data["x_title"], data["y_title"], data["x"], **about)


def _shown(value: float | None, log: bool) -> float | None:
    return None if value is None or (log and value <= 0) else value


def clauses(row: Row) -> tuple[list[str], list[list[str]]]:
    """The rule's clauses with what was measured."""
    words = {True: "yes", False: "no", None: "not clear"}
    return ["", "must be", "measured", ""], [
        [
            f"{clause['words']} ({clause['role']})",
            f"{clause['side']} {clause['bound']:.3g}",
            _number(clause["measured"]),
            words[clause["says"]] if clause["measured"] else "not measured",
        ]
        for clause in row["clauses"]
    ]


def _number(measured: dict[str, Any] | None) -> str:
    if measured is None:
        return ""
    value, low, high = measured["value"], measured["low"], measured["high"]
    return f"{value:.4g}" if low == high else f"{value:.4g} ({low:.4g} to {high:.4g})"


def check_folder(out: Path, model: str | None, resume: bool) -> None:
    """Refuse a folder that holds claims already (but to go on), or something else, or that is in the model's own."""
    place, ours = out.expanduser().resolve(), ("claims.json", "claims.md", "claims.html", "checkpoint.json", "lab")
    if place.exists() and (
        not place.is_dir() or any(file.name not in ours and not file.name.endswith(".tmp") for file in place.iterdir())
    ):
        raise ValueError(f"--out {out} is there already, and holds other things than claims: name another folder")
    if place.exists() and any(place.iterdir()) and not resume:
        raise ValueError(f"--out {out} holds claims already: go on with --resume, or name another folder")
    if model is not None:
        check_outside(out, model)


def save(data: dict[str, Any], out: Path) -> Path:
    """Write claims.json, claims.md and claims.html; the page's path."""
    write_json(out / "claims.json", data)
    page = document(data)
    write(out / "claims.md", page.markdown())
    return write(out / "claims.html", page.html())
