"""What a report asks of the runs of a signal lab. From results.json alone."""

from __future__ import annotations

from typing import Any

from milepost.report.lab_read import check_parts, has, has_rows
from milepost.report.lab_runs import Results, Run

KINDS = ("video", "eeg")


def check(found: Any, file: str) -> Results:
    """The same results, if a report on signals can be drawn from them."""
    protocol = check_parts(found, file)
    has(protocol, {"plan": dict, "signals": dict}, file, "provenance.protocol.")
    has(protocol["plan"], {"shape": dict, "seeds": list, "steps": int, "rows": int, "tested": int}, file, "plan.")
    has(protocol["signals"], {"kind": str, "axes": list, "sides": list, "sha256": str}, file, "signals.")
    for number, run in enumerate(found["runs"]):
        has(run, {"encoding": str, "strategy": str, "seed": int}, file, f"runs[{number}].")
        has_rows(run, "by_axis", ("axis", "right", "turned", "learned", "change"), file, f"runs[{number}].")
    return dict(found)


def measured(results: Results) -> list[Run]:
    """Runs that were finished."""
    return [run for run in results["runs"] if run.get("by_axis")]


def axes(results: Results) -> list[str]:
    """The names of the axes."""
    return list(results["provenance"]["protocol"]["signals"]["axes"])
