"""The small models that claims need, each trained once, however many claims ask for it.

    OUT/lab/text         on text, at one length, tested at up to eight times that
    OUT/lab/again        the same from other seeds, for rules that are younger than the results of the package
    OUT/lab/tuned        the same for rope, whose stretched forms are trained a little more at sixteen times the length
    OUT/lab/heads-N      alibi with so many heads
    OUT/lab/deep         on tasks, with as many layers as the profile has
    OUT/lab/one-layer    on tasks, with one layer
    OUT/lab/short        on tasks in texts of 8 tokens, and short-one-layer likewise
    OUT/lab/place        on the task of the token at index k, from more seeds
    OUT/lab/image        of images, at one size, tested at half and at twice that
    OUT/lab/moved        models of the first sweep, moved to other positions (see `groups/practice/moved.py`)

Each is a folder of the lab, with the lab's own plan (see `needs`): a stopped run continues with `resume`. One seed of
every sweep is trained first, then the next. Models of text whose results come with the package are not trained again,
if those are of the profile's model, of its text and of the named seeds, and if only results are asked for; the evidence
says so, and whether they are younger than the rule.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from milepost.claims.needs import IMAGE, Need, images, is_shipped, plans, spell, usable
from milepost.claims.rule import NotMeasured
from milepost.claims.seeds import MOST_SEEDS
from milepost.lab import checkpoint
from milepost.lab.choose import shipped
from milepost.lab.model import Decoder
from milepost.lab.plan import TextPlan
from milepost.lab.space.image_plan import ImagePlan
from milepost.lab.sweep import processes
from milepost.lab.sweep.driver import one_driver, prepare, store_finished
from milepost.lab.training.linear import bfloat16_pays
from milepost.lab.trial import Trial

P = TypeVar("P", TextPlan, ImagePlan)
Run = dict[str, Any]
Tell = Callable[[str, float], None]
RULED = "2026-11-17"
"""The day of the last change of a rule whose claim reads results that come with the package."""


@dataclass(frozen=True)
class Lab:
    """What was trained, and what comes with the package. An experiment asks for runs and models by its needs.

    ``old`` are the results that come with the package; ``failed`` says by trial why a training failed. With
    ``partial``, a need whose models are finished for some of the seeds is read for those.
    """

    profile: str
    plans: Mapping[str, TextPlan]
    out: Path | None
    old: dict[str, Any] | None
    tell: Tell
    image: ImagePlan | None = None
    failed: dict[str, str] = field(default_factory=dict)
    partial: bool = False

    def runs(self, need: Need, encoding: str, strategy: str = "none") -> list[Run]:
        """The runs of one encoding, one for each seed."""
        known: Iterable[Run]
        if self.old is not None and is_shipped(need, self.old, (encoding,)):
            name = spell(encoding, self.old["provenance"]["protocol"]["plan"]["shape"]["width"])
            known = [run for run in self.old["runs"] if run["encoding"] == name]
        else:
            known = [run for trial in self._trials(need, encoding) for run in self._result(need, trial)["runs"]]
        runs = [run for run in known if run["strategy"] == strategy]
        if not runs:
            raise NotMeasured(f"no model with {encoding} was trained")
        reason = next((run["failed"] for run in runs if run.get("failed")), None)
        if reason:
            raise NotMeasured(f"a model with {encoding} could not be trained: {reason}")
        return runs

    def models(self, need: Need, encoding: str) -> list[Decoder]:
        """The trained models of one encoding, one for each seed."""
        return [checkpoint.load(folder) for folder in self.folders(need, encoding)]

    def folders(self, need: Need, encoding: str) -> list[Path]:
        """The folders of the trained models of one encoding."""
        trials = [trial for trial in self._trials(need, encoding) if self._result(need, trial)]
        return [self.home(need.sweep) / "trials" / trial.key for trial in trials]

    def source(self, *needs: Need) -> tuple[str, ...]:
        """A note for the evidence where numbers come from results that come with the package."""
        old, names = self.old, [(need, name) for need in needs for name in need.encodings]
        if old is None or not any(is_shipped(need, old, (name,)) for need, name in names):
            return ()
        date = old["provenance"]["date"][:10]
        age = "younger" if date > RULED else "not younger"
        return (f"judged by the lab's results of {date}, which come with the package and are {age} than this rule",)

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that models are trained from."""
        return self.plans["text"].seeds

    def pictures(self) -> ImagePlan:
        """The plan of the models of images."""
        self.home(IMAGE)
        if self.image is None:
            raise NotMeasured("it needs scikit-learn, whose images are read: pip install 'milepost[images]'")
        return self.image

    def home(self, sweep: str) -> Path:
        """The folder of a sweep."""
        if self.out is None:
            raise NotMeasured("it needs small models, and no folder was given to train them in: give --out")
        return self.out / sweep

    def _trials(self, need: Need, encoding: str) -> list[Trial]:
        self.home(need.sweep)
        plan = self.pictures() if need.sweep == IMAGE else self.plans[need.sweep]
        trained = [name for name in need.encodings if not is_shipped(need, self.old, (name,))]
        wanted = {(spell(name, plan.shape.width), need.data) for name in trained}
        asked = [trial for trial in plan.trials() if (trial.encoding, trial.data) in wanted]
        missing = {trial.seed for trial in asked if not self._file(need, trial).exists()}
        left = missing if self.partial and missing < set(plan.seeds) else set()
        name = spell(encoding, plan.shape.width)
        return [trial for trial in asked if trial.encoding == name and trial.seed not in left]

    def _file(self, need: Need, trial: Trial) -> Path:
        return self.home(need.sweep) / "trials" / trial.key / "result.json"

    def _result(self, need: Need, trial: Trial) -> dict[str, Any]:
        file = self._file(need, trial)
        if not file.exists():
            reason = self.failed.get(trial.key, "it was not trained")
            raise NotMeasured(f"{trial.encoding}, {trial.data}, seed {trial.seed}: {reason}")
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return result


def train(
    needs: Sequence[Need],
    every: Sequence[Need],
    profile: str,
    out: Path | None,
    *,
    resume: bool,
    workers: int | None,
    tell: Tell,
    seeds: Sequence[int] = (),
) -> Lab:
    """Train what is missing of ``needs``; the plans hold ``every`` need of all claims.

    The results that come with the package are read where nothing can be trained, and where they fit (see `usable`).
    """
    if out is None:
        return Lab(profile, plans(profile, every, seeds), out, shipped("lab"), tell)
    known, old = planned(profile, every, seeds)
    failed: dict[str, str] = {}
    image = images(profile, every, seeds) if any(need.sweep == IMAGE for need in needs) else None

    def run(plan: P, sweep: str, turn: int, folder: Path = out) -> P:
        asked = [need for need in needs if need.sweep == sweep and not is_shipped(need, old)]
        if not asked or turn >= len(plan.seeds):
            return plan
        return _train(plan, sweep, turn, asked, old, folder / sweep, resume or turn > 0, workers, tell, failed)

    for turn in range(MOST_SEEDS):
        known = {sweep: run(plan, sweep, turn) for sweep, plan in known.items()}
        image = image and run(image, IMAGE, turn)
    return Lab(profile, known, out, old, tell, image, failed)


def planned(
    profile: str, every: Sequence[Need], seeds: Sequence[int]
) -> tuple[dict[str, TextPlan], dict[str, Any] | None]:
    """The plans of all sweeps, and the results that come with the package where they fit them."""
    known = plans(profile, every, seeds)
    old = usable(shipped("lab"), known["text"], seeds)
    return (known if old is None else plans(profile, every, seeds, old)), old


def _train(
    plan: P,
    sweep: str,
    turn: int,
    needs: list[Need],
    old: dict[str, Any] | None,
    home: Path,
    resume: bool,
    workers: int | None,
    tell: Tell,
    failed: dict[str, str],
) -> P:
    """Train what one sweep needs of its seed number ``turn`` and has not; the plan as the folder has it."""
    asked = {
        (spell(name, plan.shape.width), need.data)
        for need in needs
        for name in need.encodings
        if not is_shipped(need, old, (name,))
    }
    mine = [trial for trial in plan.trials() if trial.seed == plan.seeds[turn]]
    wanted = [trial for trial in mine if (trial.encoding, trial.data) in asked]
    side = processes.side_by_side(len(wanted), workers)
    threads = max(1, processes.cores() // max(side, 2))
    plan = replace(plan, digest=plan.read().digest, threads=threads, bfloat16=bfloat16_pays())
    with one_driver(home):
        held = prepare(plan, home, resume or not (home / "plan.json").exists())
        assert isinstance(held, type(plan))
        todo = [trial for trial in wanted if not (home / "trials" / trial.key / "result.json").exists()]
        steps = {trial.key: 0 if trial in todo else held.steps for trial in wanted}

        def report(trial: Trial, news: dict[str, Any]) -> None:
            steps[trial.key] = news.get("step", steps[trial.key])
            share = sum(steps.values()) / (held.steps * len(wanted))
            tell(f"{sweep}: {trial.encoding}, {trial.data}, seed {trial.seed}", share)

        for trial, reason in store_finished(processes.run_all(held, todo, home, workers, report), home):
            if reason is not None:
                failed[trial.key] = reason
    return held
