"""Figures of a migration, as plotly objects, from migration.json alone. Each trace carries ``meta`` with a label, which the page's buttons switch."""

from __future__ import annotations

from typing import Any

from milepost.report import told

COLOURS = {"before": "#d97706", "swapped": "#dc2626", "recovered": "#2563eb"}
NAMES = {"before": "before", "swapped": "after the swap", "recovered": "after recovery"}


def by_position(data: dict[str, Any]) -> Any:
    """Loss at each stretch of positions, at every stage, with the old end."""
    fig = told.figure("Loss by position")
    for stage, label in NAMES.items():
        rows = [row for row in data["by_position"] if row.get(stage) is not None and row[stage]["value"] is not None]
        if not rows:
            continue
        x = [(row["start"] + row["end"]) / 2 for row in rows]
        meta = {"label": label, "kind": "stage"}
        if all(row[stage]["low"] is not None for row in rows):
            around = [row[stage]["low"] for row in rows] + [row[stage]["high"] for row in reversed(rows)]
            fig.add_scatter(
                x=x + x[::-1], y=around, fill="toself", mode="lines", line={"width": 0, "color": COLOURS[stage]}, opacity=0.25, hoverinfo="skip", meta=meta
            )
        fig.add_scatter(
            x=x, y=[row[stage]["value"] for row in rows], name=label, mode="lines+markers", line={"color": COLOURS[stage], "width": 2}, meta=meta,
            hovertemplate="around token %{x}<br>%{y:.4f} nats<extra>" + label + "</extra>",
        )  # fmt: skip
    fig.add_vline(x=data["old"], line={"color": "#888", "dash": "dash"}, annotation_text="old end" if data["ended"] else "trained length")
    fig.update_xaxes(title_text="place in the text, tokens", range=[0, data["by_position"][-1]["end"]])
    fig.update_yaxes(title_text="loss, nats a token")
    return fig
