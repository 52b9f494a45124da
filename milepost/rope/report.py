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
        f"{kind['kind']}: base {kind['base']:.10g}, {kind['rotary']} of {kind['head_dim']} channels, {kind['pairing']} "
        f"pairs, scaling {cut(kind['scaling'], 200)}, logits x {kind['temperature']:.6g}."
        for kind in analysis
    ]
    target = f" at {analysis[0]['target']} tokens" if analysis else ""
    sources = [[field, source] for field, source in spec["sources"].items()]
    values = Section("What the config says", tables=[_said(spec)])
    return Document(
        f"{spec['model'] or 'rope'}{target}",
        " ".join(f"{kind['sentence']}." for kind in analysis),
        notes=spec["notes"],
        sections=[
            Section("Turns of each pair", " ".join(kinds), figures(analysis)),
            values,
            Section("Where values come from", tables=[Table(["", ""], sources)]),
        ],
        ok=not any(kind["unseen_pairs"] for kind in analysis),
        terminal_tables=[_said(spec), *map(_pairs, analysis)],
        inline=[values, *(Section("", figures=figures([kind])[:1]) for kind in analysis)],
    )


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
                [f"  {field}", cut(str(shown[field]), 90), sources.get(label + field, sources.get(field, ""))]
                for field in ("base", "head_dim", "rotary", "pairing", "scaling")
            ]
    for field in ("trained", "scaled", "served"):
        if spec[field] is not None:
            source = sources.get(field, sources.get(f"full_attention.{field}", ""))
            rows.append([f"{field} length", str(spec[field]), source])
    return Table(["what", "value", "from"], rows, spec["model"] or "no model type")


def cut(text: str, most: int) -> str:
    """A text of at most so many letters; dots stand for the rest."""
    return text if len(text) <= most else text[: most - 3] + "..."


def _pairs(kind: Row) -> Table:
    """Some pairs of one kind of layer, with bars of their turns at the target, and whether these are angles never
    seen.
    """
    name = "" if kind["kind"] == "all" else f"{kind['kind']}: "
    title = f"{name}{kind['target']} tokens, trained on {kind['trained']}, logits x {kind['temperature']:.4f}"
    most = max(1.0, *(pair["target_turns"] for pair in kind["pairs"]))
    rows = []
    for pair in _some(kind):
        share = math.log1p(pair["target_turns"]) / math.log1p(most)
        bar = "█" * max(1, round(WIDEST * share)) if pair["frequency"] else ""
        long = "stands still" if pair["wavelength"] is None else f"{pair['wavelength']:.5g}"
        numbers = [f"{pair[field]:.4g}" for field in ("turns", "target_turns", "resolution")]
        critical = "critical" if pair["pair"] == kind["critical_pair"] else ""
        rows.append([str(pair["pair"]), long, *numbers, bar, "unseen" if pair["unseen"] else "", critical])
    head = ["pair", "wavelength", "turns trained", "turns at target", "resolution", "", "", ""]
    return Table(head, rows, title)


def _some(kind: Row) -> list[Row]:
    """The first, the last, those around the critical pair, and some between."""
    pairs, critical = kind["pairs"], kind["critical_pair"]
    chosen = {round(i * (len(pairs) - 1) / (ROWS - 1)) for i in range(ROWS)}
    if critical is not None:
        chosen |= {critical - 1, critical, critical + 1}
    return [pair for pair in pairs if pair["pair"] in chosen]


def figures(analysis: Sequence[Row]) -> list[Figure]:
    """Turns of each pair, trained and at the target; and how much of each frequency is left."""
    drawn = []
    for kind in analysis:
        name = "" if kind["kind"] == "all" else f" of {kind['kind']}"
        pairs, x = kind["pairs"], [float(pair["pair"]) for pair in kind["pairs"]]
        turns = {
            f"over the trained {kind['trained']}": [pair["turns"] or None for pair in pairs],
            f"at {kind['target']}": [pair["target_turns"] or None for pair in pairs],
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
    differences, names = result["differences"], {side: result[side]["name"] for side in "ab"}
    notes = [f"{side.upper()}: {note}" for side in "ab" for note in result[side]["spec"]["notes"]]
    notes = [*(f"lost: {line}" for line in result.get("lost", ())), *result.get("notes", ()), *notes]
    if len(differences) > ROWS:
        notes.append(f"the terminal shows {ROWS} of {len(differences)} differences; --json has them all")
    rows = [_difference(row) for row in differences]
    head = ["layers", "what", "pair", "length", "A", "B", "difference"]
    title = f"A = {cut(names['a'], 70)}\nB = {cut(names['b'], 70)}"
    same = "same table: every pair of every layer turns alike, and logits have the same temperature"
    drawn = [parity_figure(result)] if _ratios(result) else []
    sections = [
        Section("Frequencies", "", drawn, [Table(head, rows[:PAGED])]),
        Section("In words", facts=[("", row["sentence"]) for row in differences[:PAGED]]),
    ]
    return Document(
        f"{names['a'][:80]} and {names['b'][:80]}",
        same if result["same"] else f"{len(differences)} difference{'s' if len(differences) > 1 else ''}",
        sections=sections if differences else [],
        notes=notes,
        ok=result["same"],
        terminal_tables=[Table(head, rows[:ROWS], title)] if differences else [],
    )


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
