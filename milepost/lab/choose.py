"""Choose: which encoding for which lengths, ranked by what was measured. Plain data in and out, no torch.

    text     loss at target / trained times the trained length, over the lowest loss that any encoding has at the trained length
    recall   where far recall matters: loss of the recall task there, over chance
    index    where absolute place matters: loss of the index task there, over chance

A choice's place is the mean of its places in what was asked for, equally weighed; who was not measured in something
comes after those who were. A task in which nobody beats chance says nothing, and is not counted. There is no opinion
in it: without measurements there is no ranking.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from milepost.encodings.catalogue import pages
from milepost.measure.results import Results

Run = dict[str, Any]
MEASURED = Path(__file__).parents[1] / "measured"
TASKS = {"recall": "far recall", "index": "absolute place"}


@dataclass(frozen=True)
class Wish:
    """What the model is for."""

    trained: int
    target: int
    modality: str = "text"
    far_recall: bool = False
    absolute: bool = False

    @property
    def times(self) -> float:
        """How many times the trained length the target is."""
        return self.target / self.trained


def shipped(name: str) -> dict[str, Any] | None:
    """Measurements that come with the package: "lab" or "bench"; None where there are none."""
    file = MEASURED / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None


def choose(wish: Wish, results: dict[str, Any], bench: dict[str, Any] | None = None, source: str = "") -> Results:
    """A ranked choice with its evidence and cost, what can't serve and why, and what to know before believing it."""
    if wish.trained < 1 or wish.target < 1:
        raise ValueError(f"lengths are at least 1, got trained {wish.trained} and target {wish.target}")
    plan = results["provenance"]["protocol"]["plan"]
    trained = plan["shape"]["length"]
    length, notes = _stands_for(wish.times, trained, plan["lengths"])
    base = trained if trained in plan["lengths"] else min(plan["lengths"])
    groups = _groups(results["runs"])
    short = [loss for runs in groups.values() if (loss := _loss(runs, base)) is not None]
    found = {name: _evidence(runs, length, base, min(short)) for name, runs in groups.items()} if short else {}
    usable = {name: one for name, one in found.items() if one["text"] is not None}
    if not usable:
        raise ValueError(f"{source or 'the results given'} hold no loss at {length} tokens, so nothing can be ranked")
    counted = ["text"]
    for task, wanted in (("recall", wish.far_recall), ("index", wish.absolute)):
        if wanted:
            said = _task_says(task, usable)
            notes += [said] if said else []
            counted += [] if said else [task]
    ranked = _ranked(usable, counted)
    if wish.modality != "text":
        notes.insert(
            0, f"{wish.modality}: not measured. What follows was measured on text; the order may be another there."
        )
    answer = {
        "wish": asdict(wish) | {"times": wish.times},
        "source": source,
        "measured": {"trained_length": trained, "length": length, "times": length / trained, **_size(results)},
        "ranked_by": counted,
        "ranked": [
            {
                "place": place, "name": name, "encoding": groups[name][0]["encoding"], "strategy": groups[name][0]["strategy"], **usable[name],
                "behind_first": _behind(groups[ranked[0]], groups[name], length), "cost": _cost(groups[name][0], bench, results, wish.target),
                "remarks": _remarks(groups[name][0]["encoding"], wish),
            }
            for place, name in enumerate(ranked, start=1)
        ],
        "not_ranked": _not_ranked(results, groups, usable, length),
        "notes": notes,
    }  # fmt: skip
    return Results("choice", answer)


# -- evidence -----------------------------------------------------------------------------------------------------------------


def _stands_for(times: float, trained: int, lengths: list[int]) -> tuple[int, list[str]]:
    """The measured length that answers for a ratio: that ratio, or the next longer one, or the longest."""
    known = sorted(lengths)
    length = next((n for n in known if n / trained >= max(times, 1.0) - 1e-9), known[-1])
    measured = length / trained
    if times > measured:
        return length, [
            f"{times:.3g} times the trained length was not measured. The longest is {measured:.3g} times: what holds there may fail beyond."
        ]
    if measured > max(times, 1.0) + 1e-9:
        return length, [
            f"{times:.3g} times the trained length was not measured; {measured:.3g} times stands in for it."
        ]
    return length, []


def _groups(runs: list[Run]) -> dict[str, list[Run]]:
    """Runs by choice: an encoding and a strategy, all seeds, on text and on tasks."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        if run.get("loss_by_length") or run.get("tasks"):
            name = f"{run['encoding']} ({run['from']})" if run.get("from") else run["encoding"]
            found.setdefault(name if run["strategy"] == "none" else f"{name}, {run['strategy']}", []).append(run)
    return found


def _evidence(runs: list[Run], length: int, base: int, best: float) -> dict[str, Any]:
    loss, before = _loss(runs, length), _loss(runs, base)
    text = None
    if loss is not None:
        seeds = len([run for run in runs if run.get("loss_by_length")])
        change = loss / before - 1 if before else None
        text = {
            "loss": loss,
            "at_trained": before,
            "change": change,
            "over_best_short": loss / best - 1,
            "seeds": seeds,
        }
    return {"text": text, "recall": _task(runs, "recall", length), "index": _task(runs, "index", length)}


def _loss(runs: list[Run], length: int) -> float | None:
    rows = [row["loss"] for run in runs for row in run.get("loss_by_length") or [] if row["length"] == length]
    return None if not rows or None in rows else fmean(rows)


def _task(runs: list[Run], task: str, length: int) -> dict[str, Any] | None:
    rows = [row for run in runs for row in (run.get("tasks") or {}).get(task, []) if row["length"] == length]
    if not rows or any(row["loss"] is None for row in rows):
        return None
    beats = fmean(row["loss"] if row.get("high") is None else row["high"] for row in rows) < rows[0]["chance"]
    over = fmean(row["loss"] / row["chance"] for row in rows)
    return {
        "over_chance": over,
        "accuracy": fmean(row["accuracy"] for row in rows),
        "beats_chance": beats,
        "seeds": len(rows),
    }


def _task_says(task: str, usable: dict[str, dict[str, Any]]) -> str:
    """Why a task can't be counted; "" where it can."""
    known = [one[task] for one in usable.values() if one[task] is not None]
    if not known:
        return f"{TASKS[task]}: not measured, so it is not counted. `milepost lab --tasks {task}` measures it."
    if not any(one["beats_chance"] for one in known):
        return f"{TASKS[task]}: in these runs nobody beats chance at it, so it is not counted."
    return ""


def _ranked(usable: dict[str, dict[str, Any]], counted: list[str]) -> list[str]:
    values: dict[str, Callable[[dict[str, Any]], float]] = {
        "text": lambda one: one["text"]["over_best_short"],
        "recall": lambda one: one["recall"]["over_chance"],
        "index": lambda one: one["index"]["over_chance"],
    }
    places: dict[str, list[int]] = {name: [] for name in usable}
    for what in counted:
        known = {name: values[what](one) for name, one in usable.items() if one[what] is not None}
        for name, value in known.items():
            places[name].append(1 + sum(other < value for other in known.values()))
    return sorted(
        usable, key=lambda name: (len(counted) - len(places[name]), fmean(places[name]), values["text"](usable[name]))
    )


def _behind(first: list[Run], other: list[Run], length: int) -> dict[str, float] | None:
    """How many nats the first is ahead on the same tokens: the mean over test files, and where it lies with 95%."""
    by_seed = {run["seed"]: run for run in first if run.get("loss_by_window")}
    by_file: dict[int, list[float]] = {}
    for run in other:
        best = by_seed.get(run["seed"])
        held = [(one or {}).get("loss_by_window", {}).get(str(length)) for one in (best, run)]
        if held[0] and held[1]:
            for file, a, b in zip(run["window_files"], *held, strict=True):
                by_file.setdefault(file, []).append(b - a)
    means = [fmean(values) for values in by_file.values()]
    if len(means) < 2:
        return None
    middle, around = fmean(means), 1.96 * stdev(means) / len(means) ** 0.5
    return {"nats": middle, "low": middle - around, "high": middle + around}


def _not_ranked(
    results: dict[str, Any], groups: dict[str, list[Run]], usable: dict[str, Any], length: int
) -> list[dict[str, str]]:
    found = []
    for name, runs in groups.items():
        if name not in usable:
            ended = any(
                row["length"] == length and row["loss"] is None
                for run in runs
                for row in run.get("loss_by_length") or []
            )
            found.append(
                {
                    "name": name,
                    "why": f"its table ends before {length} tokens" if ended else f"not measured at {length} tokens",
                }
            )
    for one in (*results["failed"], *results["missing"], *(run for run in results["runs"] if run.get("failed"))):
        why = one.get("why") or one.get("failed") or "not run yet"
        found.append({"name": f"{one['encoding']}, seed {one['seed']}, {one.get('data', 'text')}", "why": str(why)})
    return found


def _size(results: dict[str, Any]) -> dict[str, Any]:
    runs = [run for run in results["runs"] if run.get("loss_by_length")]
    sizes = [run["parameters"] for run in runs if run.get("parameters")]
    return {"parameters": max(sizes) if sizes else None, "seeds": len({run["seed"] for run in runs})}


# -- cost and remarks ---------------------------------------------------------------------------------------------------------


def _cost(run: Run, bench: dict[str, Any] | None, results: dict[str, Any], target: int) -> dict[str, Any]:
    """Time over that of attention with no position, for each pass, at the benchmark's length nearest to the target; None: not measured."""
    found: dict[str, Any] = dict.fromkeys(("forward", "training", "decode"))
    for kind in found:
        scheme = _scheme(run, kind)
        ours = ("milepost", "torch sdpa") if scheme == "nope" else ("milepost",)
        rows = [
            row for row in (bench or {}).get("rows", [])
            if row["scheme"] == scheme and row["pass"] == kind and row["implementation"] in ours and row["ratio"] is not None
        ]  # fmt: skip
        if rows:
            nearest = min(rows, key=lambda row: abs(row["length"] - target))
            found[kind] = {"ratio": nearest["ratio"], "length": nearest["length"]}
    found["lab_speed"] = _speed(run, results)
    return found


def _speed(run: Run, results: dict[str, Any]) -> float | None:
    """Training speed in the lab over that of no position, mean over seeds; trials ran side by side, so it is rough."""
    known = [
        one
        for one in results["runs"]
        if one["strategy"] == "none" and one.get("train_tokens_per_s") and one.get("loss_by_length")
    ]
    speeds = {(one["encoding"], one.get("run"), one["seed"]): one["train_tokens_per_s"] for one in known}
    mine = (run["encoding"], run.get("run"))
    ratios = [
        v / speeds["nope", mine[1], seed]
        for (*key, seed), v in speeds.items()
        if tuple(key) == mine and ("nope", mine[1], seed) in speeds
    ]
    return fmean(ratios) if ratios else None


def _scheme(run: Run, kind: str) -> str | None:
    """The benchmark's name for a choice; a scaling changes RoPE's table and not its arithmetic."""
    names, strategy = _names(run["encoding"]), run["strategy"].removesuffix(" tuned")
    if len(names) != 1 or strategy in ("self-extend", "rerope"):
        return None
    return "rope staged" if strategy == "dynamic" and kind == "decode" else names[0]


def _names(encoding: str) -> list[str]:
    """The names in a spec, without what stands in brackets: two of them in a sum."""
    bare, left = "", encoding
    while bare != left:
        bare, left = left, re.sub(r"\([^()]*\)", "", left)
    return re.findall(r"\w+", bare)


def _remarks(encoding: str, wish: Wish) -> list[str]:
    """What the pages declare (and laws check) that matters outside text."""
    causal = {page.name for page in pages() if page.properties["causal_only"]}
    if wish.modality == "text" or causal.isdisjoint(_names(encoding)):
        return []
    return ["by default it is for causal attention only"]
