"""The picture of an encoding: `portrait.Portrait` drawn as a page, a PNG or an SVG."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.measure.results import write

if TYPE_CHECKING:
    from milepost.encodings.catalogue import Page
    from milepost.portrait import Panel, Portrait

COLOURS = ("#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")
CONFIG = {"responsive": True, "displaylogo": False}
"""How plotly figures behave in a page."""
FORMATS = (".html", ".png", ".svg")


def figure(panels: Sequence[Panel]) -> Any:
    """Panels in one plotly figure, two in a row."""
    from plotly import graph_objects as go
    from plotly.subplots import make_subplots

    rows, across = math.ceil(len(panels) / 2), min(2, len(panels))
    fig = make_subplots(rows, across, subplot_titles=[p.title for p in panels], horizontal_spacing=0.2, vertical_spacing=0.25 / rows)
    for at, panel in enumerate(panels):
        row, column = at // 2 + 1, at % 2 + 1
        plot = fig.get_subplot(row, column)
        right, top = plot.xaxis.domain[1], plot.yaxis.domain
        legend = "legend" if at == 0 else f"legend{at + 1}"
        for trace in _traces(go, panel, right, top, legend):
            fig.add_trace(trace, row, column)
        box = {"x": right + 0.01, "y": top[1], "xanchor": "left", "yanchor": "top", "bgcolor": "rgba(0,0,0,0)", "font": {"size": 11}}
        fig.update_layout({legend: box})
        fig.update_xaxes(title_text=panel.x_title, row=row, col=column)
        fig.update_yaxes(title_text=panel.y_title, type="log" if panel.log_y else "linear", dtick=1 if panel.log_y else None, row=row, col=column)
        if panel.kind == "heat":
            fig.update_yaxes(autorange="reversed", row=row, col=column)
        if panel.mark is not None:
            fig.add_vline(panel.mark, line_dash="dot", line_color="#888", row=row, col=column)
    margin = {"l": 70, "r": 110, "t": 50, "b": 50}
    fig.update_layout(template="plotly_white", height=360 * rows + 40, margin=margin, font={"family": "system-ui, sans-serif", "size": 13})
    return fig


def _traces(go: Any, panel: Panel, right: float, top: tuple[float, float], legend: str) -> list[Any]:
    if panel.kind == "heat":
        values = [v for row in panel.z or [] for v in row if v is not None]
        low, high = min(values, default=0.0), max(values, default=0.0)
        limit = max(abs(low), abs(high)) or 1.0
        bar = {"len": top[1] - top[0], "y": sum(top) / 2, "x": right + 0.005, "thickness": 10, "outlinewidth": 0}
        scale = {"colorscale": "RdBu", "zmin": -limit, "zmax": limit} if low < 0 < high else {"colorscale": "Viridis"}
        return [go.Heatmap(z=panel.z, x=panel.x, y=panel.y, colorbar=bar, **scale)]
    lines = (panel.lines or {}).items()
    return [
        go.Scatter(x=panel.x, y=values, name=name, mode="lines", line={"color": COLOURS[n % len(COLOURS)], "width": 2}, legend=legend, showlegend=True)
        for n, (name, values) in enumerate(lines)
    ]


def page(pictures: Sequence[tuple[Portrait, Page | None]]) -> str:
    """One self-contained HTML page: title, formula, reference and figure of each encoding."""
    parts = []
    for picture, about in pictures:
        parts.append(f"<section><h2>{html.escape(about.title if about else picture.encoding)}</h2><p><code>{html.escape(picture.encoding)}</code></p>")
        if about:
            parts.append(f"<pre>{html.escape(about.formula)}</pre><p class=ref>{html.escape(about.reference)}</p>")
        drawn = [figure([panel]).to_html(include_plotlyjs=False, full_html=False, config=CONFIG) for panel in picture.panels]
        parts.append(f'<div class="panels">{"".join(f"<div>{one}</div>" for one in drawn)}</div></section>')
    title = pictures[0][0].encoding if len(pictures) == 1 else "Positional encodings"
    return document(title, "\n".join(parts))


def document(title: str, body: str) -> str:
    """A self-contained page around a body of HTML."""
    from plotly.offline import get_plotlyjs

    return _PAGE.replace("{title}", html.escape(title)).replace("{plotly}", get_plotlyjs()).replace("{body}", body)


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · milepost</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 0 auto; padding: 1rem; color: #1c1c1c; background: #fff }
pre { background: #f4f4f5; padding: .8rem 1rem; overflow-x: auto; border-radius: 6px }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 420px), 1fr)); gap: 1rem } .panels > div { min-width: 0 }
.ref { color: #555 } h2 { margin-top: 2.5rem }
</style><script>{plotly}</script></head><body>
{body}
</body></html>
"""


def save(pictures: Sequence[tuple[Portrait, Page | None]], out: str | Path) -> Path:
    """Write ``out`` as its ending says: .html (self-contained), or .png or .svg (one encoding; needs kaleido and a Chrome or Chromium)."""
    out = Path(out)
    if out.suffix not in FORMATS:
        raise ValueError(f"{out.name}: the ending says what to draw, and must be one of {', '.join(FORMATS)}")
    if out.suffix == ".html":
        return write(out, page(pictures))
    if len(pictures) != 1:
        raise ValueError(f"{out.suffix} holds one encoding, {len(pictures)} were asked for; use .html for several")
    return write(out, image(figure(pictures[0][0].panels), out.suffix[1:]))


def image(fig: Any, kind: str) -> bytes:
    """A plotly figure as "png" or "svg"."""
    try:
        drawn: bytes = fig.to_image(format=kind, width=1100)
    except Exception as error:  # kaleido, choreographer and Chrome each fail in their own way
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        needs = "it needs a Chrome or Chromium and `pip install 'milepost[explore]'`; .html needs neither"
        raise ValueError(f"can't draw .{kind} ({first}): {needs}") from None
    return drawn
