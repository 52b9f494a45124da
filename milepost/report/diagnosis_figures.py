"""Figures of a diagnosis, as plotly objects, from diagnosis.json alone.

Each trace carries ``meta`` with a label, which the page's buttons switch on and off; a figure whose ``layout.meta`` says "one" shows one at a time.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Sequence
from typing import Any

from milepost.report.lab_style import COLOURS

Row = dict[str, Any]
NATS = "loss, nats a token"
GREY, RED = "#888", "#dc2626"
TALLEST = 1000
"""Pixels of a heat map with many heads."""


def by_position(data: Row) -> Any:
    """Loss at each place of a long text, with the trained length and the onset."""
    fig = _empty("Loss at each place of a long text")
    rows = [row for row in data["loss_by_position"] if row["loss"] is not None]
    _line(fig, "loss", [(row["start"] + row["end"]) / 2 for row in rows], rows, COLOURS[0], "around token %{x}")
    _mark(fig, data["trained_length"], "trained length", GREY, 1.0, rows[-1]["end"] if rows else 0)
    _mark(fig, data["onset"], "fails from here", RED, 0.93, rows[-1]["end"] if rows else 0)
    fig.update_xaxes(title_text="place in the text, tokens")
    fig.update_yaxes(title_text=NATS)
    return fig


def by_length(data: Row) -> Any:
    """The same last tokens, and windows without overlap, against length."""
    fig = _empty("Loss against length")
    for number, (label, key) in enumerate((("the same last tokens", "loss_by_length"), ("windows without overlap", "disjoint"))):
        rows = [row for row in data[key] if row["loss"] is not None]
        _line(fig, label, [row["length"] for row in rows], rows, COLOURS[number], "%{x} tokens", dash="solid" if number == 0 else "dash")
    known = [row["length"] for row in data["loss_by_length"]]
    fig.update_xaxes(type="log", title_text="tokens read (log scale)", tickvals=known, ticktext=[str(n) for n in known])
    fig.update_yaxes(title_text=NATS)
    return fig


def shifted(data: Row) -> Any:
    """What a passage loses more at other positions than at 0."""
    rows = [row for row in data["shifted"] if row["difference"] is not None]
    fig = _empty(f"The same {data['shifted'][0]['passage']} tokens at other positions")
    down = [0.0 if row["low"] is None else row["difference"] - row["low"] for row in rows]
    up = [0.0 if row["high"] is None else row["high"] - row["difference"] for row in rows]
    fig.add_scatter(
        x=[row["first"] for row in rows], y=[row["difference"] for row in rows], name="difference", mode="lines+markers",
        error_y={"type": "data", "symmetric": False, "array": up, "arrayminus": down}, line={"color": COLOURS[0], "width": 2},
        meta={"label": "difference", "kind": "shift"}, hovertemplate="from position %{x}<br>%{y:+.3g} nats a token<extra></extra>",
    )  # fmt: skip
    most = max((abs(value) for row in rows for value in (row["low"] or 0.0, row["high"] or 0.0, row["difference"])), default=0.0)
    if most < 1e-3:  # rounding: shown as the flat line that it is
        fig.update_yaxes(range=[-1e-3, 1e-3])
    fig.update_xaxes(title_text="position of the first token")
    fig.update_yaxes(title_text="nats a token more than at 0", exponentformat="power")
    return fig


def retrieval(data: Row) -> Any:
    """Depth by length: the share of right answers, and the margin."""
    found = data["retrieval"]
    fig = _empty(f"One sentence, found again (chance {found['chance']:.0%})")
    cells = {(cell["depth"], cell["length"]): cell for cell in found["cells"]}
    depths, lengths = sorted({cell["depth"] for cell in found["cells"]}), sorted({cell["length"] for cell in found["cells"]})
    said = [[_cell(cells[d, n]) for n in lengths] for d in depths]
    margins = [abs(cell["margin"]) for cell in found["cells"] if cell["margin"] is not None]
    limit = max(margins, default=1.0) or 1.0
    maps: list[tuple[str, str, dict[str, Any]]] = [
        ("share of right answers", "share", {"zmin": 0, "zmax": 1, "colorscale": "Viridis"}),
        ("margin, nats", "margin", {"zmin": -limit, "zmax": limit, "colorscale": "RdBu"}),
    ]
    for label, key, scale in maps:
        fig.add_heatmap(
            z=[[cells[d, n][key] for n in lengths] for d in depths], x=[str(n) for n in lengths], y=[f"{d:.0%}" for d in depths], text=said, name=label,
            meta={"label": label, "kind": "map"}, visible=not fig.data, colorbar={"thickness": 12},
            hovertemplate="%{x} tokens, depth %{y}<br>%{text}<extra></extra>", **scale,
        )  # fmt: skip
    fig.update_xaxes(title_text="tokens", type="category")
    fig.update_yaxes(title_text="depth of the needle", type="category", autorange="reversed")
    fig.update_layout(meta={"choice": "one"}, height=400)
    return fig


def _cell(cell: Row) -> str:
    margin = "no number" if cell["margin"] is None else f"{cell['margin']:+.2f} nats"
    return f"{cell['share']:.0%} of {cell['trials']} right [{cell['low']:.0%}, {cell['high']:.0%}], margin {margin}"


def attention(data: Row) -> Any:
    """Share of attention by distance, a row for each layer and head; one length at a time, the longest first."""
    fig = _empty("Share of attention by distance")
    looks = data["attention"][::-1]
    most = max(share for one in looks for head in one["heads"] for share in head["distance"])
    for one in looks:
        heads, edges = one["heads"], one["heads"][0]["edges"]
        columns = [str(a) if e - a == 1 else f"{a}-{e - 1}" for a, e in itertools.pairwise(edges)]
        said = [[f"mean distance {h['mean']:.1f}, looks at {math.exp(h['entropy']):.1f} keys, first token {h['sink']:.1%}"] * len(columns) for h in heads]
        label = f"{one['length']} tokens"
        fig.add_heatmap(
            z=[head["distance"] for head in heads], x=columns, y=[f"{head['layer']}, {head['head']}" for head in heads], text=said, zmin=0, zmax=most,
            colorscale="Viridis", visible=not fig.data, colorbar={"title": {"text": "share"}, "thickness": 12}, meta={"label": label, "kind": "map"},
            name=label, hovertemplate="layer, head: %{y}<br>%{x} tokens back: %{z:.1%}<br>%{text}<extra></extra>",
        )  # fmt: skip
    fig.update_xaxes(title_text="tokens back", type="category")
    fig.update_yaxes(title_text="layer, head", type="category", autorange="reversed")
    fig.update_layout(height=min(TALLEST, 160 + 20 * max(8, *(len(one["heads"]) for one in looks))), meta={"choice": "one"})
    return fig


def heads(data: Row) -> Any:
    """Entropy, first token's share and mean distance by layer and head; one of these and one length at a time."""
    fig = _empty("Every head")
    for one in data["attention"][::-1]:
        layers, across = sorted({h["layer"] for h in one["heads"]}), sorted({h["head"] for h in one["heads"]})
        held = {(h["layer"], h["head"]): h for h in one["heads"]}
        for key, word in (("entropy", "entropy, nats"), ("sink", "share of the first token"), ("mean", "mean distance, tokens")):
            label = f"{word}, {one['length']} tokens"
            fig.add_heatmap(
                z=[[held[layer, head][key] if (layer, head) in held else None for head in across] for layer in layers], x=across, y=layers, name=label,
                colorscale="Viridis", visible=not fig.data, colorbar={"thickness": 12}, meta={"label": label, "kind": "map"}, zmin=0,
                zmax=1 if key == "sink" else None, hovertemplate="layer %{y}, head %{x}: %{z:.3g}<extra></extra>",
            )  # fmt: skip
    fig.update_xaxes(title_text="head", dtick=1)
    fig.update_yaxes(title_text="layer", autorange="reversed", dtick=1 if len(fig.data[0].y) <= 16 else 4)
    fig.update_layout(height=min(TALLEST, 220 + 18 * len(fig.data[0].y)), meta={"choice": "one"})
    return fig


def pairs(data: Row) -> Any:
    """Turns of each pair over the trained and the longest length; those that meet new angles apart."""
    fig = _empty("Turns of each rotary pair")
    for number, one in enumerate(data["pairs"]):
        kind = "" if one["kind"] == "all" else f", {one['kind']}"
        colour = COLOURS[number % len(COLOURS)]
        groups: Sequence[tuple[str, str, list[Row], str, str]] = (
            (f"trained, {one['trained']} tokens{kind}", "turns", one["pairs"], GREY, "lines"),
            (f"at {one['target']} tokens{kind}", "target_turns", [p for p in one["pairs"] if not p["unseen"]], colour, "markers"),
            (f"at {one['target']} tokens, angles never seen{kind}", "target_turns", [p for p in one["pairs"] if p["unseen"]], RED, "markers"),
        )
        for label, key, some, shade, mode in groups:
            rows = [row for row in some if row[key] > 0]
            if rows:
                fig.add_scatter(
                    x=[row["pair"] for row in rows], y=[row[key] for row in rows], name=html.escape(label), mode=mode, line={"color": shade, "width": 2},
                    marker={"color": shade, "size": 7}, meta={"label": label, "kind": "pairs"}, hovertemplate="pair %{x}: %{y:.3g} turns<extra></extra>",
                )  # fmt: skip
    fig.add_hline(1, line_dash="dot", line_color=GREY)
    fig.update_xaxes(title_text="pair")
    fig.update_yaxes(title_text="turns (log scale)", type="log", exponentformat="power", dtick=1)
    return fig


def _line(fig: Any, label: str, x: list[float], rows: list[Row], colour: str, where: str, dash: str = "solid") -> None:
    """A line, with its interval as a band where there is one."""
    about = {"legendgroup": label, "meta": {"label": label, "kind": "line"}}
    if rows and all(row[side] is not None for row in rows for side in ("low", "high")):
        red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
        high, low = [row["high"] for row in rows], [row["low"] for row in rows]
        fig.add_scatter(
            x=[*x, *x[::-1]], y=[*high, *low[::-1]], fill="toself", fillcolor=f"rgba({red},{green},{blue},0.15)", line={"width": 0}, mode="lines",
            showlegend=False, hoverinfo="skip", **about,
        )  # fmt: skip
    fig.add_scatter(
        x=x, y=[row["loss"] for row in rows], name=label, mode="lines+markers", line={"color": colour, "width": 2, "dash": dash}, marker={"size": 5},
        hovertemplate=f"{where}: %{{y:.3f}} nats<extra></extra>", **about,
    )  # fmt: skip


def _mark(fig: Any, at: int | None, words: str, colour: str, height: float, end: int) -> None:
    """A line at a place in the text, unless it is past what was read."""
    if at is None or at > end:
        return
    fig.add_shape(type="line", x0=at, x1=at, y0=0, y1=1, yref="paper", line={"dash": "dot", "color": colour, "width": 2})
    side = "left" if at < 0.6 * end else "right"
    fig.add_annotation(x=at, y=height, yref="paper", xanchor=side, yanchor="bottom", text=f"{words}, {at}", showarrow=False, font={"color": colour})


def _empty(title: str) -> Any:
    from plotly import graph_objects as go

    fig = go.Figure()
    fig.update_layout(
        template="plotly_white", height=440, margin={"l": 60, "r": 20, "t": 60, "b": 60},
        title={"text": html.escape(title), "x": 0, "xanchor": "left", "font": {"size": 15}}, font={"family": "system-ui, sans-serif"},
    )  # fmt: skip
    return fig
