"""Figures of a lab run, as plotly objects. From results.json alone.

Each trace carries ``meta``: a label that a page's buttons switch on and off, and its kind. A figure whose ``layout.meta`` says
"one" shows one label at a time.
"""

from __future__ import annotations

import html
import itertools
import math
from typing import Any

from milepost.report.lab_draw import GREY, empty, line
from milepost.report.lab_published import TABLE, TRAINED
from milepost.report.lab_runs import Results, Run, base, by_name, cost, gains, helped, lengths, mean_loss, name, plain, texts, trained
from milepost.report.lab_style import COLOURS, look

NATS = "loss, nats a token"


def by_length(results: Results) -> Any:
    """Loss against length: a line for each run and seed, with bands."""
    targets = results["provenance"]["protocol"]["targets"]
    fig = empty(f"Loss of the same last {targets} tokens")
    for run in texts(results):
        rows = [row for row in run["loss_by_length"] if row["loss"] is not None]
        line(fig, results, run, [row["length"] for row in rows], rows, "%{x} tokens of context")
    _mark_trained(fig, results, log=True)
    _lengths_axis(fig, results, "tokens of context (log scale)")
    fig.update_yaxes(title_text=NATS)
    return fig


def by_position(results: Results) -> Any:
    """Loss against place in a long text."""
    fig = empty("Loss at each place of a long text")
    for run in texts(results):
        rows = [row for row in run.get("loss_by_position", []) if row["loss"] is not None]
        line(fig, results, run, [(row["start"] + row["end"]) / 2 for row in rows], rows, "around token %{x}", mode="lines")
    _mark_trained(fig, results)
    fig.update_xaxes(title_text="place in the text, tokens")
    fig.update_yaxes(title_text=NATS)
    return fig


def strategies(results: Results) -> Any:
    """Nats gained by each strategy with paired intervals, and the cost to a short text, in rows; seeds singly."""
    fig = empty("Nats gained against no strategy")
    groups = by_name(helped(results))
    far = [n for n in lengths(results) if n > trained(results)]
    series = [f"short text ({base(results)}), set for {lengths(results)[-1]}", *[f"at {n}" for n in far]]
    for number, label in enumerate(series):
        x, y, down, up, said = [], [], [], [], []
        for row, (title, runs) in enumerate(groups.items()):
            for at, run in enumerate(runs):
                one = _paid(run, results) if number == 0 else gains(run, results).get(far[number - 1])
                if one is None:
                    continue
                x.append(one["gain"])
                y.append(row + 0.7 * ((number + (at + 0.5) / len(runs)) / len(series) - 0.5))
                down.append(0.0 if one["low"] is None else one["gain"] - one["low"])
                up.append(0.0 if one["high"] is None else one["high"] - one["gain"])
                said.append(f"{html.escape(title)}, seed {run['seed']}")
        error = {"type": "data", "symmetric": False, "arrayminus": down, "array": up, "thickness": 1.5, "width": 3}
        fig.add_scatter(
            x=x, y=y, error_x=error, mode="markers", name=label, legendgroup=label, text=said, hovertemplate="%{text}<br>%{x:+.3f} nats<extra></extra>",
            marker={"color": COLOURS[(3, 0, 2, 4, 1)[number % 5]], "symbol": "x" if number == 0 else "circle", "size": 8},
            meta={"label": label, "kind": "length"},
        )  # fmt: skip
    fig.add_vline(0, line_dash="dot", line_color=GREY)
    fig.update_xaxes(title_text="nats a token gained (left of 0: lost)", exponentformat="power")
    names = [html.escape(label) for label in groups]
    fig.update_yaxes(title_text="strategy", tickvals=list(range(len(names))), ticktext=names, range=[len(names) - 0.5, -0.5], automargin=True)
    fig.update_layout(height=180 + 80 * len(names))
    return fig


def _paid(run: Run, results: Results) -> dict[str, Any] | None:
    """The cost of a strategy as a gain below zero."""
    found = cost(run, results)
    if found is None:
        return None
    low, high = found["low"], found["high"]
    return {"gain": -found["cost"], "low": None if high is None else -high, "high": None if low is None else -low}


def attention(results: Results) -> Any:
    """Heat maps, one at a time: a row for each layer and head, a column for each distance."""
    fig = empty("Share of attention by distance")
    found = [(run, one) for run in results["runs"] for one in run.get("attention") or []]
    seeds = len({run["seed"] for run, _ in found}) > 1
    longest = max(one["length"] for _, one in found)
    found.sort(key=lambda pair: pair[1]["length"] != longest)  # the longest first
    most = max(share for _, one in found for head in one["heads"] for share in head["distance"])
    for run, one in found:
        heads, edges = one["heads"], one["heads"][0]["edges"]
        columns = [str(a) if e - a == 1 else f"{a}-{e - 1}" for a, e in itertools.pairwise(edges)]
        rows = [f"{head['layer']}, {head['head']}" for head in heads]
        label = f"{name(run)}, {one['length']} tokens" + (f", seed {run['seed']}" if seeds else "")
        said = [[f"mean distance {h['mean']:.1f}, looks at {math.exp(h['entropy']):.1f} keys, first token {h['sink']:.1%}"] * len(columns) for h in heads]
        fig.add_heatmap(
            z=[head["distance"] for head in heads], x=columns, y=rows, text=said, zmin=0, zmax=most, colorscale="Viridis", visible=not fig.data,
            colorbar={"title": {"text": "share"}, "thickness": 12}, meta={"label": label, "kind": "encoding"}, name=html.escape(label),
            hovertemplate="layer, head: %{y}<br>%{x} tokens back: %{z:.1%}<br>%{text}<extra></extra>",
        )  # fmt: skip
        if trained(results) in edges and not fig.layout.shapes:
            place = edges.index(trained(results)) - 0.5
            fig.add_shape(type="line", x0=place, x1=place, y0=0, y1=1, yref="paper", line={"dash": "dot", "color": "#fff", "width": 2})
    fig.update_xaxes(title_text="tokens back", type="category")
    fig.update_yaxes(title_text="layer, head", type="category", autorange="reversed")
    rows_shown = max(len(one["heads"]) for _, one in found)
    fig.update_layout(height=160 + 20 * max(rows_shown, 8), meta={"choice": "one"})
    return fig


def tasks(results: Results) -> list[Any]:
    """A figure for each task: loss of the answers against length, with chance."""
    found = sorted({task for run in results["runs"] for task in run.get("tasks") or {}})
    return [_task(results, task) for task in found]


def _task(results: Results, task: str) -> Any:
    fig = empty(f"{task}: loss of the answers")
    runs = [run for run in results["runs"] if task in (run.get("tasks") or {})]
    for run in runs:
        rows = [row for row in run["tasks"][task] if row["loss"] is not None]
        line(fig, results, run, [row["length"] for row in rows], rows, "%{x} tokens")
    chance = {row["length"]: row["chance"] for run in runs for row in run["tasks"][task]}
    x = sorted(chance)
    fig.add_scatter(
        x=x, y=[chance[n] for n in x], name="chance", legendgroup="chance", mode="lines", line={"dash": "dot", "color": GREY, "width": 2},
        meta={"label": "chance", "kind": "encoding"}, hovertemplate="chance: %{y:.3f} nats<extra></extra>",
    )  # fmt: skip
    _mark_trained(fig, results, log=True)
    _lengths_axis(fig, results, "tokens (log scale)")
    fig.update_yaxes(title_text="loss, nats an answer", rangemode="tozero")
    fig.update_layout(height=360)
    return fig


def published(results: Results) -> Any:
    """The published pattern beside ours: perplexity over perplexity at the trained length, by times that length."""
    fig = empty("Perplexity / perplexity at 1x")
    for number, (encoding, column) in enumerate(TABLE.items()):
        mine = by_name(run for run in plain(results) if run["encoding"] == encoding)
        colour = look(next(iter(mine.values()))[0], results).colour if mine else COLOURS[-1 - number]
        x, y = [n / TRAINED for n in column], [value / column[TRAINED] for value in column.values()]
        _ratio(fig, f"{encoding}, published", x, y, {"color": colour, "dash": "dot", "width": 2})
        for label, runs in mine.items():
            first = mean_loss(runs, base(results), "disjoint")
            losses = {n: mean_loss(runs, n, "disjoint") for n in lengths(results)}
            if first is not None:
                known = {n / trained(results): math.exp(min(loss - first, 50)) for n, loss in losses.items() if loss is not None}
                line = {"color": look(runs[0], results).colour, "dash": "solid", "width": 2}
                _ratio(fig, f"{label}, ours", list(known), list(known.values()), line)
    fig.update_xaxes(type="log", title_text="times the trained length (log scale)", tickvals=[1, 2, 4, 8, 16], ticktext=["1", "2", "4", "8", "16"])
    fig.update_yaxes(type="log", title_text="perplexity ratio (log scale)", dtick="D2")
    return fig


def _ratio(fig: Any, label: str, x: list[float], y: list[float], line: dict[str, Any]) -> None:
    shown = html.escape(label)
    hover = f"{shown}<br>%{{x:.3g}}x: %{{y:.2f}} times<extra></extra>"
    meta = {"label": label, "kind": "published" if line["dash"] == "dot" else "ours"}
    fig.add_scatter(x=x, y=y, name=shown, legendgroup=label, mode="lines+markers", line=line, meta=meta, hovertemplate=hover)


# -- what figures share -------------------------------------------------------------------------------------------------------


def _mark_trained(fig: Any, results: Results, *, log: bool = False) -> None:
    """A line at the trained length. (On a log axis plotly places lines by the number, and words by its logarithm.)"""
    at = trained(results)
    fig.add_shape(type="line", x0=at, x1=at, y0=0, y1=1, yref="paper", line={"dash": "dot", "color": GREY})
    place = math.log10(at) if log else at
    fig.add_annotation(x=place, y=1, yref="paper", xanchor="left", yanchor="bottom", text=f"trained length, {at}", showarrow=False)


def _lengths_axis(fig: Any, results: Results, title: str) -> None:
    known = lengths(results)
    fig.update_xaxes(type="log", title_text=title, tickvals=known, ticktext=[str(n) for n in known])
