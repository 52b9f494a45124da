"""Figures of a recommendation, as plotly objects."""

from __future__ import annotations

import html
import math
from typing import Any

from milepost.report.lab_style import COLOURS, DASHES

Row = dict[str, Any]
GREY = "#888"


def by_length(data: Row) -> Any:
    """Loss of the same targets against what was read before them. What no config can say is dashed; the answer is thick."""
    fig = _figure("Loss of the same last tokens")
    for number, row in enumerate(data["rows"]):
        shown = [one for one in row["loss_by_length"] if one["loss"] is not None]
        line = {"color": COLOURS[number % len(COLOURS)], "dash": "solid" if row["config"] else DASHES[0], "width": 4 if row["method"] == data["top"] else 2}
        fig.add_scatter(
            x=[one["length"] for one in shown], y=[one["loss"] for one in shown], name=html.escape(row["method"]), mode="lines+markers",
            line=line, meta=_meta(row),
        )  # fmt: skip
    at = math.log10(data["trained_length"])  # a log axis wants its annotations so, and its shapes not
    fig.add_shape(type="line", x0=data["trained_length"], x1=data["trained_length"], y0=0, y1=1, yref="paper", line={"dash": "dot", "color": GREY})
    fig.add_annotation(x=at, y=1, yref="paper", text="trained", showarrow=False, xanchor="left", yanchor="bottom", font={"color": GREY})
    ticks = [one["length"] for one in data["rows"][0]["loss_by_length"]]
    fig.update_xaxes(title_text="tokens read (log scale)", type="log", tickvals=ticks, ticktext=[str(n) for n in ticks])
    fig.update_yaxes(title_text="loss, nats a token")
    return fig


def gains(data: Row) -> Any:
    """Long gain against short cost, a point for each method; open where no config can say it."""
    fig = _figure("What is gained, and what it costs")
    for number, row in enumerate(data["rows"]):
        gain, cost, top = row["gain"], row["cost"], row["method"] == data["top"]
        if gain["value"] is None or cost["value"] is None:
            continue
        sides = (("error_x", gain), ("error_y", cost))
        bars = {axis: _spread([(one["value"], one["low"], one["high"])]) for axis, one in sides if one["low"] is not None}
        marker = {"color": COLOURS[number % len(COLOURS)], "size": 14 if top else 9, "symbol": "circle" if row["config"] else "circle-open"}
        fig.add_scatter(
            x=[gain["value"]], y=[cost["value"]], mode="markers+text", text=[html.escape(row["method"])], textposition="top center", marker=marker,
            name=html.escape(row["method"]), showlegend=False, meta=_meta(row), **bars,
        )  # fmt: skip
    fig.update_xaxes(title_text=f"nats gained at {data['target_length']} tokens")
    fig.update_yaxes(title_text=f"nats paid at {data['trained_length']} tokens")
    return fig


def _meta(row: Row) -> dict[str, str]:
    """What the page's buttons switch on and off."""
    return {"label": row["method"], "kind": "in a config" if row["config"] else "in no config"}


def _spread(rows: list[tuple[float, float, float]]) -> dict[str, Any]:
    """Bars from low to high."""
    above, below = [high - value for value, _, high in rows], [value - low for value, low, _ in rows]
    return {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "thickness": 1}


def _figure(title: str) -> Any:
    import plotly.graph_objects as go

    return go.Figure(
        layout={"title": {"text": title}, "height": 420, "margin": {"l": 60, "r": 20, "t": 50, "b": 50}, "legend": {"orientation": "h", "y": -0.2}}
    )
