"""Choose: which encoding for which lengths, ranked by what was measured. Plain data in and out, no torch.

    text     loss at target / trained times the trained length, over the lowest loss of any encoding at that
    recall   where far recall matters: loss of the recall task there, over chance
    index    where absolute place matters: loss of the index task there, over chance

A choice's place is the mean of its places in what was asked for, equally weighed; who was not measured in something
comes after those who were. A task in which nobody beats chance says nothing, and is not counted. There is no opinion
in it: without measurements there is no ranking.

A question far outside of what the lab measured (a trained length `FAR` times its own) is answered by what papers
measured first, and by the lab second: the mean over sources of the rise of perplexity, as far as 10% of it matter. What
the engine that was asked for can't run is not ranked.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from milepost.encodings.catalogue import pages
from milepost.lab.report.choice import document
from milepost.lab.report.evidence.published import BY_LENGTH, PUBLISHED, perplexity_rise
from milepost.lab.report.runs import paired
from milepost.measure.results import Results

Run = dict[str, Any]
MEASURED = Path(__file__).parents[1] / "measured"
ENGINES: dict[str, Any] = json.loads((MEASURED / "engines_run.json").read_text(encoding="utf-8"))
"""Which engines run which encodings and strategies, and of which versions that is said."""
FAR = 8
"""How many times longer (or shorter) than the lab's trained length a question's is when it is far from it."""
TASKS = {"recall": "far recall", "index": "absolute place"}


@dataclass(frozen=True)
class Wish:
    """What the model is for."""

    trained: int
    target: int
    modality: str = "text"
    far_recall: bool = False
    absolute: bool = False
    engine: str | None = None

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
    if wish.engine is not None and wish.engine not in ENGINES["versions"]:
        raise ValueError(f"unknown engine {wish.engine!r}; there are {', '.join(ENGINES['versions'])}")
    plan = results["provenance"]["protocol"]["plan"]
    trained = plan["shape"]["length"]
    length, notes = _stands_for(wish.times, trained, plan["lengths"])
    base = trained if trained in plan["lengths"] else min(plan["lengths"])
    groups = _groups(results["runs"])
    short = [loss for runs in groups.values() if (loss := _loss(runs, base)) is not None]
    evidence = {name: _evidence(runs, length, base, min(short)) for name, runs in groups.items()} if short else {}
    usable = {name: measured for name, measured in evidence.items() if measured["text"] is not None}
    if not usable:
        raise ValueError(f"{source or 'the results given'} hold no loss at {length} tokens, so nothing can be ranked")
    counted = ["text"]
    for task, wanted in (("recall", wish.far_recall), ("index", wish.absolute)):
        if wanted:
            reason = _why_not_counted(task, usable)
            notes += [reason] if reason else []
            counted += [] if reason else [task]
    ranked = _ranked(usable, counted)
    far = not 1 / FAR < wish.trained / trained < FAR and wish.times > 1
    if far:
        ranked = _ranked_by_papers(ranked, wish.times)
        notes.insert(
            0,
            f"The lab trained at {trained} tokens, and you ask about {wish.trained}: what papers measured on larger "
            "models counts first, and these runs only where papers are silent or within 10% of each other.",
        )
    dropped: list[dict[str, str]] = []
    if wish.engine is not None:
        version = f"{wish.engine} {ENGINES['versions'][wish.engine]}"
        why = f"{version} does not run it"
        dropped = [{"name": name, "why": why} for name in ranked if wish.engine not in runs_in(name)]
        ranked = [name for name in ranked if wish.engine in runs_in(name)]
        if not ranked:
            raise ValueError(f"{version} runs none of the encodings that were measured; leave --engine out to see them")
    nothing = {"text": None, "recall": None, "index": None}
    if wish.modality != "text":
        notes.insert(
            0, f"{wish.modality}: not measured. What follows was measured on text; the order may be another there."
        )
    answer = {
        "wish": asdict(wish) | {"times": wish.times},
        "source": source,
        "measured": {"trained_length": trained, "length": length, "times": length / trained, **_size(results)},
        "ranked_by": counted,
        "ranked_by_papers": far,
        "ranked": [
            {
                "place": place, "name": name, "encoding": run["encoding"], "strategy": run["strategy"],
                **usable.get(name, nothing), "published": perplexity_rise(name, wish.times) if wish.times > 1 else [],
                "engines": runs_in(name),
                "behind_first": paired(groups.get(ranked[0], []), groups.get(name, []), length),
                "cost": _cost(run, bench, results, wish.target), "remarks": _remarks(run["encoding"], wish),
            }
            for place, name in enumerate(ranked, start=1)
            for run in (groups.get(name) or [_named(name)])[:1]
        ],
        "not_ranked": [*_not_ranked(results, groups, usable, length), *dropped],
        "notes": notes,
    }  # fmt: skip
    return Results("choice", answer, document)


# -- evidence ------------------------------------------------------------------------------------------------------


def _stands_for(times: float, trained: int, lengths: list[int]) -> tuple[int, list[str]]:
    """The measured length that answers for a ratio: that ratio, or the next longer one, or the longest."""
    known = sorted(lengths)
    length = next((n for n in known if n / trained >= max(times, 1.0) - 1e-9), known[-1])
    measured, missing = length / trained, f"{times:.3g} times the trained length was not measured"
    if times > measured:
        return length, [f"{missing}. The longest is {measured:.3g} times: what holds there may fail beyond."]
    if measured > max(times, 1.0) + 1e-9:
        return length, [f"{missing}; {measured:.3g} times stands in for it."]
    return length, []


def _groups(runs: list[Run]) -> dict[str, list[Run]]:
    """Runs by choice: an encoding and a strategy, all seeds, on text and on tasks."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.get("loss_by_length") or run.get("tasks"):
            name = f"{run['encoding']} ({run['from']})" if run.get("from") else run["encoding"]
            groups.setdefault(name if run["strategy"] == "none" else f"{name}, {run['strategy']}", []).append(run)
    return groups


def _evidence(runs: list[Run], length: int, base: int, best: float) -> dict[str, Any]:
    loss, before = _loss(runs, length), _loss(runs, base)
    text = None
    if loss is not None:
        text = {
            "loss": loss,
            "at_trained": before,
            "change": loss / before - 1 if before else None,
            "over_best_short": loss / best - 1,
            "seeds": len([run for run in runs if run.get("loss_by_length")]),
        }
    return {"text": text, "recall": _task(runs, "recall", length), "index": _task(runs, "index", length)}


def _loss(runs: list[Run], length: int) -> float | None:
    rows = [row["loss"] for run in runs for row in run.get("loss_by_length") or [] if row["length"] == length]
    return None if not rows or None in rows else fmean(rows)


def _task(runs: list[Run], task: str, length: int) -> dict[str, Any] | None:
    rows = [row for run in runs for row in (run.get("tasks") or {}).get(task, []) if row["length"] == length]
    if not rows or any(row["loss"] is None for row in rows):
        return None
    highest = fmean(row["loss"] if row.get("high") is None else row["high"] for row in rows)
    return {
        "over_chance": fmean(row["loss"] / row["chance"] for row in rows),
        "accuracy": fmean(row["accuracy"] for row in rows),
        "beats_chance": highest < rows[0]["chance"],
        "seeds": len(rows),
    }


def _why_not_counted(task: str, usable: dict[str, dict[str, Any]]) -> str:
    """Why a task can't be counted; "" where it can."""
    known = [measured[task] for measured in usable.values() if measured[task] is not None]
    if not known:
        return f"{TASKS[task]}: not measured, so it is not counted. `milepost lab --tasks {task}` measures it."
    if not any(scores["beats_chance"] for scores in known):
        return f"{TASKS[task]}: in these runs no model beats chance at it, so it is not counted."
    return ""


def _ranked(usable: dict[str, dict[str, Any]], counted: list[str]) -> list[str]:
    fields = {"text": "over_best_short", "recall": "over_chance", "index": "over_chance"}
    places: dict[str, list[int]] = {name: [] for name in usable}
    for what in counted:
        known = {name: run[what][fields[what]] for name, run in usable.items() if run[what] is not None}
        for name, value in known.items():
            places[name].append(1 + sum(other < value for other in known.values()))

    def order(name: str) -> tuple[float, ...]:
        return len(counted) - len(places[name]), fmean(places[name]), usable[name]["text"]["over_best_short"]

    return sorted(usable, key=order)


def _ranked_by_papers(by_lab: list[str], times: float) -> list[str]:
    """The lab's choices and those that only papers have, by the mean rise of perplexity in papers, then by the lab.

    What papers tuned stands where the lab has the same without tuning.
    """
    papers = {name for subject in BY_LENGTH for name in PUBLISHED[subject]["rows"]}
    names = [*by_lab, *sorted(papers - set(by_lab))]

    def order(name: str) -> tuple[bool, float, int]:
        rises = [math.log(source["rise"]) for source in perplexity_rise(name, times)]
        return not rises, round(fmean(rises), 1) if rises else 0.0, names.index(name.removesuffix(" tuned"))

    return sorted(names, key=order)


def runs_in(name: str) -> list[str]:
    """The engines that run a choice: a model with that encoding, and a config that can name its scaling."""
    encoding, _, strategy = name.partition(", ")
    strategy = strategy.removesuffix(" tuned") or "none"
    encoding = re.sub(r"\(.*\)", "", encoding)
    named = ENGINES["strategies"].get(strategy, [])
    return [engine for engine in ENGINES["encodings"].get(encoding, {}) if engine in named]


def _named(name: str) -> Run:
    """What only papers measured, as a run without numbers."""
    encoding, _, strategy = name.partition(", ")
    return {"encoding": encoding, "strategy": strategy or "none", "seed": 0}


def _not_ranked(
    results: dict[str, Any], groups: dict[str, list[Run]], usable: dict[str, Any], length: int
) -> list[dict[str, str]]:
    reasons = []
    for name, runs in groups.items():
        if name not in usable:
            rows = [row for run in runs for row in run.get("loss_by_length") or [] if row["length"] == length]
            ended = any(row["loss"] is None for row in rows)
            reasons.append((name, f"{'its table ends before' if ended else 'not measured at'} {length} tokens"))
    failed = [run for run in results["runs"] if run.get("failed")]
    for trial in (*results["failed"], *results["missing"], *failed):
        name = f"{trial['encoding']}, seed {trial['seed']}, {trial.get('data', 'text')}"
        reasons.append((name, str(trial.get("why") or trial.get("failed") or "not run yet")))
    return [{"name": name, "why": why} for name, why in reasons]


def _size(results: dict[str, Any]) -> dict[str, Any]:
    runs = [run for run in results["runs"] if run.get("loss_by_length")]
    sizes = [run["parameters"] for run in runs if run.get("parameters")]
    return {"parameters": max(sizes) if sizes else None, "seeds": len({run["seed"] for run in runs})}


# -- cost and remarks ----------------------------------------------------------------------------------------------


def _cost(run: Run, bench: dict[str, Any] | None, results: dict[str, Any], target: int) -> dict[str, Any]:
    """Time over that of attention with no position, for each pass; None where it was not measured.

    At the benchmark's length that is nearest to the target.
    """
    cost: dict[str, Any] = dict.fromkeys(("forward", "training", "decode"))
    for kind in cost:
        scheme = _scheme(run, kind)
        ours = ("milepost", "torch sdpa") if scheme == "nope" else ("milepost",)
        rows = [
            row
            for row in (bench or {}).get("rows", [])
            if (row["scheme"], row["pass"]) == (scheme, kind)
            and row["implementation"] in ours
            and row["ratio"] is not None
        ]
        if rows:
            nearest = min(rows, key=lambda row: abs(row["length"] - target))
            cost[kind] = {"ratio": nearest["ratio"], "length": nearest["length"]}
    return cost | {"lab_speed": _speed(run, results)}


def _speed(run: Run, results: dict[str, Any]) -> float | None:
    """Training speed in the lab over that of no position, mean over seeds; trials ran side by side, so it is rough."""
    speeds = {
        (other["encoding"], other["seed"]): other.get("train_tokens_per_s")
        for other in results["runs"]
        if other["strategy"] == "none" and other.get("loss_by_length") and other.get("run") == run.get("run")
    }
    mine = {seed: speed for (encoding, seed), speed in speeds.items() if encoding == run["encoding"] and speed}
    ratios = [speed / speeds["nope", seed] for seed, speed in mine.items() if speeds.get(("nope", seed))]
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
