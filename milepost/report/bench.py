"""The benchmark drawn: a Markdown table to paste, and a page with a figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from milepost.measure.results import write, write_json
from milepost.report.portrait import COLOURS, image


def markdown(result: dict[str, Any]) -> str:
    """All rows as Markdown tables."""
    p, about = result["provenance"]["protocol"], result["provenance"]
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = [
        "# Benchmark",
        "",
        f"{about['date']}, {about['cores']} cores ({about['machine']}), Python {about['python']}, {versions}.",
        f"{p['heads']} heads x {p['head_dim']}, {p['dtype']}, causal; contestants interleaved in one run, the best of several rounds, as ratios.",
        "Made by `make bench`.",
        "",
        "## Rotating q and k (32 heads x 4096 x 128)",
        "",
        "| implementation | mode | time / clone | time / ours |",
        "|---|---|---:|---:|",
    ]
    lines += [f"| {r['implementation']} | {r['mode']} | {r['ratio']:.2f} | {r['times_ours']:.2f} |" for r in sorted(result["rope"], key=lambda r: r["ratio"])]
    for kind, title in (("forward", "Forward"), ("training", "Training: forward and backward"), ("decode", "Decode: one token over a cache")):
        rows = [r for r in result["rows"] if r["pass"] == kind]
        lines += [
            "",
            f"## {title}, as ratios to attention with no position",
            "",
            "| scheme | implementation | length | ratio | extra MB | |",
            "|---|---|---:|---:|---:|---|",
        ]
        for r in rows:
            name = f"**{r['implementation']}**" if r["implementation"] == "milepost" else r["implementation"]
            ratio = "" if r["ratio"] is None else f"{r['ratio']:.2f}"
            peak = "" if r["peak_mb"] is None else f"{r['peak_mb']:.0f}"
            lines.append(f"| {r['scheme']} | {name} | {r['length']} | {ratio} | {peak} | {r['note']} |")
    return "\n".join(lines) + "\n"


def summary(result: dict[str, Any]) -> str:
    """Ours in one Markdown table: ratios by pass and length, and the most memory beyond no position."""
    columns = [("forward", 4096), ("forward", 16384), ("training", 4096), ("decode", 16384)]
    ours = [r for r in result["rows"] if r["implementation"] == "milepost"]
    ratios = {(r["scheme"], r["pass"], r["length"]): r["ratio"] for r in ours if r["ratio"] is not None}
    head = ["time / no position", *(f"{kind}, {length}" for kind, length in columns), "extra MB at 16384, forward", "training"]
    lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
    for scheme in dict.fromkeys(r["scheme"] for r in ours):
        cells = [f"{ratios[key]:.2f}" if (key := (scheme, kind, length)) in ratios else "" for kind, length in columns]
        peaks = {r["pass"]: r["peak_mb"] for r in ours if r["scheme"] == scheme and r["length"] == 16384 and r["peak_mb"] is not None}
        cells += [f"{peaks[kind]:.0f}" if kind in peaks else "" for kind in ("forward", "training")]
        lines.append(f"| `{scheme}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def figure(result: dict[str, Any], kind: str, length: int) -> Any:
    """Ratios of every scheme and implementation for one pass and length, as bars."""
    from plotly import graph_objects as go

    rows = [r for r in result["rows"] if r["pass"] == kind and r["length"] == length and r["ratio"] is not None and r["scheme"] != "nope"]
    fig = go.Figure()
    for n, name in enumerate(dict.fromkeys(r["implementation"] for r in rows)):
        mine = [r for r in rows if r["implementation"] == name]
        fig.add_bar(x=[r["scheme"] for r in mine], y=[r["ratio"] for r in mine], name=name, marker_color=COLOURS[n % len(COLOURS)])
    fig.add_hline(1.0, line_dash="dot", line_color="#888")
    axis = {"title": "ratio (log scale)", "type": "log", "tickvals": [1, 2, 5, 10, 20, 50, 100]}
    title = f"{kind}, {length} tokens: time as a ratio to attention with no position"
    font = {"family": "system-ui, sans-serif", "size": 13}
    fig.update_layout(template="plotly_white", barmode="group", height=420, font=font, title=title, yaxis=axis, legend={"orientation": "h", "y": -0.15})
    return fig


def save(result: dict[str, Any], folder: Path) -> list[Path]:
    """bench.json, bench.md, and one .png for each pass and length (where a Chrome or Chromium is installed)."""
    files = [write_json(folder / "bench.json", result), write(folder / "bench.md", markdown(result))]
    for kind, length in dict.fromkeys((r["pass"], r["length"]) for r in result["rows"] if r["ratio"] is not None and r["scheme"] != "nope"):
        try:
            files.append(write(folder / f"{kind}-{length}.png", image(figure(result, kind, length), "png")))
        except ValueError:  # the numbers are kept; only their picture is missing
            break
    return files
