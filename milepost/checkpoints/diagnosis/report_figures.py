"""Figures of a diagnosis, from diagnosis.json alone."""

from __future__ import annotations

from typing import Any

from milepost.draw import GREY, Alternative, Figure, Mark, Numbers, Style
from milepost.measure.report import heads_by_distance

Row = dict[str, Any]
NATS = "loss, nats a token"


def by_position(data: Row) -> Figure:
    """Loss at each place of a long text, with the trained length and the onset."""
    rows = [row for row in data["loss_by_position"] if row["loss"] is not None]
    last = rows[-1]["end"] if rows else 0
    known = (("trained length", data["trained_length"], False), ("fails from here", data["onset"], True))
    return Figure(
        "lines",
        "Loss at each place of a long text",
        "place in the text, tokens",
        NATS,
        [(row["start"] + row["end"]) / 2 for row in rows],
        lines={"loss": [row["loss"] for row in rows]},
        sides={"loss": [(row["low"], row["high"]) for row in rows]},
        marks=tuple(Mark("x", at, f"{name}, {at}", red) for name, at, red in known if at is not None and at <= last),
    )


def by_length(data: Row) -> Figure:
    """The same last tokens, and windows without overlap, against length."""
    by_protocol = {
        name: {row["length"]: row for row in data[key]}
        for name, key in (("the same last tokens", "loss_by_length"), ("windows without overlap", "disjoint"))
        if data[key]
    }  # fmt: skip
    known = [row["length"] for row in data["loss_by_length"]]
    return Figure(
        "lines", "Loss against length", "tokens read (log scale)", NATS, known, x_ticks=tuple(known), log_x=True,
        lines={name: [rows[n]["loss"] for n in known] for name, rows in by_protocol.items()},
        sides={name: [(rows[n]["low"], rows[n]["high"]) for n in known] for name, rows in by_protocol.items()},
        styles={name: Style(dash=number, mark="circle") for number, name in enumerate(by_protocol)},
    )  # fmt: skip


def shifted(data: Row) -> Figure:
    """How much more a passage loses at other positions than at 0."""
    rows = [row for row in data["shifted"] if row["difference"] is not None]
    most = max((abs(row[key] or 0.0) for row in rows for key in ("low", "high", "difference")), default=0.0)
    flat: dict[str, Any] = (
        {"low": -1e-3, "high": 1e-3} if most < 1e-3 else {}
    )  # rounding: shown as the flat line that it is
    title = f"The same {data['shifted'][0]['passage']} tokens at other positions"
    return Figure(
        "lines", title, "position of the first token", "nats a token more than at 0", [row["first"] for row in rows],
        lines={"difference": [row["difference"] for row in rows]}, sides={"difference": [(row["low"], row["high"]) for
        row in rows]}, styles={"difference": Style(mark="circle")}, **flat,
    )  # fmt: skip


def retrieval(data: Row) -> list[Figure]:
    """Depth by length: the share of right answers, or the margin; one of them at a time."""
    retrieved = data["retrieval"]
    cells = {(cell["depth"], cell["length"]): cell for cell in retrieved["cells"]}
    depths, lengths = (sorted({cell[key] for cell in retrieved["cells"]}) for key in ("depth", "length"))
    limit = max((abs(cell["margin"]) for cell in retrieved["cells"] if cell["margin"] is not None), default=1.0) or 1.0
    notes = [[_cell(cells[depth, length]) for length in lengths] for depth in depths]
    views: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("share of right answers", "share", {"low": 0.0, "high": 1.0, "percent": True}),
        ("margin, nats", "margin", {"low": -limit, "high": limit}),
    )
    figures = []
    for label, key, about in views:
        z = [[cells[depth, length][key] for length in lengths] for depth in depths]
        title = f"One sentence, retrieved: {label} (chance {retrieved['chance']:.0%})"
        names: dict[str, Any] = {
            "x_names": tuple(map(str, lengths)),
            "y_names": tuple(f"{depth:.0%}" for depth in depths),
        }
        figures.append(
            Figure(
                "heat",
                title,
                "tokens",
                "depth of the needle",
                z=z,
                alternatives=(Alternative(label, z, notes),),
                **names,
                **about,
            )
        )
    return figures


def _cell(cell: Row) -> str:
    margin = "no number" if cell["margin"] is None else f"{cell['margin']:+.2f} nats"
    return f"{cell['share']:.0%} of {cell['trials']} right [{cell['low']:.0%}, {cell['high']:.0%}], margin {margin}"


def attention(data: Row) -> list[Figure]:
    """Share of attention by distance, a row for each layer and head; one length at a time, the longest first."""
    looks = data["attention"][::-1]
    most = max(share for one in looks for head in one["heads"] for share in head["distance"])
    return [heads_by_distance({f"{one['length']} tokens": one["heads"]}, most) for one in looks]


def heads(data: Row) -> list[Figure]:
    """Entropy, first token's share and mean distance by layer and head; one of these and one length at a time."""
    figures = []
    for row in data["attention"][::-1]:
        held = {(head["layer"], head["head"]): head for head in row["heads"]}
        layers, across = (sorted({place[n] for place in held}) for n in (0, 1))
        for key, words in (
            ("entropy", "entropy, nats"),
            ("sink", "share of the first token"),
            ("mean", "mean distance, tokens"),
        ):
            label = f"{words}, {row['length']} tokens"
            z = [[held[layer, head][key] if (layer, head) in held else None for head in across] for layer in layers]
            about: dict[str, Any] = {"low": 0.0, "high": 1.0 if key == "sink" else None, "percent": key == "sink"}
            about["alternatives"] = (Alternative(label, z),)
            figures.append(Figure("heat", f"Every head: {label}", "head", "layer", across, layers, z, **about))
    return figures


def pairs(data: Row) -> Figure:
    """Turns of each pair over the trained and the longest length; those that meet new angles apart."""
    lines: dict[str, Numbers] = {}
    xs: dict[str, Numbers] = {}
    styles, red = {}, []
    for number, kind_row in enumerate(data["pairs"]):
        kind = "" if kind_row["kind"] == "all" else f", {kind_row['kind']}"
        unseen = f"at {kind_row['target']} tokens, angles never seen{kind}"
        groups = (
            (f"trained, {kind_row['trained']} tokens{kind}", "turns", kind_row["pairs"], Style(colour=GREY)),
            (
                f"at {kind_row['target']} tokens{kind}",
                "target_turns",
                [p for p in kind_row["pairs"] if not p["unseen"]],
                Style(colour=number),
            ),
            (unseen, "target_turns", [p for p in kind_row["pairs"] if p["unseen"]], Style()),
        )
        for label, key, some, style in groups:
            rows = [row for row in some if row[key] > 0]
            if rows:
                lines[label], xs[label], styles[label] = (
                    [row[key] for row in rows],
                    [row["pair"] for row in rows],
                    style,
                )
        red += [unseen] if unseen in lines else []
    points = tuple(name for name in lines if not name.startswith("trained"))
    about: dict[str, Any] = {
        "points": points,
        "red": tuple(red),
        "marks": (Mark("y", 1.0, "one full turn"),),
        "log_y": True,
    }
    return Figure(
        "lines", "Turns of each rotary pair", "pair", "turns (log scale)", lines=lines, xs=xs, styles=styles, **about
    )
