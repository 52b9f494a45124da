"""Figures of an image lab, as plotly objects. From results.json alone."""

from __future__ import annotations

import html
from typing import Any

from milepost.report.image_runs import by, measured, plain, sizes, trained
from milepost.report.lab_draw import GREY, empty, line
from milepost.report.lab_runs import Results, Run, name

VIEWS = ("the encoding alone", "attention of the trained model")


def by_size(results: Results) -> Any:
    """Accuracy against size: a line for each run and seed, with bands."""
    fig = empty("Share of test images told right")
    short = min(range(2), key=lambda axis: trained(results)[axis])
    for run in measured(results):
        rows = [row for row in run["accuracy_by_size"] if row["accuracy"] is not None]
        line(fig, results, run, [row["size"][short] for row in rows], rows, "%{x} pixels", field="accuracy", said="%{y:.1%}")
    at = trained(results)[short]
    fig.add_shape(type="line", x0=at, x1=at, y0=0, y1=1, yref="paper", line={"dash": "dot", "color": GREY})
    fig.add_annotation(x=at, y=1, yref="paper", xanchor="left", yanchor="bottom", text=f"trained size, {by(trained(results))}", showarrow=False)
    known = sizes(results)
    square = all(height == width for height, width in known)
    fig.update_xaxes(
        title_text="height and width, pixels" if square else "height x width, pixels", tickvals=[size[short] for size in known],
        ticktext=[str(size[0]) if square else by(size) for size in known],
    )  # fmt: skip
    fig.update_yaxes(title_text="accuracy", tickformat=".0%")
    return fig


def maps(results: Results) -> list[Any]:
    """A map for each encoding (of the first seed): what the chosen patch is to every other. The page's lists choose the patch and the view."""
    found: dict[str, Run] = {}
    for run in plain(results):
        if run.get("similarity") and run["encoding"] not in found:
            found[run["encoding"]] = run
    return [_map(run) for run in found.values()]


def _map(run: Run) -> Any:
    held = run["similarity"]
    rows, columns = held["grid"]
    drawn = [_frames(run, one, rows, columns) for one in held["maps"]]
    shown = [drawn[0], drawn[-1]]
    middle = min(range(len(held["patches"])), key=lambda n: (held["patches"][n][0] - rows // 2) ** 2 + (held["patches"][n][1] - columns // 2) ** 2)
    fig = empty("")
    about = {"meta": {"label": name(run), "kind": "encoding"}}
    fig.add_heatmap(
        z=shown[0]["z"][middle], zmin=shown[0]["low"], zmax=shown[0]["high"], colorscale=shown[0]["colours"], colorbar={"thickness": 12}, name="",
        hovertemplate="row %{y}, column %{x}: %{z:.3g}<extra></extra>", **about,
    )  # fmt: skip
    row, column = held["patches"][middle]
    mark = {"symbol": "square-open", "size": 16, "color": "#d97706", "line": {"width": 3}}
    fig.add_scatter(x=[column], y=[row], mode="markers", marker=mark, name="", hoverinfo="skip", **about)
    fig.update_xaxes(title_text="column", constrain="domain", dtick=max(1, columns // 8))
    fig.update_yaxes(title_text="row", autorange="reversed", scaleanchor="x", constrain="domain", dtick=max(1, rows // 8))
    meta = {"choice": "patch", "patches": held["patches"], "first": middle, "views": list(VIEWS), "maps": shown}
    fig.update_layout(height=380, title_text=shown[0]["title"], meta=meta, margin={"l": 50, "r": 10, "t": 60, "b": 50})
    return fig


def _frames(run: Run, one: dict[str, Any], rows: int, columns: int) -> dict[str, Any]:
    """A map as the page takes it: an image for each patch, with one scale of colours for all of them."""
    z = [[values[r * columns : (r + 1) * columns] for r in range(rows)] for values in one["values"]]
    low, high = (pick(value for values in one["values"] for value in values) for pick in (min, max))
    both, most = low < 0 < high, max(abs(low), abs(high))
    ends = (-most, most) if both else (low, high if high > low else low + 1)
    title = f"{html.escape(name(run))}<br><sup>{html.escape(one['what'])}</sup>"
    return {"title": title, "z": z, "low": ends[0], "high": ends[1], "colours": "RdBu" if both else "Viridis"}
