"""Ranks: who generalises to longer problems? The mean reciprocal rank over tasks, as arXiv:2305.19466 has it.

On each growing task encodings are ordered by exact match at twice the trained length, mean over seeds; equal ones share
the better rank. An encoding's number is the mean of 1 / rank over the tasks that all were measured on.
"""

from __future__ import annotations

from statistics import fmean

from milepost.draw import Cells
from milepost.lab.report.evidence.published import PUBLISHED
from milepost.lab.report.runs import Results, trained

GROWING = ("reverse", "sort", "sum", "parity", "addition", "chain")
TWICE = 2


def exact_by_task(results: Results) -> dict[str, dict[str, float]]:
    """Exact match of each encoding at twice the trained length, task by task."""
    length = TWICE * trained(results)
    values: dict[str, dict[str, list[float]]] = {}
    for run in results["runs"]:
        if run["strategy"] == "none":
            for task, rows in (run.get("tasks") or {}).items():
                for row in rows:
                    if task in GROWING and row["length"] == length and "exact" in row:
                        values.setdefault(task, {}).setdefault(run["encoding"], []).append(row["exact"] or 0.0)
    return {task: {name: fmean(shares) for name, shares in found.items()} for task, found in values.items()}


def reciprocal_ranks(by_task: dict[str, dict[str, float]]) -> dict[str, float]:
    """The mean of 1 / rank of each encoding that every task has; a table that ends has an exact match of 0."""
    if not by_task:
        return {}
    names = set.intersection(*[set(shares) for shares in by_task.values()])
    return {
        name: fmean(
            1 / (1 + sum(other > shares[name] for key, other in shares.items() if key in names))
            for shares in by_task.values()
        )
        for name in names
    }


def rank_table(results: Results) -> Cells:
    """Exact match of each encoding on each task, its mean reciprocal rank, and the published one."""
    by_task = exact_by_task(results)
    ranks, published = reciprocal_ranks(by_task), PUBLISHED["length_generalisation_on_tasks"]["rank"]
    rows = [
        [name, f"{rank:.2f}", f"{published[name]:.2f}" if name in published else "not measured"]
        + [f"{shares[name]:.0%}" for shares in by_task.values()]
        for name, rank in sorted(ranks.items(), key=lambda item: -item[1])
    ]
    return ["encoding", "mean reciprocal rank", "published", *by_task], rows
