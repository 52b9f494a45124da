"""A RopeSpec at a length, and two of them side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from milepost.draw import Document, Figure, Mark, Section, Style, Table, picture

Row = dict[str, Any]
WIDEST = 16
"""Characters of the longest bar."""
ROWS = 16
"""Pairs, and differences, that a terminal shows."""
PAGED = 200
"""Differences that a page shows."""
UNSEEN = "angles never seen"


def document(result: Row) -> Document:
    """What the config says and where, what it does at the target length, and the turns of each pair."""
    spec, analysis = result["spec"], result["analysis"]
    kinds = [
        f"{one['kind']}: base {one['base']:.10g}, {one['rotary']} of {one['head_dim']} channels, {one['pairing']} "
        "pairs, "
        f"scaling {_cut(one['scaling'], 200)}, logits x {one['temperature']:.6g}"
        for one in analysis
    ]
    target = f" at {analysis[0]['target']} tokens" if analysis else ""
    sources = [[field, source] for field, source in spec["sources"].items()]
    drawn = Section("Turns of each pair", " ".join(f"{kind}." for kind in kinds), figures(analysis))
    said = Section("What the config says", tables=[_said(spec)])
    return Document(
        f"{spec['model'] or 'rope'}{target}", " ".join(f"{one['sentence']}." for one in analysis), notes=spec["notes"],
        sections=[drawn, said, Section("Where values come from", tables=[Table(["", ""], sources)])],
        ok=not any(one["unseen_pairs"] for one in analysis), terminal_tables=[_said(spec), *map(_pairs, analysis)],
        inline=[said, *(Section("", figures=figures([one])[:1]) for one in analysis)],
    )  # fmt: skip


def analysis_document(one: Row) -> Document:
    """What one kind of layer does at a length, for a notebook."""
    return Document("", one["sentence"], inline=[Section("", figures=figures([one])[:1])])


def _said(spec: Row) -> Table:
    sources, rows = spec["sources"], []
    for kind in spec["kinds"]:
        label = "" if kind["kind"] == "all" else f"{kind['kind']}."
        layers, rope = f"{kind['layers']} layers" if kind["layers"] else "", kind["rope"]
        if label or layers:
            rows.append([kind["kind"], layers if rope else f"{layers}, no rotation", ""])
        if rope is not None:
            shown = {**rope, "base": f"{rope['base']:.10g}", "scaling": rope["scaling"] or "none"}
            rows += [
                [f"  {field}", _cut(str(shown[field]), 90), sources.get(label + field, sources.get(field, ""))]
                for field in ("base", "head_dim", "rotary", "pairing", "scaling")
            ]
    for field in ("trained", "scaled", "served"):
        if spec[field] is not None:
            source = sources.get(field, sources.get(f"full_attention.{field}", ""))
            rows.append([f"{field} length", str(spec[field]), source])
    return Table(["what", "value", "from"], rows, spec["model"] or "no model type")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _pairs(one: Row) -> Table:
    """Some pairs of one kind of layer, with bars of their turns at the target, and whether these are angles never
    seen.
    """
    name = "" if one["kind"] == "all" else f"{one['kind']}: "
    title = f"{name}{one['target']} tokens, trained on {one['trained']}, logits x {one['temperature']:.4f}"
    most = max(1.0, *(pair["target_turns"] for pair in one["pairs"]))
    rows = []
    for pair in _some(one):
        share = math.log1p(pair["target_turns"]) / math.log1p(most)
        bar = "█" * max(1, round(WIDEST * share)) if pair["frequency"] else ""
        long = "stands still" if pair["wavelength"] is None else f"{pair['wavelength']:.5g}"
        numbers = [f"{pair[field]:.4g}" for field in ("turns", "target_turns", "resolution")]
        critical = "critical" if pair["pair"] == one["critical_pair"] else ""
        rows.append([str(pair["pair"]), long, *numbers, bar, "unseen" if pair["unseen"] else "", critical])
    head = ["pair", "wavelength", "turns trained", "turns at target", "resolution", "", "", ""]
    return Table(head, rows, title)


def _some(one: Row) -> list[Row]:
    """The first, the last, those around the critical pair, and some between."""
    pairs, critical = one["pairs"], one["critical_pair"]
    chosen = {round(i * (len(pairs) - 1) / (ROWS - 1)) for i in range(ROWS)}
    if critical is not None:
        chosen |= {critical - 1, critical, critical + 1}
    return [pair for pair in pairs if pair["pair"] in chosen]


def figures(analysis: Sequence[Row]) -> list[Figure]:
    """Turns of each pair, trained and at the target; and how much of each frequency is left."""
    drawn = []
    for one in analysis:
        name = "" if one["kind"] == "all" else f" of {one['kind']}"
        pairs, x = one["pairs"], [float(pair["pair"]) for pair in one["pairs"]]
        turns = {
            f"over the trained {one['trained']}": [pair["turns"] or None for pair in pairs],
            f"at {one['target']}": [pair["target_turns"] or None for pair in pairs],
            UNSEEN: [pair["target_turns"] or None if pair["unseen"] else None for pair in pairs],
        }
        left = {"new / trained": [pair["resolution"] for pair in pairs]}
        full = (Mark("y", 1.0, "one full turn"),)
        drawn += [
            Figure(
                "lines",
                f"Turns of each pair{name}",
                "pair",
                "turns",
                x,
                lines=turns,
                points=(UNSEEN,),
                red=(UNSEEN,),
                marks=full,
                log_y=True,
            ),
            Figure("lines", f"Frequency that is left{name}", "pair", "share", x, lines=left, low=0.0, high=1.0),
        ]
    return drawn


def save(result: Row, out: Path) -> Path:
    """Write ``out`` as its ending says."""
    return picture.save(out, document(result), figures(result["analysis"]))


# -- two of them
# ----------------------------------------------------------------------------------------------------------


def parity_document(result: Row) -> Document:
    """The same, or where not."""
    found, names = result["differences"], {side: result[side]["name"] for side in "ab"}
    notes = [f"{side.upper()}: {note}" for side in "ab" for note in result[side]["spec"]["notes"]]
    notes = [*(f"lost: {line}" for line in result.get("lost", ())), *result.get("notes", ()), *notes]
    if len(found) > ROWS:
        notes.append(f"the terminal shows {ROWS} of {len(found)} differences; --json has them all")
    rows = [_difference(row) for row in found]
    head = ["layers", "what", "pair", "length", "A", "B", "difference"]
    title = f"A = {_cut(names['a'], 70)}\nB = {_cut(names['b'], 70)}"
    same = "same table: every pair of every layer turns alike, and logits have the same temperature"
    said = [row["sentence"] for row in found[:PAGED]]
    drawn = [parity_figure(result)] if _ratios(result) else []
    return Document(
        f"{names['a'][:80]} and {names['b'][:80]}", same if result["same"] else f"{len(found)} "
        f"difference{'s' if len(found) > 1 else ''}",
        sections=[Section("Frequencies", "", drawn, [Table(head, rows[:PAGED])]), Section("In words", facts=[("",
        line) for line in said])] if found else [], notes=notes, ok=result["same"], terminal_tables=[Table(head,
        rows[:ROWS], title)] if found else [],
    )  # fmt: skip


def _difference(row: Row) -> list[str]:
    numbers = [f"{row[side]:.6g}" if isinstance(row[side], float) else str(row[side]) for side in "ab"]
    place = ["" if row[field] is None else str(row[field]) for field in ("pair", "length")]
    return [
        row["kind"],
        row["what"],
        *place,
        *numbers,
        "" if row["relative"] is None else f"{100 * row['relative']:.3g} %",
    ]


def _ratios(result: Row) -> dict[str, dict[float, float]]:
    """B over A of each pair that differs, for each kind of layer and length."""
    groups: dict[str, dict[float, float]] = {}
    for row in result["differences"]:
        if row["pair"] is not None and row["a"]:
            name = row["kind"] + ("" if row["length"] is None else f", {row['length']} tokens")
            groups.setdefault(name, {})[row["pair"]] = row["b"] / row["a"]
    return groups


def parity_figure(result: Row) -> Figure:
    """The ratio of the two frequencies of each pair that differs."""
    groups = _ratios(result)
    return Figure(
        "lines", "Frequency B / A" if groups else "No pair differs", "pair", "frequency B / A", x=[0.0, 1.0],
        lines={name: list(ratios.values()) for name, ratios in groups.items()}, xs={name: list(ratios) for name,
        ratios in groups.items()}, styles={name: Style(mark="circle") for name in groups}, marks=(Mark("y", 1.0,
        ""),),
    )  # fmt: skip


def save_parity(result: Row, out: Path) -> Path:
    """Write ``out`` as its ending says."""
    return picture.save(out, parity_document(result), [parity_figure(result)])
