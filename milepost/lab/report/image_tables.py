"""What an image lab says, as tables of words. From results.json alone."""

from __future__ import annotations

from typing import Any

from milepost.draw import Cells
from milepost.lab.report.image_runs import Size, by, ends, mean, measured, plain, row_at, sizes, trained
from milepost.lab.report.runs import Results, by_name, name, whose
from milepost.lab.report.tables import NONE, made


def size_table(results: Results) -> Cells:
    """Accuracy at each size, mean over seeds, and how much that is from the trained one."""
    rows = []
    for label, runs in by_name(measured(results)).items():
        cells = []
        for size in sizes(results):
            value, change = mean(runs, size), mean(runs, size, "change")
            moved = "" if change is None or size == trained(results) else f" ({change * 100:+.1f})"
            cells.append("table ends" if ends(runs, size) else NONE if value is None else f"{value:.1%}{moved}")
        rows.append([label, *cells])
    return ["encoding", *[_head(results, size) for size in sizes(results)]], rows


def seed_table(results: Results) -> Cells:
    """The same, each seed alone with its interval."""
    rows = []
    for run in measured(results):
        cells = [row_at(run, size) for size in sizes(results)]
        rows.append([name(run), str(run["seed"]), *[NONE if row is None else _with_interval(row) for row in cells]])
    return ["encoding", "seed", *[_head(results, size) for size in sizes(results)]], rows


def loss_table(results: Results) -> Cells:
    """Loss at each size, nats an image, mean over seeds."""
    rows = []
    for label, runs in by_name(measured(results)).items():
        values = [(mean(runs, size, "loss"), ends(runs, size)) for size in sizes(results)]
        rows.append(
            [label, *["table ends" if ended else NONE if value is None else f"{value:.3f}" for value, ended in values]]
        )
    return ["encoding", *[_head(results, size) for size in sizes(results)]], rows


def comparison_table(results: Results, against: str) -> Cells:
    """Paired differences of accuracy against one encoding, in points, each seed with its interval."""
    by_run: dict[tuple[str, int], dict[Size, dict[str, Any]]] = {}
    for comparison in results["comparisons"]:
        if comparison["against"] == f"{against}, none" and comparison["strategy"] == "none":
            by_run.setdefault((comparison["encoding"], comparison["seed"]), {})[
                comparison["size"][0], comparison["size"][1]
            ] = comparison
    rows = [
        [label, str(seed), *[_points(cells.get(size)) for size in sizes(results)]]
        for (label, seed), cells in by_run.items()
    ]
    return ["encoding", "seed", *[_head(results, size) for size in sizes(results)]], rows


def cost_table(results: Results) -> Cells:
    """Parameters, speed and memory of each training."""
    base = {run["seed"]: run.get("train_tokens_per_s") for run in plain(results) if run["encoding"] == "nope"}
    rows = []
    for run in plain(results):
        speed, of = run.get("train_tokens_per_s"), base.get(run["seed"])
        numbers = [f"{value:,.0f}" if value is not None else NONE for value in (run.get("parameters"), speed)]
        rows.append(
            [
                whose(run),
                str(run["seed"]),
                *numbers,
                f"{speed / of:.2f}" if speed and of else NONE,
                f"{run.get('peak_mb') or 0:,.0f}",
            ]
        )
    return ["encoding", "seed", "parameters", "patches a second", "of nope's", "peak memory, MB"], rows


def provenance_table(about: dict[str, Any]) -> Cells:
    """What was done, with what, on what."""
    plan, images = about["protocol"]["plan"], about["protocol"]["images"]
    shape = {key: value for key, value in plan["shape"].items() if key != "sides"}
    many = (
        f"{images['train_images']:,} images to train, {images['test_images']:,} to test, {len(images['classes'])} "
        "classes"
    )
    rows = [
        ["images", f"{images['source']}: {many}; sha256 {images['sha256'][:16]}"],
        ["model", f"grid {by(plan['shape']['sides'])}, " + ", ".join(f"{key} {value}" for key, value in shape.items())],
        ["steps", f"{plan['steps']} of {plan['rows']} images; seeds {', '.join(map(str, plan['seeds']))}"],
        [
            "order",
            "every encoding sees the same views in the same order, and starts from the same weights outside the "
            "encoding",
        ],
        *made(about),
    ]
    return ["", ""], rows


def _head(results: Results, size: Size) -> str:
    return f"{by(size)} ({size[0] / trained(results)[0]:g}x)"


def _with_interval(row: dict[str, Any]) -> str:
    if row["accuracy"] is None:
        return str(row.get("note", "table ends"))
    return f"{row['accuracy']:.1%} [{row['low']:.1%}, {row['high']:.1%}]"


def _points(comparison: dict[str, Any] | None) -> str:
    if comparison is None:
        return NONE
    low, high = comparison.get("low"), comparison.get("high")
    return f"{comparison['difference'] * 100:+.1f}" + (
        "" if low is None or high is None else f" [{low * 100:+.1f}, {high * 100:+.1f}]"
    )
