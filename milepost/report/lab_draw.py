"""What the figures of lab reports share: an empty figure, and a run's line with its band."""

from __future__ import annotations

import html
from typing import Any

from milepost.report.lab_runs import Results, Run, name
from milepost.report.lab_style import look

GREY = "#888"


def empty(title: str) -> Any:
    """A figure with a title and nothing in it."""
    from plotly import graph_objects as go

    fig = go.Figure()
    fig.update_layout(
        template="plotly_white", height=460, margin={"l": 60, "r": 20, "t": 60, "b": 60}, legend={"orientation": "h", "y": -0.2},
        title={"text": html.escape(title), "x": 0, "xanchor": "left", "font": {"size": 15}}, font={"family": "system-ui, sans-serif"},
    )  # fmt: skip
    return fig


def line(
    fig: Any, results: Results, run: Run, x: list[float], rows: list[dict[str, Any]], where: str, mode: str = "lines+markers", *,
    field: str = "loss", said: str = "%{y:.3f} nats",
) -> None:  # fmt: skip
    """The ``field`` of each row, with its interval as a band where there is one."""
    if not rows:
        return
    how, label = look(run, results), name(run)
    about = {"legendgroup": label, "meta": {"label": label, "kind": "encoding" if run["strategy"] == "none" else "strategy"}}
    sides = [[row.get(side) for row in rows] for side in ("low", "high")]
    if all(value is not None for side in sides for value in side):
        low, high = sides
        fig.add_scatter(
            x=[*x, *x[::-1]], y=[*high, *low[::-1]], fill="toself", fillcolor=how.shade, line={"width": 0}, mode="lines", showlegend=False,
            hoverinfo="skip", **about,
        )  # fmt: skip
    first = all(trace.legendgroup != label or not trace.showlegend for trace in fig.data)
    fig.add_scatter(
        x=x, y=[row[field] for row in rows], name=html.escape(label), mode=mode, showlegend=first,
        line={"color": how.colour, "dash": how.dash, "width": 2}, marker={"symbol": how.mark, "size": 7},
        hovertemplate=f"{html.escape(label)}, seed {run['seed']}<br>{where}: {said}<extra></extra>", **about,
    )  # fmt: skip
