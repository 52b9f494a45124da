"""Tasks: what models learn without positions, and which positions help where the position itself matters.

A task counts as learned where at least 9 of 10 answers are right, and as not learned where at most half are.

    nearest          texts with two names come in pairs, the second with the names exchanged, and a pair counts where
                     both answers are right. Who does not see the order says the same name twice, and has no pair; a
                     coin has a quarter. So the bound of a half lies between a coin and one who knows.
    absolute-tasks   shares of right answers can't tell two schemes apart that are always right, so losses are
                     compared: answer by answer, on the same texts, from the same seeds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from milepost.claims.experiment import (
    Claim,
    Lab,
    Measurement,
    Need,
    Number,
    Rule,
    accuracy,
    control,
    core,
    least,
    limit,
    mean_over,
    most,
    points,
    shares,
)
from milepost.lab import tasks
from milepost.lab.model import Decoder
from milepost.lab.task_scores import SEED, scores
from milepost.lab.tasks.antecedent import LETTERS, NAMES, PRONOUN

LEARNED, HALF = 0.9, 0.5
BETTER_THAN_A_COIN = 0.6
"""Of two names: a model that knows the sentence, but not its order, is right half of the time."""
PREVIOUS = Need("one-layer", ("nope",), "previous"), Need("deep", ("nope", "rope", "alibi"), "previous")
WHO = Need("short-one-layer", ("nope",), "who"), Need("short", ("nope", "rope"), "who")
NEAREST = (
    Need("one-layer", ("nope",), "antecedent", weights=True),
    Need("deep", ("nope", "rope"), "antecedent", weights=True),
)
ABSOLUTE, RELATIVE = ("learned", "sinusoidal"), ("rope", "alibi")
INDEX = Need("place", (*ABSOLUTE, *RELATIVE), "index", weights=True)
TESTED = 512
"""Texts, or pairs of texts."""


def _at_home(lab: Lab, need: Need, encoding: str) -> Number:
    """The share of right answers at the trained length."""
    runs = lab.runs(need, encoding)
    return accuracy(runs, need.data, runs[0]["trained_length"])


def by_depth(shallow: Need, deep: Need) -> Callable[[Lab], Measurement]:
    """An experiment: a task without positions in one layer and in several, and with positions."""

    def measure(lab: Lab) -> Measurement:
        numbers = {"one layer": _at_home(lab, shallow, "nope")}
        numbers |= {name: _at_home(lab, deep, name) for name in deep.encodings}
        layers = lab.plans[deep.sweep].shape.layers
        names = ["nope, one layer", *(f"{name}, {layers} layers" for name in deep.encodings)]
        shown = dict(zip(names, numbers.values(), strict=True))
        return Measurement(numbers, (points(f"{shallow.data}: right answers", "share", shown, HALF),))

    return measure


def exchanged(length: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Texts (2 count length) that end with a pronoun, with two names each, and the same with the names exchanged.

    With them come the answers (2 count): the later name.
    """
    rng = np.random.default_rng(SEED)
    ids = rng.choice(LETTERS, (count, length))
    first, second = np.array([rng.choice(NAMES, 2, replace=False) for _ in range(count)]).T
    places = np.sort([rng.choice(length - 1, 2, replace=False) for _ in range(count)])
    ids[:, -1] = PRONOUN
    texts, rows = np.stack([ids, ids]), np.arange(count)
    for text, names in zip(texts, ((first, second), (second, first)), strict=True):
        text[rows, places[:, 0]], text[rows, places[:, 1]] = names
    return torch.from_numpy(texts), torch.from_numpy(np.stack([second, first]))


@torch.no_grad()
def both_right(models: list[Decoder]) -> Number:
    """The share of pairs of texts in which a model names the later name of both."""
    texts, answers = exchanged(models[0].shape.length, TESTED)
    by_model = []
    for model in models:
        right = model(texts.flatten(0, 1))[:, -1].argmax(-1).view(answers.shape) == answers
        by_model.append(float(right.all(0).double().mean()))
    return shares(by_model, TESTED * len(models), "pairs of texts")


def measure_nearest(lab: Lab) -> Measurement:
    """The later of two names: without positions in one layer and in several, and with rope."""
    shallow, deep = NEAREST
    numbers = {"one layer": both_right(lab.models(shallow, "nope"))}
    numbers |= {name: both_right(lab.models(deep, name)) for name in deep.encodings}
    names = ("nope, one layer", *(f"{name}, several layers" for name in deep.encodings))
    shown = dict(zip(names, numbers.values(), strict=True))
    return Measurement(numbers, (points("The later of two names: both answers right", "share", shown, HALF),))


def measure_index(lab: Lab) -> Measurement:
    """The token at index k: the better absolute scheme against the better relative one, answer by answer."""
    loss, right = {}, {}
    for name in INDEX.encodings:
        models = lab.models(INDEX, name)
        ids, scored, _ = tasks.rows("index", models[0].shape.length, TESTED, seed=SEED)
        each = [scores(model, ids, scored) for model in models]
        loss[name] = np.array([losses for losses, _ in each])
        right[name] = shares([float(hits.mean()) for _, hits in each], TESTED * len(models), "texts")
    leads = (least(mean_over(loss[other] - loss[name], "texts") for other in RELATIVE) for name in ABSOLUTE)
    lost = {name: mean_over(values, "texts") for name, values in loss.items()}
    figures = (
        points("index: right answers", "share", right, HALF),
        points("index: loss", "nats an answer", lost, log_y=True),
    )
    return Measurement({"ahead": most(leads), "best": most(right.values())}, figures)


def _not_learned(bound: float, what: str = "right answers") -> Rule:
    """The rule of a task that models should not learn without positions."""
    return (
        control("rope", "at least", LEARNED, f"the share of {what} with rope"),
        core("one layer", "at most", bound, f"the share of {what} without positions in one layer"),
        limit("nope", "at most", bound, f"the share of {what} without positions in several layers"),
    )


CLAIMS = (
    Claim(
        "alice-bob",
        '"Alice hits Bob" and "Bob hits Alice" look the same without positions.',
        "没有位置信息时，“Alice hits Bob”和“Bob hits Alice”看起来一样。",
        "000 §1",
        "Small causal models are trained to say who did what to whom in a sentence, which only the order shows: "
        "without positions in one layer and in several, and with rope.",
        _not_learned(BETTER_THAN_A_COIN),
        trained=by_depth(*WHO),
        needs=WHO,
    ),
    Claim(
        "previous-token",
        'Without positions a model cannot learn "attend to the previous token".',
        "没有位置信息，模型学不会“关注前一个词”。",
        "000 §2A",
        "Small causal models are trained to repeat the letter before an equals sign: without positions in one layer "
        "and in several, with rope, and with alibi.",
        _not_learned(HALF),
        trained=by_depth(*PREVIOUS),
        needs=PREVIOUS,
    ),
    Claim(
        "nearest",
        "Without positions a model can't prefer the nearest of two equal antecedents.",
        "没有位置信息，模型无法在两个相同的先行词中选择最近的一个。",
        "000 §2A",
        "Small causal models are trained to name the last of several antecedents: without positions in one layer and "
        "in several, and with rope. Each is asked for the later of two names, in pairs of texts that differ only in "
        "the order of the two.",
        _not_learned(HALF, "pairs of texts in which both answers are right"),
        trained=measure_nearest,
        needs=NEAREST,
    ),
    Claim(
        "absolute-tasks",
        "Absolute positions still win where the place itself matters.",
        "在位置本身重要的任务中，绝对位置编码仍占优。",
        "003",
        "Small models are trained to name the token at index k of a text: learned tables and sinusoids against "
        "rope and alibi, the better of each, by their losses on the same texts.",
        (
            control("best", "at least", HALF, "the share of right answers of the best of all"),
            core(
                "ahead",
                "at least",
                0.0,
                "the loss of the better relative scheme minus that of the better absolute one, in nats an answer",
            ),
        ),
        trained=measure_index,
        needs=(INDEX,),
    ),
)
