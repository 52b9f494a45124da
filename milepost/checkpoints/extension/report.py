"""What `milepost extend` did, from its data alone: loss before and after first, then what was changed, verified and
tuned.
"""

from __future__ import annotations

from typing import Any

from milepost.checkpoints import report as common
from milepost.checkpoints.report import interval
from milepost.checkpoints.verification.report import summary as verified
from milepost.draw import Document, Figure, Table

LONGEST = 160
"""Characters of a value that are shown."""
LOSSES = "loss of the same last tokens, nats a token, with 95% intervals"


def document(data: dict[str, Any]) -> Document:
    """Losses, positions, the config, the checks and the tuning."""
    changed = [[key, _short(old), _short(new)] for key, (old, new) in data["changed"].items()]
    tables = [
        _losses(data),
        _lengths(data),
        Table(["key", "before", "after"], changed, "changes of config.json"),
        common.checks("verify", data["verification"]["checks"]),
        common.tuned(data["tuned"]),
    ]
    figures = {LOSSES: [by_length(data)] if data["losses"] else []}
    brief = [tables[0], tables[1], tables[-1]]
    return common.document("extend", data, summary(data), sentences(data), tables, figures, brief)


def summary(data: dict[str, Any]) -> str:
    """One line: what was done."""
    named = f"{data['method']}, factor {data['factor']:g} from the trained {data['trained']} tokens"
    done = f"{data['model']} for {data['target']} tokens instead of {data['served']}"
    return f"{done}: {named}; weights {data['weights']}; written to {data['out']}"


def sentences(data: dict[str, Any]) -> list[str]:
    """What the losses say, and whether it is more than chance; then the verdict of verify."""
    gaps = []
    for row in data["losses"]:
        gap, context = row["difference"], f"With {row['length']} tokens of context"
        if gap["value"] is None:
            gaps.append(f"{context} the loss is no number: the model overflows there.")
            continue
        word = "more" if gap["value"] > 0 else "less"
        gaps.append(f"{context} it loses {abs(gap['value']):.4f} nats a token {word} than before, {common.sure(gap)}.")
    return [*gaps, verified(data["verification"]) + "."]


def _losses(data: dict[str, Any]) -> Table:
    rows = []
    for row in data["losses"]:
        cells = [interval(row[name], sign=name == "difference") for name in ("before", "after", "difference")]
        rows.append([str(row["length"]), *cells, f"{row['windows']} x {row['targets']}"])
    return Table(["context", "before", "after", "after - before", "windows x tokens"], rows, LOSSES)


def _lengths(data: dict[str, Any]) -> Table:
    rows = [["served tokens", str(data["served"]), str(data["target"])]]
    for kind in data["scaling"]["after"]:
        name = "" if kind == "all" else f" of {kind} layers"
        rows.append([f"rotation{name}", data["scaling"]["before"].get(kind, ""), data["scaling"]["after"][kind]])
    for kind in data["unseen"]["after"]:
        counts = [str(len(data["unseen"][when].get(kind, []))) for when in ("before", "after")]
        name = "" if kind == "all" else f", {kind}"
        rows.append([f"pairs that meet unseen angles at {data['target']}{name}", *counts])
    return Table(["", "before", "after"], rows, "positions")


def _short(value: Any) -> str:
    text = "not there" if value is None else str(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def by_length(data: dict[str, Any]) -> Figure:
    """Loss before and after at both lengths, with intervals."""
    rows = data["losses"]
    return Figure(
        "lines",
        "Loss of the same last tokens",
        "tokens of context",
        "loss, nats a token",
        [row["length"] for row in rows],
        lines={when: [row[when]["value"] for row in rows] for when in ("after", "before")},
        sides={when: [(row[when]["low"], row[when]["high"]) for row in rows] for when in ("after", "before")},
        x_ticks=tuple(row["length"] for row in rows),
        log_x=True,
    )
