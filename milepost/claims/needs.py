"""Needs: the models that claims ask for, and the plan of each sweep that trains them.

A plan holds all that any claim asks for, so that it is the same whichever of them are chosen; what these need is trained. Models that read text have the
size of the profile. Whether a task is learned at all, and what heads do, is asked of models of one size, and the profile says from how many seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from milepost.lab.plan import Plan, find_profile, make
from milepost.lab.space.plan import ImagePlan
from milepost.lab.space.plan import make as make_images

if TYPE_CHECKING:
    from milepost.claims.claim import Claim

SWEEPS = ("text", "tuned", "heads-2", "heads-4", "heads-8", "heads-16", "deep", "one-layer", "short", "short-one-layer")
IMAGE, SIZES = "image", "0.5x,1x,2x"
ONE_SIZE = "quick"
"""The size of models for tasks and heads; its width is a multiple of twice 16 heads."""
TASK_STEPS, TASK_LENGTH, SHORT_LENGTH = 1000, 32, 8
"""Short: one sentence and a question. With 32 tokens no model learned who did what, or what stands at an index, in so many steps: the controls failed."""
TUNE_STEPS = {"quick": 100, "standard": 200}
TUNED = ("ntk", "yarn")
STRATEGIES = ("base", "linear", "ntk", "dynamic", "yarn", "self-extend", "rerope")


@dataclass(frozen=True)
class Need:
    """Models to train: ``encodings`` on text or on one task, in one of the sweeps. ``weights``: the models themselves are looked at."""

    sweep: str
    encodings: tuple[str, ...]
    data: str = "text"
    weights: bool = False


def plans(profile: str, claims: Iterable[Claim], seeds: Sequence[int] = ()) -> dict[str, Plan]:
    """The plan of each sweep, with all that any claim asks for; as many seeds as the profile has where none are named."""
    asked = [need for claim in claims for need in claim.needs]
    width, found = find_profile(profile).width, {}
    seeds = tuple(seeds) or tuple(range(find_profile(profile).seeds))
    for sweep in SWEEPS:
        mine = [need for need in asked if need.sweep == sweep]
        encodings = tuple(dict.fromkeys(spelled(name, width) for need in mine for name in need.encodings))
        if not mine:
            continue
        if sweep == "text":
            found[sweep] = make(profile, encodings=encodings, strategy_names=STRATEGIES, seeds=seeds)
        elif sweep == "tuned":
            found[sweep] = make(
                profile,
                encodings=encodings,
                strategy_names=TUNED,
                lengths="1x,2x,4x,8x,16x",
                tune=TUNE_STEPS[profile],
                seeds=seeds,
            )
        elif sweep.startswith("heads-"):
            plan = make(ONE_SIZE, encodings=encodings, strategy_names=(), seeds=seeds)
            found[sweep] = replace(plan, shape=replace(plan.shape, heads=int(sweep.removeprefix("heads-"))))
        else:
            tasks = tuple(dict.fromkeys(need.data for need in mine))
            length = SHORT_LENGTH if sweep.startswith("short") else TASK_LENGTH
            plan = make(ONE_SIZE, encodings=encodings, strategy_names=(), tasks=tasks, train_length=length, seeds=seeds)
            shape = replace(plan.shape, layers=1) if sweep.endswith("one-layer") else plan.shape
            found[sweep] = replace(plan, shape=shape, steps=TASK_STEPS)
    return found


def images(profile: str, claims: Iterable[Claim], seeds: Sequence[int] = ()) -> ImagePlan | None:
    """The plan of the models of images; None where scikit-learn's images are not there."""
    encodings = tuple(
        dict.fromkeys(
            name for claim in claims for need in claim.needs if need.sweep == IMAGE for name in need.encodings
        )
    )
    return (
        None
        if find_spec("sklearn") is None
        else make_images(profile, encodings=encodings, strategy_names=("linear",), sizes=SIZES, seeds=seeds)
    )


def spelled(encoding: str, width: int) -> str:
    """An encoding for models of a width: ``{quarter}`` is a quarter of it."""
    return encoding.replace("{quarter}", str(width // 4))


def is_old(need: Need, old: dict[str, Any] | None) -> bool:
    """Whether the results that come with the package have all that a need asks for."""
    if old is None or need.sweep != "text" or need.weights:
        return False
    width, known = old["provenance"]["protocol"]["plan"]["shape"]["width"], {run["encoding"] for run in old["runs"]}
    return all(spelled(name, width) in known for name in need.encodings)
