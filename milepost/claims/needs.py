"""Needs: the models that claims ask for, and the plan of each sweep that trains them.

A plan holds all that any claim asks for, so that it is the same whichever claims are chosen; only what these need is
trained. Models that read text have the size of the profile. Tasks and heads are studied in models of one size; there
the profile only sets the number of seeds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from milepost.lab.plan import TextPlan, find_profile, make
from milepost.lab.space.image_plan import ImagePlan
from milepost.lab.space.image_plan import make as make_images

HEADS = ("heads-2", "heads-4", "heads-8", "heads-16")
SWEEPS = ("text", "again", "tuned", *HEADS, "deep", "one-layer", "short", "short-one-layer", "place")
IMAGE, SIZES = "image", "0.5x,1x,2x"
ONE_SIZE = "quick"
"""The profile whose size models for tasks and heads have; its width is a multiple of twice 16 heads."""
TASK_STEPS, TASK_LENGTH, SHORT_LENGTH = 1000, 32, 8
"""A short text is one sentence and a question: in 1000 steps of version 0.1 no model learned who did what in texts of
32 tokens. Which token stands at an index of 16 or 32 a learned table learns now (100% and 99% right, from seed 99,
which no claim has); nothing else was tried before the rule."""
MANY_SEEDS = 6
"""Seeds of small models whose results differ much from seed to seed: with three, Student's t is 2.5 standard deviations
wide on each side, with six it is one."""
TUNE_STEPS = {"quick": 100, "standard": 200}
TUNED = ("ntk", "yarn")
STRATEGIES = ("base", "linear", "ntk", "dynamic", "yarn", "self-extend", "rerope")


@dataclass(frozen=True)
class Need:
    """Models to train: ``encodings`` on text or on one task, in one of the sweeps.

    ``weights``: the experiment reads the models themselves, not only their results.
    """

    sweep: str
    encodings: tuple[str, ...]
    data: str = "text"
    weights: bool = False


def plans(
    profile: str, needs: Iterable[Need], seeds: Sequence[int] = (), results: dict[str, Any] | None = None
) -> dict[str, TextPlan]:
    """The plan of each sweep for all ``needs``; as many seeds as the profile has where none are named.

    With ``results``, models of text are trained as long as those and tested on the same windows, so that the two can be
    compared; the sweep "again" has seeds that those do not have.
    """
    needs, width, made = list(needs), find_profile(profile).width, {}
    seeds = tuple(seeds) or tuple(range(find_profile(profile).seeds))
    like = {} if results is None else results["provenance"]["protocol"]["plan"]
    for sweep in SWEEPS:
        asked = [need for need in needs if need.sweep == sweep]
        if not asked:
            continue
        encodings = tuple(dict.fromkeys(spell(name, width) for need in asked for name in need.encodings))
        if sweep in ("text", "again"):
            free = 1 + max(like["seeds"]) if like and sweep == "again" else 0
            other = tuple(range(free, free + len(seeds))) if free else seeds
            plan = make(profile, encodings=encodings, strategy_names=STRATEGIES, seeds=other)
            made[sweep] = replace(plan, **{name: like[name] for name in ("steps", "windows") if like})
        elif sweep == "tuned":
            lengths, steps = "1x,2x,4x,8x,16x", TUNE_STEPS[profile]
            made[sweep] = make(
                profile, encodings=encodings, strategy_names=TUNED, lengths=lengths, tune=steps, seeds=seeds
            )
        elif sweep.startswith("heads-"):
            plan = make(ONE_SIZE, encodings=encodings, strategy_names=(), seeds=seeds)
            made[sweep] = replace(plan, shape=replace(plan.shape, heads=int(sweep.removeprefix("heads-"))))
        else:
            tasks = tuple(dict.fromkeys(need.data for need in asked))
            length = SHORT_LENGTH if sweep.startswith("short") else TASK_LENGTH
            some = more(seeds) if sweep == "place" else seeds
            plan = make(ONE_SIZE, encodings=encodings, strategy_names=(), tasks=tasks, train_length=length, seeds=some)
            shape = replace(plan.shape, layers=1) if sweep.endswith("one-layer") else plan.shape
            made[sweep] = replace(plan, shape=shape, steps=TASK_STEPS)
    return made


def images(profile: str, needs: Iterable[Need], seeds: Sequence[int] = ()) -> ImagePlan | None:
    """The plan of the models of images; None where scikit-learn, whose images are read, is not installed."""
    encodings = tuple(dict.fromkeys(name for need in needs if need.sweep == IMAGE for name in need.encodings))
    if find_spec("sklearn") is None:
        return None
    seeds = more(tuple(seeds) or tuple(range(find_profile(profile).seeds)))
    return make_images(profile, encodings=encodings, strategy_names=("linear",), sizes=SIZES, seeds=seeds)


def more(seeds: tuple[int, ...]) -> tuple[int, ...]:
    """The seeds, and the numbers after them, until there are `MANY_SEEDS`."""
    free = 1 + max(seeds)
    return seeds + tuple(range(free, free + max(0, MANY_SEEDS - len(seeds))))


def spell(encoding: str, width: int) -> str:
    """An encoding for models of a width: ``{quarter}`` is a quarter of it."""
    return encoding.replace("{quarter}", str(width // 4))


def is_shipped(need: Need, results: dict[str, Any] | None, encodings: Sequence[str] = ()) -> bool:
    """Whether the results that come with the package have these encodings of a need, or all that it asks for."""
    if results is None or need.sweep != "text" or need.weights:
        return False
    width = results["provenance"]["protocol"]["plan"]["shape"]["width"]
    wanted = {spell(name, width) for name in encodings or need.encodings}
    return wanted <= {run["encoding"] for run in results["runs"]}


def usable(results: dict[str, Any] | None, plan: TextPlan, named: Sequence[int]) -> dict[str, Any] | None:
    """Results that come with the package, where they are of a plan's models and text and have all ``named`` seeds.

    Runs of other seeds than those named are left out. Seeds that they do not have ask for models that nobody has seen.
    """
    if results is None:
        return None
    held = TextPlan.from_json(results["provenance"]["protocol"]["plan"])
    same = ("shape", "rows", "lengths", "rates", "text", "tokenizer", "told")
    if any(getattr(held, name) != getattr(plan, name) for name in same) or not set(named) <= set(held.seeds):
        return None
    if not set(plan.strategies) <= set(held.strategies) or held.digest != plan.read().digest:
        return None
    return {**results, "runs": [run for run in results["runs"] if not named or run["seed"] in named]}
