"""Trained: the small models that claims need, each trained once, whichever of them ask for it.

    OUT/lab/text         on text, at one length, tested at up to eight times that
    OUT/lab/tuned        the same for rope, whose stretched forms are trained a little more at sixteen times the length
    OUT/lab/equal        codes that are appended, in models of as many parameters as those in which they are added
    OUT/lab/heads-N      alibi with so many heads
    OUT/lab/deep         on tasks, with as many layers as the profile has
    OUT/lab/one-layer    on tasks, with one layer
    OUT/lab/short        on tasks in texts of 8 tokens, and short-one-layer likewise
    OUT/lab/image        of images, at one size, tested at half and at twice that
    OUT/lab/moved        what became of models of the first, moved to other positions (see `moved`)

Each is a folder of the lab, with the lab's own plan (see `needs`): stopped at any moment, it goes on with `resume`. At profile standard, claims whose
models are all among the results that come with the package read those: they were measured before the rules here were written, and the evidence says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from milepost.claims import GROUPS
from milepost.claims.claim import NotMeasured
from milepost.claims.groups import claims_of
from milepost.claims.needs import IMAGE, SWEEPS, Need, images, is_old, plans, spelled
from milepost.lab import saved
from milepost.lab.choose import shipped
from milepost.lab.kinds import Trial
from milepost.lab.model import Decoder
from milepost.lab.plan import Plan
from milepost.lab.space.plan import ImagePlan
from milepost.lab.sweep import processes
from milepost.lab.sweep.sweep import alone, prepare
from milepost.measure.results import write_json

if TYPE_CHECKING:
    from milepost.claims.claim import Claim

P = TypeVar("P", Plan, ImagePlan)
Run = dict[str, Any]
Tell = Callable[[str, float], None]


class Lab:
    """What was trained, and what comes with the package. A claim asks for runs and models by its needs."""

    def __init__(
        self, profile: str, plans: dict[str, Plan], out: Path | None, old: dict[str, Any] | None, failed: dict[str, str], tell: Tell,
        image: ImagePlan | None = None,
    ):  # fmt: skip
        self.profile, self.plans, self.out, self.old, self.failed, self.tell, self.image = (
            profile,
            plans,
            out,
            old,
            failed,
            tell,
            image,
        )

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
        return [saved.load(folder) for folder in self.folders(need, encoding)]

    def folders(self, need: Need, encoding: str) -> list[Path]:
        """Where the trained models of one encoding are."""
        trials = [trial for trial in self._trials(need, encoding) if self._result(need, trial)]
        return [self.home(need.sweep) / "trials" / trial.key for trial in trials]

    def source(self, *needs: Need) -> tuple[str, ...]:
        """What to know of where the numbers come from."""
        if self.old is None or not any(is_old(need, self.old) for need in needs):
            return ()
        return (
            f"judged by the lab's results of {self.old['provenance']['date'][:10]}, which come with the package and are older than this rule",
        )

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
        name = spelled(encoding, plan.shape.width)
        return [trial for trial in plan.trials() if (trial.encoding, trial.data) == (name, need.data)]

    def _result(self, need: Need, trial: Trial) -> dict[str, Any]:
        file = self.home(need.sweep) / "trials" / trial.key / "result.json"
        if not file.exists():
            raise NotMeasured(
                f"{trial.encoding}, {trial.data}, seed {trial.seed}: {self.failed.get(trial.key, 'it was not trained')}"
            )
        result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return result


def gather(
    claims: Sequence[Claim], profile: str, out: Path | None, *, resume: bool, workers: int | None, tell: Tell, seeds: Sequence[int] = (),
) -> Lab:  # fmt: skip
    """Train what is missing. What comes with the package is read at profile standard, and where nothing can be trained; not where seeds are named."""
    every = [claim for group in GROUPS for claim in claims_of(group)]
    known = plans(profile, every, seeds)
    old = shipped("lab") if not seeds and (profile == "standard" or out is None) else None
    needs = [need for claim in claims for need in claim.needs if not is_old(need, old)]
    failed: dict[str, str] = {}
    seen = [need for need in needs if need.sweep == IMAGE]
    image = images(profile, every, seeds) if seen and out is not None else None
    if out is not None:
        for sweep in SWEEPS:
            if mine := [need for need in needs if need.sweep == sweep]:
                known[sweep], lost = _train(known[sweep], sweep, mine, out / sweep, resume, workers, tell)
                failed |= lost
        if image is not None:
            image, lost = _train(image, IMAGE, seen, out / IMAGE, resume, workers, tell)
            failed |= lost
    return Lab(profile, known, out, old, failed, tell, image)


def _train(
    plan: P, sweep: str, needs: list[Need], home: Path, resume: bool, workers: int | None, tell: Tell
) -> tuple[P, dict[str, str]]:
    """The trials of one sweep that are needed and not there yet: the plan as the folder has it; and what could not be trained, and why."""
    asked = {(spelled(name, plan.shape.width), need.data) for need in needs for name in need.encodings}
    wanted = [trial for trial in plan.trials() if (trial.encoding, trial.data) in asked]
    side = processes.side_by_side(len(wanted), workers)
    plan = replace(plan, digest=plan.read().digest, threads=max(1, processes.cores() // max(side, 2)))
    held = prepare(plan, home, resume or not (home / "plan.json").exists())
    assert isinstance(held, type(plan))
    plan = held
    failed: dict[str, str] = {}
    with alone(home):
        todo = [trial for trial in wanted if not (home / "trials" / trial.key / "result.json").exists()]
        steps = {trial.key: plan.steps if trial not in todo else 0 for trial in wanted}

        def told(trial: Trial, news: dict[str, Any]) -> None:
            steps[trial.key] = news.get("step", steps[trial.key])
            tell(
                f"{sweep}: {trial.encoding}, {trial.data}, seed {trial.seed}",
                sum(steps.values()) / (plan.steps * len(wanted)),
            )

        running: Any = processes.run_all(plan, todo, home, workers, told)
        with closing(running):
            for trial, result in running:
                place: Path = home / "trials" / trial.key
                if "failed" in result:
                    failed[trial.key] = result["failed"]
                    continue
                write_json(place / "result.json", result)
                for file in (*place.glob("*.pt"), place / "news.json", *place.glob(".*.tmp")):
                    file.unlink(missing_ok=True)  # it will not be gone on from
    return plan, failed
