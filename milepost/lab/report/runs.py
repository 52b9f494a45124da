"""What a report asks of the runs of a lab: their names, and means over seeds. From results.json alone."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean, stdev
from typing import Any

Run = dict[str, Any]
Results = dict[str, Any]


def texts(results: Results) -> list[Run]:
    """Runs on text that were finished."""
    return [run for run in results["runs"] if run.get("loss_by_length")]


def plain(results: Results) -> list[Run]:
    """Runs on text with nothing done to them at test time."""
    return [run for run in texts(results) if run["strategy"] == "none"]


def helped(results: Results) -> list[Run]:
    """Runs on text with a strategy."""
    return [run for run in texts(results) if run["strategy"] != "none"]


def whose(run: Run) -> str:
    """The model: its encoding, and its folder where several hold that encoding."""
    return f"{run['encoding']} ({run['from']})" if run.get("from") else str(run["encoding"])


def name(run: Run) -> str:
    """A run's name: its model, and what was done to it at test time."""
    return whose(run) if run["strategy"] == "none" else f"{whose(run)}, {run['strategy']}"


def by_name(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs that differ in their seed alone, together."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(name(run), []).append(run)
    return groups


def named_once(runs: list[Run]) -> list[str]:
    """A name for each run that no other has: with its seed, where several seeds share a name."""
    groups = by_name(runs)
    return [name(run) if len(groups[name(run)]) == 1 else f"{name(run)}, seed {run['seed']}" for run in runs]


def without(run: Run, results: Results) -> list[Run]:
    """The same model with nothing done to it, every seed."""
    return [other for other in plain(results) if whose(other) == whose(run)]


def lengths(results: Results) -> list[int]:
    """The lengths that were tested, growing."""
    return sorted(results["provenance"]["protocol"]["plan"]["lengths"])


def trained(results: Results) -> int:
    """The trained length."""
    return int(results["provenance"]["protocol"]["plan"]["shape"]["length"])


def base(results: Results) -> int:
    """The length that others are set against: the trained one, or the shortest where that was not tested."""
    return trained(results) if trained(results) in lengths(results) else lengths(results)[0]


def row_at(run: Run, length: int, field: str = "loss_by_length") -> dict[str, Any] | None:
    """A run's row at a length."""
    return next((row for row in run.get(field, []) if row["length"] == length), None)


def mean_of(values: Iterable[float | None]) -> float | None:
    """The mean; None where a value is missing, or there are none."""
    numbers = list(values)
    known = [number for number in numbers if number is not None]
    return sum(known) / len(known) if known and len(known) == len(numbers) else None


def mean_loss(runs: list[Run], length: int, field: str = "loss_by_length") -> float | None:
    """The mean over seeds at a length; None where a table ends, or nothing was measured."""
    rows = [row_at(run, length, field) for run in runs]
    return mean_of(row["loss"] for row in rows if row is not None)


def ends(runs: list[Run], length: int) -> bool:
    """Whether a table ends before this length."""
    return any(row is not None and row["loss"] is None for row in (row_at(run, length) for run in runs))


def gains(run: Run, results: Results, *, fixed: bool = False) -> dict[int, dict[str, Any]]:
    """The paired comparisons of a strategy with none, by length: nats gained, low and high.

    ``fixed``: of the one setting that the longest length needs, where results hold that.
    """
    by_length = {}
    for comparison in results["comparisons"]:
        if (
            all(comparison.get(key) == run.get(key) for key in ("encoding", "strategy", "seed", "from"))
            and bool(comparison.get("fixed")) == fixed
        ):
            low, high = comparison.get("low"), comparison.get("high")
            known = low is not None and high is not None
            by_length[comparison["length"]] = {
                "gain": -comparison["difference"],
                "low": -high if known else None,
                "high": -low if known else None,
            }
    return by_length


def cost(run: Run, results: Results) -> dict[str, Any] | None:
    """What a short text pays for a strategy that is set for the longest: nats lost, with an interval where results
    hold one.
    """
    paired = gains(run, results, fixed=True).get(base(results))
    if paired is not None:
        low, high = paired["low"], paired["high"]
        return {"cost": -paired["gain"], "low": None if high is None else -high, "high": None if low is None else -low}
    before = mean_loss([other for other in without(run, results) if other["seed"] == run["seed"]], base(results))
    after = mean_loss([run], base(results), "fixed" if run.get("fixed") else "loss_by_length")
    return None if before is None or after is None else {"cost": after - before, "low": None, "high": None}


def lost(results: Results) -> list[tuple[Run, str]]:
    """Trials that failed or are missing, each with why."""
    trials = [(trial, str(trial.get("why", "failed"))) for trial in results["failed"]]
    trials += [(run, str(run["failed"])) for run in results["runs"] if run.get("failed")]
    return trials + [(trial, "not run yet") for trial in results["missing"]]


def mean_by_file(values: Iterable[tuple[int, float]]) -> dict[str, float] | None:
    """The mean over files of values (file, value), and where it lies with 95%; None of fewer than two files."""
    by_file: dict[int, list[float]] = {}
    for file, value in values:
        by_file.setdefault(file, []).append(value)
    means = [fmean(values) for values in by_file.values()]
    if len(means) < 2:
        return None
    middle, around = fmean(means), 1.96 * stdev(means) / len(means) ** 0.5
    return {"nats": middle, "low": middle - around, "high": middle + around}


def paired(first: list[Run], other: list[Run], length: int) -> dict[str, float] | None:
    """How many nats ``other`` loses more than ``first`` on the same tokens of the same seeds, with its interval."""
    by_seed = {run["seed"]: run for run in first if run.get("loss_by_window")}
    differences: list[tuple[int, float]] = []
    for run in other:
        best, mine = (one.get("loss_by_window", {}).get(str(length)) for one in (by_seed.get(run["seed"], {}), run))
        if best and mine:
            differences += [(file, b - a) for file, a, b in zip(run["window_files"], best, mine, strict=True)]
    return mean_by_file(differences)
