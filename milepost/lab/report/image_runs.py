"""What a report asks of the runs of an image lab: sizes, and means over seeds. From results.json alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from milepost.lab.report.read import check_parts, has, has_rows
from milepost.lab.report.runs import Results, Run, mean_of

Size = tuple[int, int]


def check(results: Any, file: str) -> Results:
    """The same results, if a report on images can be drawn from them."""
    protocol = check_parts(results, file)
    has(protocol, {"plan": dict, "images": dict}, file, "provenance.protocol.")
    has(
        protocol["plan"],
        {"shape": dict, "size": list, "sizes": list, "seeds": list, "steps": int, "rows": int, "patch": int},
        file,
        "plan.",
    )
    has(
        protocol["images"],
        {"source": str, "sha256": str, "classes": list, "train_images": int, "test_images": int},
        file,
        "images.",
    )
    for number, run in enumerate(results["runs"]):
        has(run, {"encoding": str, "strategy": str, "seed": int}, file, f"runs[{number}].")
        has_rows(run, "accuracy_by_size", ("size", "grid", "accuracy"), file, f"runs[{number}].")
        if "similarity" in run:
            has(run["similarity"], {"grid": list, "patches": list, "maps": list}, file, f"runs[{number}].similarity.")
    return dict(results)


def sizes(results: Results) -> list[Size]:
    """The sizes that were tested, growing."""
    return sorted((h, w) for h, w in results["provenance"]["protocol"]["plan"]["sizes"])


def trained(results: Results) -> Size:
    """The size that models were trained at."""
    height, width = results["provenance"]["protocol"]["plan"]["size"]
    return height, width


def by(size: Sequence[int]) -> str:
    """``16 x 24``: height by width."""
    return f"{size[0]} x {size[1]}"


def measured(results: Results) -> list[Run]:
    """Runs that were finished."""
    return [run for run in results["runs"] if run.get("accuracy_by_size")]


def plain(results: Results) -> list[Run]:
    """Those with nothing done to them at test time."""
    return [run for run in measured(results) if run["strategy"] == "none"]


def row_at(run: Run, size: Size) -> dict[str, Any] | None:
    """A run's row at a size."""
    return next((row for row in run["accuracy_by_size"] if tuple(row["size"]) == size), None)


def mean(runs: list[Run], size: Size, field: str = "accuracy") -> float | None:
    """The mean over seeds at a size; None where a table ends, or nothing was measured."""
    rows = [row_at(run, size) for run in runs]
    return mean_of(row.get(field) for row in rows if row is not None)


def ends(runs: list[Run], size: Size) -> bool:
    """Whether a table ends before the last patch of this size."""
    return any(row is not None and row.get("note") == "table ends" for row in (row_at(run, size) for run in runs))
