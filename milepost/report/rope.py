"""The picture of a RopeSpec at a length, and of two of them side by side: in the terminal, and as a page, a PNG or an SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from milepost.measure.results import write
from milepost.report.portrait import COLOURS, CONFIG, FORMATS, document, image

WIDEST = 16
"""Characters of the longest bar."""
FONT = {"family": "system-ui, sans-serif"}
ROWS = 16
"""Pairs that a terminal shows."""


def check_name(out: Path) -> None:
    """Refuse a file that can't be drawn, before anything is worked out."""
    if out.suffix not in FORMATS:
        raise ValueError(f"--out {out}: the ending says what to draw, and must be one of {', '.join(FORMATS)}")


# -- in the terminal ------------------------------------------------------------------------------------------------------


def terminal(result: dict[str, Any]) -> Iterator[Table | Text]:
    """What the config says and where, what it does at the target length, and a figure of turns."""
    yield _said(result["spec"])
    for one in result["analysis"]:
        yield _pairs(one)
        yield Text(one["sentence"], "bold red" if one["unseen_pairs"] else "bold green")
    for note in result["spec"]["notes"]:
        yield Text(f"note: {note}", "yellow")


def _said(spec: dict[str, Any]) -> Table:
    table = Table(title=Text(spec["model"] or "no model type"), title_justify="left", box=None, header_style="bold", pad_edge=False)
    for column in ("", "value", "from"):
        table.add_column(column, overflow="fold")
    sources = spec["sources"]
    for kind in spec["kinds"]:
        label = "" if kind["kind"] == "all" else f"{kind['kind']}."
        layers = f"{kind['layers']} layers" if kind["layers"] else ""
        rope = kind["rope"]
        if label or layers:
            table.add_row(Text(kind["kind"], "bold"), Text(layers if rope else f"{layers}, no rotation"), "")
        if rope is None:
            continue
        shown = {
            "base": f"{rope['base']:.10g}",
            "head_dim": str(rope["head_dim"]),
            "rotary": str(rope["rotary"]),
            "pairing": rope["pairing"],
            "scaling": rope["scaling"] or "none",
        }
        for field, value in shown.items():
            source = sources.get(label + field, sources.get(field, ""))
            table.add_row(Text(f"  {field}"), Text(_cut(value, 90)), Text(source, "dim"))
    for field in ("trained", "scaled", "served"):
        if spec[field] is not None:
            table.add_row(Text(f"{field} length"), Text(str(spec[field])), Text(sources.get(field, sources.get(f"full_attention.{field}", "")), "dim"))
    return table


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _pairs(one: dict[str, Any]) -> Table:
    """Some pairs of one kind of layer, with bars of their turns at the target: red where these are angles never seen."""
    name = "" if one["kind"] == "all" else f"{one['kind']}: "
    title = f"{name}{one['target']} tokens, trained on {one['trained']}, logits x {one['temperature']:.4f}"
    table = Table(title=Text(title), title_justify="left", box=None, header_style="bold", pad_edge=False)
    for column in ("pair", "wavelength", "turns trained", "turns at target", "resolution", ""):
        table.add_column(column, justify="left" if not column else "right")
    most = max(1.0, *(p["target_turns"] for p in one["pairs"]))
    for p in _some(one):
        mark = " critical" if p["pair"] == one["critical_pair"] else ""
        bar = "█" * max(1, round(WIDEST * math.log1p(p["target_turns"]) / math.log1p(most))) if p["frequency"] else ""
        long = "stands still" if p["wavelength"] is None else f"{p['wavelength']:.5g}"
        numbers = [f"{p[field]:.4g}" for field in ("turns", "target_turns", "resolution")]
        table.add_row(str(p["pair"]), long, *numbers, Text(bar + (" unseen" if p["unseen"] else "") + mark, "red" if p["unseen"] else "green"))
    return table


def _some(one: dict[str, Any]) -> list[dict[str, Any]]:
    """The first, the last, those around the critical pair, and some between."""
    pairs, critical = one["pairs"], one["critical_pair"]
    count = len(pairs)
    chosen = {round(i * (count - 1) / (ROWS - 1)) for i in range(ROWS)}
    if critical is not None:
        chosen |= {critical - 1, critical, critical + 1}
    return [p for p in pairs if p["pair"] in chosen]


def terminal_parity(result: dict[str, Any]) -> Iterator[Table | Text]:
    """The same, or where not."""
    a, b = result["a"]["name"], result["b"]["name"]
    if result["same"]:
        yield Text("same table: every pair of every layer turns alike, and logits have the same temperature", "bold green")
    else:
        table = Table(title=Text(f"A = {_cut(a, 70)}\nB = {_cut(b, 70)}"), title_justify="left", box=None, header_style="bold", pad_edge=False)
        for column in ("layers", "what", "pair", "length", "A", "B", "difference"):
            table.add_column(column, justify="left" if column in ("layers", "what") else "right")
        rows = result["differences"]
        for d in rows[:ROWS]:
            numbers = [f"{d[x]:.6g}" if isinstance(d[x], float) else str(d[x]) for x in "ab"]
            place = ["" if d[x] is None else str(d[x]) for x in ("pair", "length")]
            table.add_row(d["kind"], d["what"], *place, *numbers, "" if d["relative"] is None else f"{100 * d['relative']:.3g} %")
        yield table
        if len(rows) > ROWS:
            yield Text(f"and {len(rows) - ROWS} more (--json has them all)", "dim")
        yield Text(f"{len(rows)} difference{'s' if len(rows) > 1 else ''}", "bold red")
    for side in ("a", "b"):
        for note in result[side]["spec"]["notes"]:
            yield Text(f"note on {side.upper()}: {note}", "yellow")


# -- as a figure --------------------------------------------------------------------------------------------------------------


def save(result: dict[str, Any], out: Path) -> Path:
    """Write ``out`` as its ending says."""
    fig = figure(result["analysis"])
    return _save(fig, f"{result['spec']['model'] or 'rope'} at {result['analysis'][0]['target']} tokens", _about(result), out)


def save_parity(result: dict[str, Any], out: Path) -> Path:
    """Write ``out`` as its ending says."""
    lines = [d["sentence"] for d in result["differences"][:200]] or ["same table"]
    return _save(figure_parity(result), f"{result['a']['name'][:80]} and {result['b']['name'][:80]}", lines, out)


def _save(fig: Any, title: str, lines: Sequence[str], out: Path) -> Path:
    if out.suffix != ".html":
        return write(out, image(fig, out.suffix[1:]))
    from jinja2 import Environment

    template = Environment(autoescape=True).from_string("<h2>{{ title }}</h2><ul>{% for line in lines %}<li>{{ line }}</li>{% endfor %}</ul>")
    drawn = fig.to_html(include_plotlyjs=False, full_html=False, config=CONFIG)
    return write(out, document(title, template.render(title=title, lines=lines) + drawn))


def _about(result: dict[str, Any]) -> list[str]:
    spec = result["spec"]
    said = [one["sentence"] for one in result["analysis"]]
    for one in result["analysis"]:
        said.append(
            f"{one['kind']}: base {one['base']:.10g}, {one['rotary']} of {one['head_dim']} channels, {one['pairing']} pairs, "
            f"scaling {_cut(one['scaling'], 200)}, logits x {one['temperature']:.6g}"
        )
    said += [f"{field}: from {source}" for field, source in spec["sources"].items()]
    return said + [f"note: {note}" for note in spec["notes"]]


def figure(analysis: Sequence[dict[str, Any]]) -> Any:
    """Turns of each pair, trained and at the target; and how much of each frequency is left."""
    from plotly import graph_objects as go
    from plotly.subplots import make_subplots

    fig = make_subplots(len(analysis), 2, subplot_titles=[t for one in analysis for t in (f"{one['kind']}: turns", f"{one['kind']}: frequency kept")])
    for row, one in enumerate(analysis, start=1):
        x = [p["pair"] for p in one["pairs"]]
        trained, target = ([p[field] or None for p in one["pairs"]] for field in ("turns", "target_turns"))
        kept = [p["resolution"] for p in one["pairs"]]
        unseen = [t if p["unseen"] else None for t, p in zip(target, one["pairs"], strict=True)]
        first = row == 1
        fig.add_trace(go.Scatter(x=x, y=trained, name=f"over the trained {one['trained']}", line={"color": COLOURS[0]}, showlegend=first), row, 1)
        fig.add_trace(go.Scatter(x=x, y=target, name=f"at {one['target']}", line={"color": COLOURS[2]}, showlegend=first), row, 1)
        marker = {"color": COLOURS[3], "size": 7}
        fig.add_trace(go.Scatter(x=x, y=unseen, name="angles never seen", mode="markers", marker=marker, showlegend=first), row, 1)
        fig.add_hline(1.0, line_dash="dot", line_color="#888", row=row, col=1)
        fig.add_annotation(x=0, y=0, text="one full turn", showarrow=False, xanchor="left", yanchor="bottom", row=row, col=1)  # log axis: 10^0
        fig.add_trace(go.Scatter(x=x, y=kept, name="frequency / trained frequency", line={"color": COLOURS[4]}, showlegend=first), row, 2)
        fig.update_yaxes(type="log", title_text="turns", row=row, col=1)
        fig.update_yaxes(range=[0, 1.08 * max(1.0, *kept)], title_text="share", row=row, col=2)
        fig.update_xaxes(title_text="pair", row=row)
    fig.update_layout(
        template="plotly_white", height=380 * len(analysis) + 80, legend={"orientation": "h", "y": -0.15}, font={"family": "system-ui, sans-serif"}
    )
    return fig


def figure_parity(result: dict[str, Any]) -> Any:
    """The ratio of the two frequencies of each pair that differs."""
    from plotly import graph_objects as go

    fig = go.Figure()
    groups: dict[str, list[tuple[int, float]]] = {}
    for d in result["differences"]:
        if d["pair"] is not None and d["a"]:
            name = d["kind"] + ("" if d["length"] is None else f", {d['length']} tokens")
            groups.setdefault(name, []).append((d["pair"], d["b"] / d["a"]))
    for n, (name, points) in enumerate(groups.items()):
        fig.add_trace(
            go.Scatter(x=[p for p, _ in points], y=[r for _, r in points], name=name, mode="lines+markers", line={"color": COLOURS[n % len(COLOURS)]})
        )
    if not groups:
        fig.add_annotation(text="no pair differs", showarrow=False, font={"size": 18})
    fig.add_hline(1.0, line_dash="dot", line_color="#888")
    fig.update_layout(template="plotly_white", height=460, xaxis_title="pair", yaxis_title="frequency B / A", font=FONT)
    return fig
