"""Figures of a lab run. From results.json alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from milepost.draw.figure import GREY, Figure, Mark, Numbers, Sides, Style
from milepost.draw.svg.colours import COLOURS, DASHES, MARKS
from milepost.lab.report.evidence.published import TABLE, TRAINED
from milepost.lab.report.runs import (
    Results,
    Run,
    base,
    by_name,
    cost,
    gains,
    helped,
    lengths,
    mean_loss,
    name,
    named_once,
    plain,
    texts,
    trained,
    whose,
)  # fmt: skip
from milepost.lab.report.seeds import as_shown, drawn, merged
from milepost.measure.report import heads_by_distance

NATS = "loss, nats a token"
BANDS, ROWS = 8, 12
"""The most lines of places that have bands, and the most strategies that one figure has."""
Row = dict[str, Any]


def curves(
    figure: Figure, results: Results, runs: Iterable[Run], rows_of: Callable[[Run], list[Row]], x_of: Callable[[Row],
    float], field: str = "loss",
) -> Figure:  # fmt: skip
    """The ``field`` of every run's rows as a line of the figure, with the interval of each where all of its rows have
    one.
    """
    runs = list(runs)
    lines: dict[str, Numbers] = {}
    xs: dict[str, Numbers] = {}
    sides: dict[str, Sides] = {}
    styles = {}
    for run, line in zip(runs, named_once(runs), strict=True):
        rows = [row for row in rows_of(run) if row[field] is not None]
        if rows:
            lines[line], xs[line], styles[line] = (
                [row[field] for row in rows],
                [x_of(row) for row in rows],
                style(run, results),
            )
            if all(row.get(side) is not None for row in rows for side in ("low", "high")):
                sides[line] = [(row["low"], row["high"]) for row in rows]
    shared = max(xs.values(), key=len, default=figure.x)
    own = {line: x for line, x in xs.items() if x != shared}
    return replace(figure, x=figure.x or shared, lines=lines, xs=xs if figure.x else own, sides=sides, styles=styles)


def by_length(results: Results) -> Figure:
    """Loss against length: a line for each run and seed with its band, as far as these can be told apart."""
    title = f"Loss of the same last {results['provenance']['protocol']['targets']} tokens"
    figure = _against_length(results, title, "tokens of context (log scale)", NATS)
    shown, runs = drawn(results)
    return curves(figure, shown, runs, lambda run: run["loss_by_length"], lambda row: row["length"])


def by_position(results: Results) -> Figure:
    """Loss against place in a long text."""
    figure = Figure(
        "lines", "Loss at each place of a long text", "place in the text, tokens", NATS, marks=(trained_mark(results),)
    )
    rows_of: Callable[[Run], list[Row]] = lambda run: run.get("loss_by_position", [])  # noqa: E731
    shown, runs = drawn(results)
    made = curves(figure, shown, runs, rows_of, lambda row: (row["start"] + row["end"]) / 2)
    sides = made.sides if len(made.labels()) <= BANDS else None
    return replace(
        made, sides=sides, styles={line: replace(look, mark="") for line, look in (made.styles or {}).items()}
    )


def strategies(results: Results) -> list[Figure]:
    """Nats gained by each strategy with paired intervals, and the cost to a short text, in rows: one figure, with seeds
    singly, or where that has many rows one for each model, with seeds merged.
    """
    if len(by_name(helped(results))) <= ROWS:
        return [_strategies(results, helped(results))]
    shown = merged(results)
    models = list(dict.fromkeys(whose(run) for run in helped(shown)))
    return [_strategies(shown, [run for run in helped(shown) if whose(run) == model], model) for model in models]


def _strategies(results: Results, runs: list[Run], model: str = "") -> Figure:
    groups, far = by_name(runs), [n for n in lengths(results) if n > trained(results)]
    paid = f"short text ({base(results)}), set for {lengths(results)[-1]}"
    seeds = sorted({run["seed"] for runs in groups.values() for run in runs})
    lines: dict[str, Numbers] = {}
    sides: dict[str, Sides] = {}
    styles = {}
    for number, label in enumerate([paid, *[f"at {n}" for n in far]]):
        for seed in seeds:
            line = f"{label}, seed {seed}" if len(seeds) > 1 else label
            gained = [
                None
                if run is None
                else _paid(run, results)
                if number == 0
                else gains(run, results).get(far[number - 1])
                for run in (next((run for run in runs if run["seed"] == seed), None) for runs in groups.values())
            ]
            lines[line] = [None if gain is None else gain["gain"] for gain in gained]
            sides[line] = [(None, None) if gain is None else (gain["low"], gain["high"]) for gain in gained]
            styles[line] = Style(label, "length", (3, 0, 2, 4, 1)[number % 5], mark="" if number else "cross")
    about: dict[str, Any] = {"lines": lines, "sides": sides, "styles": styles, "marks": (Mark("x", 0.0, ""),)}
    title, axis = "Nats gained against no strategy", "nats a token gained (left of 0: lost)"
    names = tuple(name.removeprefix(f"{model}, ") if model else name for name in groups)
    return Figure("points", f"{model}: nats gained" if model else title, axis, "strategy", y_names=names, **about)


def _paid(run: Run, results: Results) -> Row | None:
    """The cost of a strategy as a gain below zero."""
    paid = cost(run, results)
    if paid is None:
        return None
    low, high = paid["low"], paid["high"]
    return {"gain": -paid["cost"], "low": None if high is None else -high, "high": None if low is None else -low}


def attention(results: Results) -> list[Figure]:
    """Heat maps, one at a time: a row for each layer and head, a column for each distance.

    A figure for each length, the longest first.
    """
    watched = [(run, looks) for run in as_shown(results)["runs"] for looks in run.get("attention") or []]
    seeds = len({run["seed"] for run, _ in watched}) > 1
    most = max(share for _, looks in watched for head in looks["heads"] for share in head["distance"])
    figures = []
    for length in sorted({looks["length"] for _, looks in watched}, reverse=True):
        maps = {
            f"{name(run)}, {length} tokens" + (f", seed {run['seed']}" if seeds else ""): looks["heads"]
            for run, looks in watched if looks["length"] == length
        }  # fmt: skip
        figures.append(heads_by_distance(maps, most, trained(results)))
    return figures


def tasks(results: Results) -> list[Figure]:
    """A figure for each task: loss of the answers against length, with chance."""
    return [
        _task(results, task) for task in sorted({task for run in results["runs"] for task in run.get("tasks") or {}})
    ]


def _task(results: Results, task: str) -> Figure:
    runs = [run for run in results["runs"] if task in (run.get("tasks") or {})]
    figure = _against_length(results, f"{task}: loss of the answers", "tokens (log scale)", "loss, nats an answer")
    made = curves(replace(figure, low=0.0), results, runs, lambda run: run["tasks"][task], lambda row: row["length"])
    chance = dict(sorted({row["length"]: row["chance"] for run in runs for row in run["tasks"][task]}.items()))
    lines, xs = {**made.named, "chance": list(chance.values())}, {**(made.xs or {}), "chance": list(chance)}
    return replace(
        made, lines=lines, xs=xs, styles={**(made.styles or {}), "chance": Style("chance", "encoding", GREY, dash=2)}
    )


def published(results: Results) -> Figure:
    """The published pattern beside ours: perplexity over perplexity at the trained length, by times that length."""
    lines: dict[str, Numbers] = {}
    xs: dict[str, Numbers] = {}
    styles = {}
    for number, (encoding, column) in enumerate(TABLE.items()):
        mine = by_name(run for run in plain(results) if run["encoding"] == encoding)
        colour = style(next(iter(mine.values()))[0], results).colour if mine else len(COLOURS) - 1 - number
        theirs = f"{encoding}, published"
        xs[theirs], lines[theirs] = (
            [n / TRAINED for n in column],
            [value / column[TRAINED] for value in column.values()],
        )
        styles[theirs] = Style(theirs, "published", colour, dash=2)
        for label, runs in mine.items():
            first = mean_loss(runs, base(results), "disjoint")
            losses = {n: mean_loss(runs, n, "disjoint") for n in lengths(results)}
            if first is not None:
                ours = f"{label}, ours"
                known = {
                    n / trained(results): math.exp(min(loss - first, 50))
                    for n, loss in losses.items()
                    if loss is not None
                }
                xs[ours], lines[ours], styles[ours] = (
                    list(known),
                    list(known.values()),
                    replace(style(runs[0], results), label=ours, group="ours"),
                )
    titles = ("Perplexity / perplexity at 1x", "times the trained length (log scale)", "perplexity ratio (log scale)")
    about: dict[str, Any] = {
        "lines": lines,
        "xs": xs,
        "styles": styles,
        "x_ticks": (1, 2, 4, 8, 16),
        "log_x": True,
        "log_y": True,
    }
    return Figure("lines", *titles, **about)


def trained_mark(results: Results) -> Mark:
    """A line at the trained length."""
    return Mark("x", trained(results), f"trained length, {trained(results)}")


def _against_length(results: Results, title: str, x_title: str, y_title: str) -> Figure:
    ticks = tuple(map(float, lengths(results)))
    return Figure("lines", title, x_title, y_title, x_ticks=ticks, marks=(trained_mark(results),), log_x=True)


def mean_by_length(results: Results) -> Figure:
    """Loss of the same tokens against the length of the text, mean over seeds: for a notebook."""
    figure = _against_length(results, by_length(results).title, "tokens that are read", "nats a token")
    lines = {label: [mean_loss(runs, n) for n in lengths(results)] for label, runs in by_name(texts(results)).items()}
    return replace(figure, x=lengths(results), lines=lines)


# -- how runs look
# ------------------------------------------------------------------------------------------------------------


def style(run: Run, results: Results) -> Style:
    """Strategies share their model's colour and differ in their dash; marks help where colours are close, and are
    hollow for the tuned.
    """
    models = list(dict.fromkeys(whose(other) for other in results["runs"]))
    used = list(dict.fromkeys(_strategy(other) for other in results["runs"] if other["strategy"] != "none"))
    number, plain = models.index(whose(run)), run["strategy"] == "none"
    mark = MARKS[(number + number // len(COLOURS)) % len(MARKS)]
    dash = 0 if plain else 1 + used.index(_strategy(run)) % (len(DASHES) - 1)
    group = "encoding" if plain else "strategy"
    return Style(name(run), group, number % len(COLOURS), dash, mark, hollow=bool(run.get("tuned_steps")))


def _strategy(run: Run) -> str:
    return str(run["strategy"]).removesuffix(" tuned")
