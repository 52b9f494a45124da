"""What `milepost resize` did, from its data alone: the table's picture before and after, then the proofs and what was
changed.
"""

from __future__ import annotations

from typing import Any

from milepost.checkpoints import report as common
from milepost.draw import Document, Figure, Style, Table

WORDS = {True: "PASS", False: "FAIL", None: "-"}
TABLE = "the table"
SIDES = {"before": "source", "after": "target"}


def document(data: dict[str, Any]) -> Document:
    """The table, the proofs and the config."""
    checks = [[WORDS[check["passed"]], check["name"], check["sentence"]] for check in data["checks"]]
    changed = [[key, str(old), str(new)] for key, (old, new) in data["changed"].items()]
    proofs = Table(["verdict", "check", "sentence"], checks, "proofs")
    config = Table(["key", "before", "after"], changed, "changes of config.json")
    drawn = {TABLE: [by_place(data)] if len(data["source"]) == 1 else [grid(data, when) for when in SIDES]}
    return common.document(
        "resize", data, summary(data), sentences(data), [_table(data), proofs, config], drawn, [proofs, config]
    )


def summary(data: dict[str, Any]) -> str:
    """One line: what was done."""
    before = f", {data['prefix']} row{'s' if data['prefix'] > 1 else ''} before it kept" if data["prefix"] else ""
    sizes = f"table of {_size(data['source'])} for {_size(data['target'])}"
    return f"{data['model']} ({data['family']}): {sizes} ({data['how']}{before}); written to {data['out']}"


def sentences(data: dict[str, Any]) -> list[str]:
    """Whether it was proved, and what became of neighbours."""
    failed = [check["name"] for check in data["checks"] if check["passed"] is False]
    passed = sum(check["passed"] is True for check in data["checks"])
    proved = f"FAIL: {', '.join(failed)}." if failed else f"PASS: {passed} checks passed."
    old, new = (data["alike"][when]["neighbours"] for when in ("before", "after"))
    if old is None or new is None:
        return [proved]
    return [proved, f"Neighbouring places have a cosine of {new:.3f} on average, where the model has seen {old:.3f}."]


def _table(data: dict[str, Any]) -> Table:
    known = [data["alike"][when]["neighbours"] for when in SIDES]
    near = ["no number" if value is None else f"{value:.4f}" for value in known]
    places = ["places", *(_size(data[side]) for side in SIDES.values())]
    return Table(["", "before", "after"], [places, ["mean cosine of neighbours", *near]], TABLE)


def _size(sides: list[int]) -> str:
    return " x ".join(map(str, sides))


def grid(data: dict[str, Any], when: str) -> Figure:
    """How alike the middle cell is to every other, as a map; both maps have the same colours."""
    held, size = data["alike"][when], _size(data[SIDES[when]])
    known = [v for one in data["alike"].values() for row in one["cosine"] for v in row if v is not None]
    (row, column), (rows, columns) = held["middle"], held["places"]
    return Figure(
        "heat",
        f"{when.capitalize()}, {size}: cosine with the middle",
        "column",
        "row",
        columns,
        rows,
        held["cosine"],
        square=True,
        low=min(known, default=-1.0),
        high=1.0,
        cell=(rows.index(row), columns.index(column)),
    )


def by_place(data: dict[str, Any]) -> Figure:
    """How alike the middle position is to every other, along the whole table: what was stretched well lies on what it
    was.
    """
    names = {when: f"{when}: {data[side][0]}" for when, side in SIDES.items()}
    return Figure(
        "lines", "Cosine with the middle", "place, as a share of the table", "cosine",
        lines={names[when]: data["alike"][when]["cosine"][0] for when in SIDES},
        xs={names[when]: [(place + 0.5) / data[side][0] for place in data["alike"][when]["places"][0]] for when, side
        in SIDES.items()}, styles={names["before"]: Style("before", colour=1), names["after"]: Style("after",
        colour=0)},
    )  # fmt: skip
