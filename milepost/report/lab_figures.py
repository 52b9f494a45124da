"""Figures of a lab run, as plotly objects. From results.json alone."""

from __future__ import annotations

import itertools
import math
from typing import Any

from milepost.report.lab_tables import by_name, lengths, name, texts
from milepost.report.portrait import COLOURS

Results = dict[str, Any]


def by_length(results: Results) -> Any:
    """Loss against length, a line for each run, with bands; a click on a name hides it."""
    from plotly import graph_objects as go

    fig = go.Figure()
    for n, (label, runs) in enumerate(by_name(texts(results)).items()):
        colour = COLOURS[n % len(COLOURS)]
        dash = "solid" if runs[0]["strategy"] == "none" else "dash"
        for run in runs:
            rows = [row for row in run["loss_by_length"] if row["loss"] is not None]
            _band(fig, [row["length"] for row in rows], rows, label, colour, dash, run is runs[0], f"seed {run['seed']}")
    _trained(fig, results, log=True)
    fig.update_xaxes(type="log", title_text="tokens of context", tickvals=lengths(results), ticktext=[str(n) for n in lengths(results)])
    fig.update_yaxes(title_text="nats a token")
    return _finished(fig)


def by_position(results: Results) -> Any:
    """Loss against place in a long text, for models as they were trained and for each strategy."""
    from plotly import graph_objects as go

    fig = go.Figure()
    for n, (label, runs) in enumerate(by_name(run for run in texts(results) if run["loss_by_position"]).items()):
        dash = "solid" if runs[0]["strategy"] == "none" else "dash"
        for run in runs:
            rows = run["loss_by_position"]
            _band(fig, [(row["start"] + row["end"]) / 2 for row in rows], rows, label, COLOURS[n % len(COLOURS)], dash, run is runs[0], f"seed {run['seed']}")
    _trained(fig, results)
    fig.update_xaxes(title_text="position")
    fig.update_yaxes(title_text="nats a token")
    return _finished(fig)


def _band(fig: Any, x: list[float], rows: list[dict[str, Any]], label: str, colour: str, dash: str, first: bool, seed: str) -> None:
    """A line, with its interval as a band where there is one. One click on its name in the legend toggles all of them."""
    from plotly import graph_objects as go

    y = [row["loss"] for row in rows]
    low, high = ([row[side] for row in rows] for side in ("low", "high"))
    if rows and all(v is not None for v in (*low, *high)):
        shade = f"rgba({int(colour[1:3], 16)},{int(colour[3:5], 16)},{int(colour[5:7], 16)},0.12)"
        edge = {"x": [*x, *x[::-1]], "y": [*high, *low[::-1]], "fill": "toself", "fillcolor": shade, "line": {"width": 0}}
        fig.add_trace(go.Scatter(**edge, mode="lines", legendgroup=label, showlegend=False, hoverinfo="skip"))
    line = {"color": colour, "width": 2, "dash": dash}
    fig.add_trace(go.Scatter(x=x, y=y, name=label, legendgroup=label, showlegend=first, mode="lines+markers", line=line, hovertext=seed))


def _trained(fig: Any, results: Results, *, log: bool = False) -> None:
    """A line at the trained length. (On a log axis plotly places lines by the number, and words by its logarithm.)"""
    trained = results["provenance"]["protocol"]["plan"]["shape"]["length"]
    fig.add_shape(type="line", x0=trained, x1=trained, y0=0, y1=1, yref="paper", line={"dash": "dot", "color": "#888"})
    place = math.log10(trained) if log else trained
    fig.add_annotation(x=place, y=1, yref="paper", yanchor="bottom", text="trained length", showarrow=False)


def strategies(results: Results) -> Any:
    """Loss of each strategy at each length, in groups of bars."""
    from plotly import graph_objects as go

    chosen = {run["encoding"] for run in texts(results) if run["strategy"] != "none"}
    fig = go.Figure()
    for n, (label, runs) in enumerate(by_name(run for run in texts(results) if run["encoding"] in chosen).items()):
        rows = [row for row in runs[0]["loss_by_length"] if row["loss"] is not None]
        fig.add_trace(go.Bar(x=[str(row["length"]) for row in rows], y=[row["loss"] for row in rows], name=label, marker_color=COLOURS[n % len(COLOURS)]))
    fig.update_xaxes(title_text="tokens of context", type="category")
    fig.update_yaxes(title_text="nats a token")
    return _finished(fig)


def attention(results: Results) -> Any:
    """Heat maps: a row for each layer and head, a column for each distance."""
    from plotly import graph_objects as go

    runs = [run for run in results["runs"] if run.get("attention")]
    first: dict[str, dict[str, Any]] = {}
    for run in runs:
        first.setdefault(name(run), run)
    fig = go.Figure()
    labels = list(first)
    for n, label in enumerate(labels):
        heads = first[label]["attention"][-1]["heads"]
        edges = heads[0]["edges"]
        x = [str(a) if e - a == 1 else f"{a}-{e - 1}" for a, e in itertools.pairwise(edges)]
        y = [f"layer {h['layer']}, head {h['head']}" for h in heads]
        said = [[f"mean distance {h['mean']:.1f}, looks at {2.718281828 ** h['entropy']:.1f} keys, sink {h['sink']:.1%}"] * len(x) for h in heads]
        bar = {"title": "share", "thickness": 12}
        fig.add_trace(go.Heatmap(z=[h["distance"] for h in heads], x=x, y=y, text=said, colorscale="Viridis", zmin=0, visible=n == 0, colorbar=bar, name=label))
    buttons = [{"label": label, "method": "update", "args": [{"visible": [m == n for m in range(len(labels))]}]} for n, label in enumerate(labels)]
    fig.update_layout(updatemenus=[{"buttons": buttons, "x": 0, "xanchor": "left", "y": 1.15, "yanchor": "bottom"}])
    fig.update_xaxes(title_text="tokens back", type="category")
    return _finished(fig)


def tasks(results: Results) -> Any:
    """Loss of each task against length, with chance as a dotted line."""
    from plotly import graph_objects as go

    fig = go.Figure()
    found = [(task, run, rows) for run in results["runs"] for task, rows in (run.get("tasks") or {}).items()]
    names = sorted({run["encoding"] for _, run, _ in found})
    for task, run, rows in found:
        known = [row for row in rows if row["loss"] is not None]
        colour = COLOURS[names.index(run["encoding"]) % len(COLOURS)]
        x, y = [row["length"] for row in known], [row["loss"] / row["chance"] for row in known]
        fig.add_trace(go.Scatter(x=x, y=y, name=f"{task}: {run['encoding']}", mode="lines+markers", line={"color": colour}))
    fig.add_hline(1.0, line_dash="dot", line_color="#888", annotation_text="chance")
    fig.update_xaxes(type="log", title_text="tokens", tickvals=lengths(results), ticktext=[str(n) for n in lengths(results)])
    fig.update_yaxes(title_text="loss / chance")
    return _finished(fig)


def _finished(fig: Any) -> Any:
    fig.update_layout(template="plotly_white", height=460, margin={"l": 60, "r": 20, "t": 60, "b": 60}, legend={"orientation": "h", "y": -0.2})
    return fig
