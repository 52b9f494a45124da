"""The benchmark: all rows in Markdown, a picture for each pass and length, and a table for a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from milepost.draw import Document, Figure, Mark, Section, Table
from milepost.draw.picture import WIDTH, png
from milepost.draw.svg import sheet
from milepost.measure.results import write, write_json

Row = dict[str, Any]
PASSES = {
    "forward": "Forward",
    "training": "Training: forward and backward",
    "decode": "Decode: one token over a cache",
}


def document(result: Row) -> Document:
    """All rows as tables."""
    about, p = result["provenance"], result["provenance"]["protocol"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    machine = f"{about['date']}, {about['cores']} cores ({about['machine']}), Python {about['python']}, {versions}."
    words = (
        f"{p['heads']} heads x {p['head_dim']}, {p['dtype']}, causal; contestants interleaved in one run, the best of "
        "several rounds, as "
        "ratios. Made by `make bench`."
    )  # fmt: skip
    turned = [
        [row["implementation"], row["mode"], f"{row['ratio']:.2f}", f"{row['times_ours']:.2f}"]
        for row in sorted(result["rope"], key=lambda row: row["ratio"])
    ]  # fmt: skip
    turning = Table(["implementation", "mode", "time / clone", "time / ours"], turned)
    sections = [Section("Rotating q and k (32 heads x 4096 x 128)", tables=[turning])]
    for kind, title in PASSES.items():
        rows = [_cells(row) for row in result["rows"] if row["pass"] == kind]
        table = Table(
            ["scheme", "implementation", "length", "ratio", "extra MB", "note"], [[*row[:2], *row[3:]] for row in rows]
        )
        sections.append(Section(f"{title}, as ratios to attention with no position", tables=[table]))
    if result.get("lab"):
        rates = [[row["encoding"], f"{row['tokens_per_s']:,.0f}", f"{row['ratio']:.2f}"] for row in result["lab"]]
        table = Table(["encoding", "tokens a second", "of nope's"], rates)
        sections.append(Section("Training the lab's model in the standard shape", tables=[table]))
    return Document("Benchmark", machine, sentences=[words], sections=sections)


def _cells(row: Row) -> list[str]:
    ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
    peak = "" if row["peak_mb"] is None else f"{row['peak_mb']:.0f}"
    return [row["scheme"], row["implementation"], row["pass"], str(row["length"]), ratio, peak, row["note"]]


def attention_document(result: Row) -> Document:
    """The ratios of `bench attention` and `bench decode`."""
    p = result["provenance"]["protocol"]
    title = f"{p['heads']} heads x {p['head_dim']}, {p['dtype']}, {p['device']}, ratios to torch SDPA with no position"
    head = ["scheme", "implementation", "pass", "length", "ratio", "extra MB", ""]
    return Document("", terminal_tables=[Table(head, [_cells(row) for row in result["rows"]], title)])


def lab_document(result: Row, **columns: str) -> Document:
    """The rows of `bench train` and `bench evaluate`: some of their columns, each under a heading."""
    rows = [
        [f"{row[name]:,.2f}" if isinstance(row[name], float) else str(row[name]) for name in columns]
        for row in result["rows"]
    ]
    return Document("", terminal_tables=[Table(list(columns.values()), rows)])


def rope_document(result: Row) -> Document:
    """The ratios of `bench rope`."""
    p = result["provenance"]["protocol"]
    sizes = (
        f"q and k of {p['heads']} heads x {p['length']} x {p['head_dim']}, {p['dtype']}, {p['device']}, best of "
        f"{p['rounds']}"
    )
    rows = [
        [
            row["implementation"],
            row["mode"],
            f"{row['seconds'] * 1e3:.1f}",
            f"{row['ratio']:.2f}",
            f"{row['times_ours']:.2f}",
        ]
        for row in sorted(result["rows"], key=lambda row: (row["mode"], row["seconds"]))
    ]
    missing = f"not installed, so not measured: {', '.join(result['not_installed'])} (pip install 'milepost[bench]')"
    table = Table(["implementation", "mode", "ms", "time / clone", "time / ours"], rows, sizes)
    return Document("", notes=[missing] if result["not_installed"] else [], terminal_tables=[table])


def summary(result: dict[str, Any]) -> str:
    """Ours in one Markdown table: ratios by pass and length, and the most memory beyond no position."""
    columns = [("forward", 4096), ("forward", 16384), ("training", 4096), ("decode", 16384)]
    ours = [r for r in result["rows"] if r["implementation"] == "milepost"]
    ratios = {(r["scheme"], r["pass"], r["length"]): r["ratio"] for r in ours if r["ratio"] is not None}
    head = [
        "time / no position",
        *(f"{kind}, {length}" for kind, length in columns),
        "extra MB at 16384, forward",
        "training",
    ]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    for scheme in dict.fromkeys(r["scheme"] for r in ours):
        cells = [f"{ratios[key]:.2f}" if (key := (scheme, kind, length)) in ratios else "" for kind, length in columns]
        peaks = {
            r["pass"]: r["peak_mb"]
            for r in ours
            if r["scheme"] == scheme and r["length"] == 16384 and r["peak_mb"] is not None
        }
        cells += [f"{peaks[kind]:.0f}" if kind in peaks else "" for kind in ("forward", "training")]
        lines.append(f"| `{scheme}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def figure(result: Row, kind: str, length: int) -> Figure:
    """Ratios of every scheme and implementation for one pass and length, in rows."""
    ratios = {
        (row["scheme"], row["implementation"]): row["ratio"]
        for row in _measured(result)
        if (row["pass"], row["length"]) == (kind, length)
    }
    schemes, names = (tuple(dict.fromkeys(key[n] for key in ratios)) for n in (0, 1))
    lines = {name: [ratios.get((scheme, name)) for scheme in schemes] for name in names}
    title = f"{kind}, {length} tokens: time as a ratio to attention with no position"
    return Figure(
        "points", title, "ratio (log scale)", lines=lines, y_names=schemes, marks=(Mark("x", 1.0, ""),), log_x=True
    )


def _measured(result: Row) -> list[Row]:
    return [row for row in result["rows"] if row["ratio"] is not None and row["scheme"] != "nope"]


def save(result: Row, folder: Path) -> list[Path]:
    """bench.json, bench.md, and one .png for each pass and length."""
    files = [write_json(folder / "bench.json", result), write(folder / "bench.md", document(result).markdown())]
    for kind, length in dict.fromkeys((row["pass"], row["length"]) for row in _measured(result)):
        drawn = sheet([figure(result, kind, length)], 2 * WIDTH)
        files.append(write(folder / f"{kind}-{length}.png", png(drawn)))
    return files
