"""Tasks: what models learn without positions, and which positions help where the place itself matters.

A task counts as learned where at least 9 of 10 answers are right, and as not learned where at most half are.
"""

from __future__ import annotations

from milepost.claims.claim import Claim, Found, points
from milepost.claims.needs import Need
from milepost.claims.rule import Number, control, core, limit, most
from milepost.claims.seeds import accuracy
from milepost.claims.trained import Lab

LEARNED, HALF = 0.9, 0.5
BETTER_THAN_A_COIN = 0.6
"""Of two names: who knows the sentence, and not the order, is right half of the time."""


def _needs(task: str, deep: tuple[str, ...]) -> tuple[Need, Need]:
    return Need("one-layer", ("nope",), task), Need("deep", deep, task)


def _short(task: str, deep: tuple[str, ...]) -> tuple[Need, Need]:
    return Need("short-one-layer", ("nope",), task), Need("short", deep, task)


PREVIOUS = _needs("previous", ("nope", "rope", "alibi"))
WHO = _short("who", ("nope", "rope"))
NEAREST = _needs("antecedent", ("nope", "rope"))
INDEX = Need("short", ("learned", "sinusoidal", "rope", "alibi"), "index")


def _at_home(lab: Lab, need: Need, encoding: str) -> Number:
    """The share of right answers at the trained length."""
    runs = lab.runs(need, encoding)
    return accuracy(runs, need.data, runs[0]["trained_length"])


def asked(lab: Lab, needs: tuple[Need, Need]) -> Found:
    """A task without positions in one layer and in several, and with positions."""
    one, deep = needs
    found = {"nope, one layer": _at_home(lab, one, "nope")}
    found |= {
        f"{name}, {lab.plans[deep.sweep].shape.layers} layers": _at_home(lab, deep, name) for name in deep.encodings
    }
    names = ["one layer", *deep.encodings]
    return Found(
        dict(zip(names, found.values(), strict=True)), (points(f"{one.data}: right answers", "share", found, HALF),)
    )


def previous_found(lab: Lab) -> Found:
    """The previous-token task."""
    return asked(lab, PREVIOUS)


def who_found(lab: Lab) -> Found:
    """Who did what."""
    return asked(lab, WHO)


def nearest_found(lab: Lab) -> Found:
    """The nearest of several antecedents."""
    return asked(lab, NEAREST)


def index_found(lab: Lab) -> Found:
    """What stands at index k: absolute against relative schemes, by the better of each."""
    found = {name: _at_home(lab, INDEX, name) for name in INDEX.encodings}
    absolute, relative = (
        {name: found[name] for name in names} for names in (("learned", "sinusoidal"), ("rope", "alibi"))
    )
    a, r = (most(group.values()) for group in (absolute, relative))
    ahead = Number(a.value - r.value, a.sides[0] - r.sides[1], a.sides[1] - r.sides[0], a.over)
    return Found({"ahead": ahead, "best": most((a, r))}, (points("index: right answers", "share", found, HALF),))


CLAIMS = (
    Claim(
        "alice-bob",
        '"Alice hits Bob" and "Bob hits Alice" look the same without positions.',
        "没有位置信息时，“Alice hits Bob”和“Bob hits Alice”看起来一样。",
        "000 §1",
        "Small causal models are trained to say who did what to whom in a sentence, where order alone tells: without positions in one layer and in several, "
        "and with rope.",
        (
            control("rope", "at least", LEARNED, "the share of right answers with rope"),
            core(
                "one layer", "at most", BETTER_THAN_A_COIN, "the share of right answers without positions in one layer"
            ),
            limit(
                "nope", "at most", BETTER_THAN_A_COIN, "the share of right answers without positions in several layers"
            ),
        ),
        trained=who_found,
        needs=WHO,
    ),
    Claim(
        "previous-token",
        'Without positions a model cannot learn "attend to the previous token".',
        "没有位置信息，模型学不会“关注前一个词”。",
        "000 §2A",
        "Small causal models are trained to repeat the letter before an equals sign: without positions in one layer and in several, with rope, and with alibi.",
        (
            control("rope", "at least", LEARNED, "the share of right answers with rope"),
            core("one layer", "at most", HALF, "the share of right answers without positions in one layer"),
            limit("nope", "at most", HALF, "the share of right answers without positions in several layers"),
        ),
        trained=previous_found,
        needs=PREVIOUS,
    ),
    Claim(
        "nearest",
        "Without positions a model can't prefer the nearest of two equal antecedents.",
        "没有位置信息，模型无法在两个相同的先行词中选择最近的一个。",
        "000 §2A",
        "Small causal models are trained to name the last of several antecedents: without positions in one layer and in several, and with rope.",
        (
            control("rope", "at least", LEARNED, "the share of right answers with rope"),
            core("one layer", "at most", HALF, "the share of right answers without positions in one layer"),
            limit("nope", "at most", HALF, "the share of right answers without positions in several layers"),
        ),
        trained=nearest_found,
        needs=NEAREST,
    ),
    Claim(
        "absolute-tasks",
        "Absolute positions still win where the place itself matters.",
        "在位置本身重要的任务中，绝对位置编码仍占优。",
        "003",
        "Small models are trained to say what stands at index k of a short text: learned tables and sinusoids against rope and alibi, the better of each.",
        (
            control("best", "at least", HALF, "the share of right answers of the best of all"),
            core(
                "ahead",
                "at least",
                0.0,
                "the share of right answers by which the better absolute scheme is ahead of the better relative one",
            ),
        ),
        trained=index_found,
        needs=(INDEX,),
    ),
)
