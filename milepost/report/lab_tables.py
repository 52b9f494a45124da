"""What a lab run says, as tables of text. From results.json alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Run = dict[str, Any]

PUBLISHED = {
    "sinusoidal": {1: 20.05, 2: 43.54, 5: 132.41, 17: 305.65},
    "rope": {1: 20.07, 2: 21.37, 5: 31.58, 17: 54.98},
    "t5": {1: 19.65, 2: 18.79, 5: 20.41, 17: 43.08},
    "alibi": {1: 19.73, 2: 18.73, 5: 18.41, 17: 18.34},
}
"""Press et al., "Train Short, Test Long", 2022, table 2: perplexity of 247 M parameters trained at 512, by times the trained length."""


def texts(results: dict[str, Any]) -> list[Run]:
    """Runs on text that were finished."""
    return [run for run in results["runs"] if run.get("loss_by_length")]


def name(run: Run) -> str:
    """A run's name: its encoding, and what was done to it at test time."""
    return str(run["encoding"]) if run["strategy"] == "none" else f"{run['encoding']}, {run['strategy']}"


def lengths(results: dict[str, Any]) -> list[int]:
    """The lengths that were tested."""
    return list(results["provenance"]["protocol"]["plan"]["lengths"])


def by_name(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs that differ in their seed alone, together."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(name(run), []).append(run)
    return found


def mean_loss(runs: list[Run], length: int, field: str = "loss_by_length") -> float | None:
    """The mean over seeds at a length; None where a table ends."""
    found = [row["loss"] for run in runs for row in run.get(field, []) if row["length"] == length]
    return None if not found or any(v is None for v in found) else sum(found) / len(found)


def length_table(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Loss at each length, and how much more than at the shortest."""
    columns = lengths(results)
    trained = results["provenance"]["protocol"]["plan"]["shape"]["length"]
    head = ["encoding", *[f"{n} ({n / trained:g}x)" for n in columns]]
    rows = []
    for label, runs in by_name(texts(results)).items():
        first = mean_loss(runs, columns[0])
        cells = []
        for n in columns:
            value = mean_loss(runs, n)
            cells.append("table ends" if value is None else f"{value:.3f}" + ("" if n == columns[0] or not first else f" ({value / first - 1:+.1%})"))
        rows.append([label, *cells])
    return head, rows


def strategy_table(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Each strategy's gain at each length beyond the trained one, and what it costs a short text when set for the longest."""
    columns, plan = lengths(results), results["provenance"]["protocol"]["plan"]
    trained, longest = plan["shape"]["length"], max(columns)
    far = [n for n in columns if n > trained]
    head = ["strategy", f"cost at {columns[0]}, set for {longest}", *[f"gain at {n}" for n in far]]
    rows = []
    for label, runs in by_name(run for run in texts(results) if run["strategy"] != "none").items():
        encoding, strategy = runs[0]["encoding"], runs[0]["strategy"]
        plain = [run for run in texts(results) if run["encoding"] == encoding and run["strategy"] == "none"]
        before, fixed = mean_loss(plain, columns[0]), mean_loss(runs, columns[0], "fixed" if runs[0].get("fixed") else "loss_by_length")
        cost = "" if before is None or fixed is None else f"{fixed - before:+.3f}"
        cells = []
        for n in far:
            pairs = [c for c in results["comparisons"] if c["encoding"] == encoding and c["strategy"] == strategy and c["length"] == n]
            if pairs:
                low, high = (_mean_of(c[side] for c in pairs) for side in ("low", "high"))
                middle = _mean_of(c["difference"] for c in pairs) or 0.0
                cells.append(f"{-middle:+.3f}" + ("" if low is None or high is None else f" [{-high:+.3f}, {-low:+.3f}]"))
            else:
                after, without = mean_loss(runs, n), mean_loss(plain, n)
                cells.append("" if after is None or without is None else f"{without - after:+.3f}")
        rows.append([label, cost, *cells])
    return head, rows


def _mean_of(values: Iterable[float | None]) -> float | None:
    found = list(values)
    return None if not found or any(v is None for v in found) else sum(v for v in found if v is not None) / len(found)


def task_table(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Loss of each task at each length beside chance, and the share of right answers."""
    columns = lengths(results)
    rows = []
    for run in results["runs"]:
        for task, found in (run.get("tasks") or {}).items():
            chance = found[0]["chance"]
            cells = ["table ends" if row["loss"] is None else f"{row['loss']:.2f} ({row['accuracy']:.0%})" for row in found]
            rows.append([task, run["encoding"], str(run["seed"]), f"{chance:.2f}", *cells])
    return ["task", "encoding", "seed", "chance", *map(str, columns)], sorted(rows)


def cost_table(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Parameters, speed and memory of each training."""
    rows = []
    plain = [run for run in texts(results) if run["strategy"] == "none"]
    base = {run["seed"]: run["train_tokens_per_s"] for run in plain if run["encoding"] == "nope"}
    for run in plain:
        ratio = f"{run['train_tokens_per_s'] / base[run['seed']]:.2f}" if run["seed"] in base else ""
        rows.append([run["encoding"], str(run["seed"]), f"{run['parameters']:,}", f"{run['train_tokens_per_s']:,.0f}", ratio, f"{run['peak_mb']:.0f}"])
    return ["encoding", "seed", "parameters", "tokens a second", "of nope's", "peak MB"], rows


def published_table(results: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """ALiBi's table 2 beside ours: perplexity over perplexity at the trained length, windows that do not overlap."""
    trained = results["provenance"]["protocol"]["plan"]["shape"]["length"]
    times = (1, 2, 5, 17)
    ours = sorted({n / trained for n in lengths(results)})
    head = ["encoding", *[f"published {t}x" for t in times], *[f"ours {t:g}x" for t in ours]]
    rows = []
    for encoding, row in PUBLISHED.items():
        runs = [run for run in texts(results) if run["encoding"] == encoding and run["strategy"] == "none" and run.get("disjoint")]
        cells = []
        first = mean_loss(runs, trained, "disjoint") if runs else None
        for t in ours:
            value = mean_loss(runs, int(t * trained), "disjoint") if runs else None
            cells.append("" if value is None or first is None else f"{2.718281828459045 ** (value - first):.2f}")
        rows.append([encoding, *[f"{row[t] / row[1]:.2f}" for t in times], *cells])
    return head, rows


def answer(results: dict[str, Any]) -> str:
    """The answer in two sentences."""
    columns = lengths(results)
    trained, longest = results["provenance"]["protocol"]["plan"]["shape"]["length"], max(columns)
    change = {}
    for label, runs in by_name(run for run in texts(results) if run["strategy"] == "none").items():
        first, last = mean_loss(runs, columns[0]), mean_loss(runs, longest)
        if first and last:
            change[label] = last / first - 1
    if not change:
        return "No trial has been finished yet."
    ordered = sorted(change, key=lambda label: change[label])
    best, worst = ordered[0], ordered[-1]
    times = f"{longest / trained:g} times the trained {trained} tokens"
    said = f"At {times}, {best} loses {change[best]:+.1%} against a short text, and {worst} {change[worst]:+.1%}."
    strategies = [run for run in texts(results) if run["strategy"] != "none"]
    if strategies:
        groups = by_name(strategies)
        best_name = min(groups, key=lambda label: mean_loss(groups[label], longest) or 99.0)
        encoding = groups[best_name][0]["encoding"]
        before = mean_loss([run for run in texts(results) if run["encoding"] == encoding and run["strategy"] == "none"], longest)
        after = mean_loss(groups[best_name], longest)
        if before is not None and after is not None:
            strategy = groups[best_name][0]["strategy"]
            said += f" Of what can be done to {encoding} without training, {strategy} is best there: a loss of {after:.3f} instead of {before:.3f}."
    return said


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table to paste."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])
