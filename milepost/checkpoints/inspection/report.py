"""An inspection, from its data alone: tables of what is known. Layers alike share a row."""

from __future__ import annotations

from typing import Any

from milepost.draw import Document, Section, Table
from milepost.rope import report as rope

SLOPES = 4
"""Slopes that are written out; with more, the first and the last."""


def document(data: dict[str, Any]) -> Document:
    """What is known, as tables, those that have nothing to say left out; and the turns of each pair where layers
    turn.
    """
    lengths = ("trained", "scaled", "served")
    sources = [[name, source] for name, source in data["sources"].items() if name not in lengths]
    made = [
        _model(data),
        _lengths(data),
        _layers(data),
        _text(data),
        _tables(data),
        Table(["", ""], sources, "where values come from"),
        _at_target(data),
        _weights(data),
        Table(["", ""], [[key, value] for key, value in data["found"].items()], "what could be read"),
    ]
    tables = [table for table in made if table.rows]
    sections = [Section(table.title, tables=[Table(table.head, table.rows)]) for table in tables]
    if data["analysis"]:
        sections.append(Section("turns of each pair", figures=rope.figures(data["analysis"])))
    warnings = [f"warning: {warning}" for warning in left(data)]
    brief = [section for section in sections if section.tables]
    return Document(
        f"inspect {data['model']}", sections=sections, sentences=warnings, terminal_tables=tables, inline=brief
    )


def _model(data: dict[str, Any]) -> Table:
    enters = ", ".join(data["where"]) or ("nowhere" if data["known"] else "not known")
    rows = [
        ["family", data["family"] + ("" if data["known"] else " (unknown to milepost)")],
        ["position enters", enters],
        ["read from", data["form"]],
        *([["a cache may be", data["cache"]]] if data["cache"] else []),
    ]
    return Table(["", ""], rows, data["model"])


def _lengths(data: dict[str, Any]) -> Table:
    rows = [
        [name, "" if data[name]["tokens"] is None else str(data[name]["tokens"]), data[name]["source"]]
        for name in ("trained", "scaled", "served")
    ]
    return Table(["length", "tokens", "from"], rows, "lengths")


def _layers(data: dict[str, Any]) -> Table:
    """Neighbouring columns that no layer fills are left out."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for layer in data["layers"]:
        groups.setdefault((layer["stack"], *_cells(layer).values()), []).append(layer)
    names = list(_cells(data["layers"][0])) if data["layers"] else []
    rows = [[_numbers([layer["layer"] for layer in some]), *map(str, key)] for key, some in groups.items()]
    head = ["layers", "stack", *names]
    filled = [n for n in range(len(head)) if any(row[n] for row in rows)]
    return Table([head[n] for n in filled], [[row[n] for n in filled] for row in rows], "layers")


def _text(data: dict[str, Any]) -> Table:
    """The stack as `milepost.build` reads it, and what that leaves out."""
    if not data["text"]:
        return Table([], [])
    rows = [[data["text"]], *([f"left out: {sentence}"] for sentence in data["not_in_text"])]
    return Table([""], rows, "as text for milepost.build")


def _cells(layer: dict[str, Any]) -> dict[str, str]:
    turned = "" if layer["rotary"] is None else f"{layer['rotary']} of {layer['head_dim']}"
    window = (
        ""
        if layer["window"] is None
        else str(layer["window"]) + (f", shifted by {layer['shift']}" if layer["shift"] else "")
    )
    buckets = "" if layer["buckets"] is None else str(layer["buckets"])
    if layer["max_distance"] is not None:
        buckets += f" to distance {layer['max_distance']}" + (", both sides" if layer["both_sides"] else "")
    return {
        "scheme": layer["scheme"],
        "kind": layer["kind"],
        "window": window,
        "pairs": layer["pairing"] or "",
        "channels turned": turned,
        "base": "" if layer["base"] is None else f"{layer['base']:.10g}",
        "scaling": rope.cut(layer["scaling"] or "", 90),
        "logits x": "" if layer["temperature"] is None else f"{layer['temperature']:.6g}",
        "slopes": _slopes(layer["slopes"]),
        "buckets": buckets.strip(),
        "relative rows": "" if layer["rows"] is None else str(layer["rows"]),
    }


def _slopes(slopes: Any) -> str:
    if slopes is None:
        return ""
    some = list(slopes) if len(slopes) <= SLOPES else [*slopes[:2], None, slopes[-1]]
    return ", ".join("..." if slope is None else f"{slope:.4g}" for slope in some) + f" ({len(slopes)} heads)"


def _numbers(numbers: list[int]) -> str:
    """``0-4, 6`` for 0, 1, 2, 3, 4, 6; with a step where there is one: ``0-10 by 2``."""
    if len(numbers) > 2:
        step = numbers[1] - numbers[0]
        if step > 1 and numbers == list(range(numbers[0], numbers[-1] + 1, step)):
            return f"{numbers[0]}-{numbers[-1]} by {step}"
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _tables(data: dict[str, Any]) -> Table:
    rows = []
    for table in data["tables"]:
        grid = (
            ""
            if table["grid"] is None
            else f"{table['grid'][0]} x {table['grid'][1]} patches, {table['prefix']} before"
        )
        sizes = [str(table["rows"]), str(table["usable"]), str(table["offset"]), str(table["width"] or ""), grid]
        rows.append([table["tensor"] or "learned positions", *sizes, table["source"]])
    head = ["table", "rows", "usable", "offset", "width", "grid", "from"]
    return Table(head, rows, "learned positions, added to the embedding")


def _at_target(data: dict[str, Any]) -> Table:
    title = "at the length that is served" if data["target"] is None else f"at {data['target']} tokens"
    rows = [[sentence, ""] for sentence in data["at_target"]]
    rows += [
        [
            f"pairs that meet angles never seen{'' if kind['kind'] == 'all' else ' in ' + kind['kind']}",
            _numbers(list(kind["unseen_pairs"])),
        ]
        for kind in data["analysis"]
        if kind["unseen_pairs"]
    ]
    return Table(["", ""], rows, title)


def _weights(data: dict[str, Any]) -> Table:
    tensors = data["weights"]
    if tensors is None:
        return Table([], [])
    rows = [[one["sentence"]] for one in tensors["tables"]] + [[one["sentence"]] for one in tensors["buckets"]]
    if tensors["read"] and not rows and not tensors["frequencies"]:
        rows.append([f"{len(tensors['read'])} tensors were read, and nothing in them is out of line"])
    rows += [[note] for note in (*tensors["notes"], tensors["word"]) if note and [note] not in rows]
    return Table([""], rows, "what the tensors say")


def left(data: dict[str, Any]) -> list[str]:
    """The warnings that no table shows."""
    shown = {cell for table in (_at_target(data), _weights(data)) for row in table.rows for cell in row}
    return [warning for warning in data["warnings"] if warning not in shown]
