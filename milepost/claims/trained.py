"""Trained: the small models that claims need, each trained once, whichever of them ask for it.

    OUT/lab/text         on text, at one length, tested at up to eight times that
    OUT/lab/tuned        the same for rope, whose stretched forms are trained a little more at sixteen times the length
    OUT/lab/deep         on tasks, with as many layers as the profile has
    OUT/lab/one-layer    on tasks, with one layer

Each is a folder of the lab, with the lab's own plan: stopped at any moment, it goes on with `resume`. A plan holds all that any claim asks for, and
what the chosen claims need is trained. At profile standard, claims whose models are all among the results that come with the package read those: they
were measured before the rules here were written, and the evidence says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.choose import shipped
from milepost.claims import GROUPS
from milepost.claims.claim import NotMeasured
from milepost.lab import processes, saved
from milepost.lab.kinds import Trial
from milepost.lab.model import Decoder
from milepost.lab.plan import Plan, find_profile, make
from milepost.lab.sweep import alone, prepare
from milepost.results import write_json

if TYPE_CHECKING:
    from milepost.claims.claim import Claim

Run = dict[str, Any]
Tell = Callable[[str, float], None]
SWEEPS = ("text", "tuned", "deep", "one-layer")
TASK_STEPS = {"quick": 1000, "standard": 2000}
TASK_LENGTH = {"quick": 32, "standard": 64}
TUNE_STEPS = {"quick": 100, "standard": 200}
TUNED = ("linear", "ntk", "yarn")
STRATEGIES = ("base", "linear", "ntk", "dynamic", "yarn", "self-extend", "rerope")


@dataclass(frozen=True)
class Need:
    """Models to train: ``encodings`` on text or on one task, in one of the sweeps. ``weights``: the models themselves are looked at."""

    sweep: str
    encodings: tuple[str, ...]
    data: str = "text"
    weights: bool = False


def plans(profile: str, claims: Iterable[Claim]) -> dict[str, Plan]:
    """The plan of each sweep, with all that any claim asks for."""
    asked = [need for claim in claims for need in claim.needs]
    width, found = find_profile(profile).width, {}
    for sweep in SWEEPS:
        mine = [need for need in asked if need.sweep == sweep]
        encodings = tuple(dict.fromkeys(spelled(name, width) for need in mine for name in need.encodings))
        if not mine:
            continue
        if sweep == "text":
            found[sweep] = make(profile, encodings=encodings, strategy_names=STRATEGIES)
        elif sweep == "tuned":
            found[sweep] = make(profile, encodings=encodings, strategy_names=TUNED, lengths="1x,2x,4x,8x,16x", tune=TUNE_STEPS[profile])
        else:
            tasks = tuple(dict.fromkeys(need.data for need in mine))
            plan = make(profile, encodings=encodings, strategy_names=(), tasks=tasks, train_length=TASK_LENGTH[profile])
            shape = replace(plan.shape, layers=1) if sweep == "one-layer" else plan.shape
            found[sweep] = replace(plan, shape=shape, steps=TASK_STEPS[profile])
    return found


class Lab:
    """What was trained, and what comes with the package. A claim asks for runs and models by its needs."""

    def __init__(self, profile: str, plans: dict[str, Plan], out: Path | None, old: dict[str, Any] | None, failed: dict[str, str]):
        self.profile, self.plans, self.out, self.old, self.failed = profile, plans, out, old, failed

    def runs(self, need: Need, encoding: str, strategy: str = "none") -> list[Run]:
        """The runs of one encoding, one for each seed."""
        if is_old(need, self.old):
            name = spelled(encoding, self.old["provenance"]["protocol"]["plan"]["shape"]["width"])  # type: ignore[index]
            known: Iterable[Run] = [one for one in self.old["runs"] if one["encoding"] == name]  # type: ignore[index]
        else:
            known = [one for trial in self._trials(need, encoding) for one in self._result(need, trial)["runs"]]
        found = [one for one in known if one["strategy"] == strategy]
        if not found:
            raise NotMeasured(f"no model with {encoding} was trained")
        lost = next((one["failed"] for one in found if one.get("failed")), None)
        if lost:
            raise NotMeasured(f"a model with {encoding} could not be trained: {lost}")
        return found

    def models(self, need: Need, encoding: str) -> list[Decoder]:
        """The trained models of one encoding, one for each seed."""
        trials = [trial for trial in self._trials(need, encoding) if self._result(need, trial)]
        return [saved.load(self.home(need.sweep) / "trials" / trial.key) for trial in trials]

    def source(self, *needs: Need) -> tuple[str, ...]:
        """What to know of where the numbers come from."""
        if self.old is None or not any(is_old(need, self.old) for need in needs):
            return ()
        return (f"judged by the lab's results of {self.old['provenance']['date'][:10]}, which come with the package and are older than this rule",)

    def home(self, sweep: str) -> Path:
        """The folder of a sweep."""
        if self.out is None:
            raise NotMeasured("it needs small models, and no folder was given to train them in: give --out")
        return self.out / sweep

    def _trials(self, need: Need, encoding: str) -> list[Trial]:
        self.home(need.sweep)
        plan = self.plans[need.sweep]
        name = spelled(encoding, plan.shape.width)
        return [trial for trial in plan.trials() if (trial.encoding, trial.data) == (name, need.data)]

    def _result(self, need: Need, trial: Trial) -> dict[str, Any]:
        file = self.home(need.sweep) / "trials" / trial.key / "result.json"
        if not file.exists():
            raise NotMeasured(f"{trial.encoding}, {trial.data}, seed {trial.seed}: {self.failed.get(trial.key, 'it was not trained')}")
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return result


def spelled(encoding: str, width: int) -> str:
    """An encoding for models of a width: ``{quarter}`` is a quarter of it."""
    return encoding.replace("{quarter}", str(width // 4))


def is_old(need: Need, old: dict[str, Any] | None) -> bool:
    """Whether the results that come with the package have all that a need asks for."""
    if old is None or need.sweep != "text" or need.weights:
        return False
    width, known = old["provenance"]["protocol"]["plan"]["shape"]["width"], {run["encoding"] for run in old["runs"]}
    return all(spelled(name, width) in known for name in need.encodings)


def gather(claims: Sequence[Claim], profile: str, out: Path | None, *, resume: bool, workers: int | None, tell: Tell) -> Lab:
    """Train what is missing. What comes with the package is read at profile standard, and where nothing can be trained."""
    every = [claim for group in GROUPS for claim in import_module(f"milepost.claims.{group}").CLAIMS]
    known = plans(profile, every)
    old = shipped("lab") if profile == "standard" or out is None else None
    needs = [need for claim in claims for need in claim.needs if not is_old(need, old)]
    failed: dict[str, str] = {}
    for sweep in SWEEPS if out is not None else ():
        mine = [need for need in needs if need.sweep == sweep]
        if mine and out is not None:
            failed |= _train(known, sweep, mine, out / sweep, resume, workers, tell)
    return Lab(profile, known, out, old, failed)


def _train(known: dict[str, Plan], sweep: str, needs: list[Need], home: Path, resume: bool, workers: int | None, tell: Tell) -> dict[str, str]:
    """The trials of one sweep that are needed and not there yet; what could not be trained, and why."""
    plan = known[sweep]
    asked = {(spelled(name, plan.shape.width), need.data) for need in needs for name in need.encodings}
    wanted = [trial for trial in plan.trials() if (trial.encoding, trial.data) in asked]
    side = processes.side_by_side(len(wanted), workers)
    plan = replace(plan, digest=plan.read().digest, threads=max(1, processes.cores() // max(side, 2)))
    held = prepare(plan, home, resume or not (home / "plan.json").exists())
    assert isinstance(held, Plan)
    plan = known[sweep] = held
    failed: dict[str, str] = {}
    with alone(home):
        todo = [trial for trial in wanted if not (home / "trials" / trial.key / "result.json").exists()]
        steps = {trial.key: plan.steps if trial not in todo else 0 for trial in wanted}

        def told(trial: Trial, news: dict[str, Any]) -> None:
            steps[trial.key] = news.get("step", steps[trial.key])
            tell(f"{sweep}: {trial.encoding}, {trial.data}, seed {trial.seed}", sum(steps.values()) / (plan.steps * len(wanted)))

        running: Any = processes.run_all(plan, todo, home, workers, told)
        with closing(running):
            for trial, result in running:
                place = home / "trials" / trial.key
                if "failed" in result:
                    failed[trial.key] = result["failed"]
                    continue
                write_json(place / "result.json", result)
                for file in (*place.glob("*.pt"), place / "news.json", *place.glob(".*.tmp")):
                    file.unlink(missing_ok=True)  # it will not be gone on from
    return failed
