"""Seeds: the runs of one name as one run, for figures of many. From results.json alone.

A merged run has the mean over seeds, with the lowest and the highest end of all their intervals: it says no more than
every seed does. What heads look at is the first seed's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from milepost.lab.report.runs import Results, Run, by_name, mean_of, plain, texts

LINES = 24
"""The most lines that a figure shows; of more, seeds are merged, and strategies are left to their own section."""
Row = dict[str, Any]


def as_shown(results: Results) -> Results:
    """The results themselves, or of many runs one for each name."""
    return results if len(texts(results)) <= LINES else merged(results)


def drawn(results: Results) -> tuple[Results, list[Run]]:
    """The results as figures show them, and their runs on text that are lines: few enough to be told apart."""
    shown = as_shown(results)
    lines = texts(shown)
    return shown, lines if len(lines) <= LINES else plain(shown)


def merged(results: Results) -> Results:
    """The same results with one run for each name, and one comparison for each of theirs."""
    seed = min((run["seed"] for run in results["runs"]), default=0)
    runs = [{**merged_run(several), "seed": seed} for several in by_name(texts(results)).values()]
    others = [run for run in results["runs"] if not run.get("loss_by_length")]
    comparisons: dict[tuple[Any, ...], list[Row]] = {}
    for row in results["comparisons"]:
        what = (*(row.get(key) for key in ("encoding", "strategy", "from", "length")), bool(row.get("fixed")))
        comparisons.setdefault(what, []).append(row)
    pairs = [{**_mean(rows, "difference"), "seed": seed} for rows in comparisons.values()]
    return {**results, "runs": [*runs, *others], "comparisons": pairs}


def merged_run(runs: list[Run]) -> Run:
    """Runs that differ in their seed alone as one."""
    fields = {
        field: [_mean(rows, "loss") for rows in zip(*(run[field] for run in runs), strict=True)]
        for field in ("loss_by_length", "loss_by_position", "disjoint", "fixed")
        if all(run.get(field) for run in runs) and len({len(run[field]) for run in runs}) == 1
    }
    return {**runs[0], **fields}


def _mean(rows: Sequence[Row], field: str) -> Row:
    """Rows of several seeds as one."""
    lows, highs = ([row[side] for row in rows if row.get(side) is not None] for side in ("low", "high"))
    known = len(lows) == len(highs) == len(rows)
    around = {"low": min(lows), "high": max(highs)} if known else {"low": None, "high": None}
    return {**rows[0], field: mean_of(row[field] for row in rows), **around}
