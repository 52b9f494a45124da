"""Tasks: what models learn without positions, and which positions help where the position itself matters.

A task counts as learned where at least 9 of 10 answers are right, and as not learned where at most half are.
"""

from __future__ import annotations

from collections.abc import Callable

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
    limit,
    most,
    points,
)

LEARNED, HALF = 0.9, 0.5
BETTER_THAN_A_COIN = 0.6
"""Of two names: a model that knows the sentence, but not its order, is right half of the time."""
PREVIOUS = Need("one-layer", ("nope",), "previous"), Need("deep", ("nope", "rope", "alibi"), "previous")
WHO = Need("short-one-layer", ("nope",), "who"), Need("short", ("nope", "rope"), "who")
NEAREST = Need("one-layer", ("nope",), "antecedent"), Need("deep", ("nope", "rope"), "antecedent")
INDEX = Need("short", ("learned", "sinusoidal", "rope", "alibi"), "index")


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


def measure_index(lab: Lab) -> Measurement:
    """The token at index k: absolute against relative schemes, by the better of each."""
    numbers = {name: _at_home(lab, INDEX, name) for name in INDEX.encodings}
    absolute, relative = (most(numbers[n] for n in names) for names in (("learned", "sinusoidal"), ("rope", "alibi")))
    figure = points("index: right answers", "share", numbers, HALF)
    return Measurement({"ahead": absolute - relative, "best": most((absolute, relative))}, (figure,))


def _not_learned(bound: float) -> Rule:
    """The rule of a task that models should not learn without positions."""
    return (
        control("rope", "at least", LEARNED, "the share of right answers with rope"),
        core("one layer", "at most", bound, "the share of right answers without positions in one layer"),
        limit("nope", "at most", bound, "the share of right answers without positions in several layers"),
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
        "in several, and with rope.",
        _not_learned(HALF),
        trained=by_depth(*NEAREST),
        needs=NEAREST,
    ),
    Claim(
        "absolute-tasks",
        "Absolute positions still win where the place itself matters.",
        "在位置本身重要的任务中，绝对位置编码仍占优。",
        "003",
        "Small models are trained to name the token at index k of a short text: learned tables and sinusoids against "
        "rope and alibi, the better of each.",
        (
            control("best", "at least", HALF, "the share of right answers of the best of all"),
            core(
                "ahead",
                "at least",
                0.0,
                "the share of right answers by which the better absolute scheme is ahead of the better relative one",
            ),
        ),
        trained=measure_index,
        needs=(INDEX,),
    ),
)
