"""ALiBi, trained: flat losses, far recall, and whether far computation is like that of training."""

from __future__ import annotations

import numpy as np

from milepost.checkpoints.recommendation.recommend import HURTS
from milepost.claims.claim import Claim, Figure, Found, NotMeasured, points
from milepost.claims.groups.practice.lengths import by_length, rises
from milepost.claims.needs import Need
from milepost.claims.rule import Number, control, core
from milepost.claims.seeds import accuracy, both
from milepost.claims.trained import Lab
from milepost.measure.intervals import mean

ALIBI = Need("text", ("alibi",))
RECALL = Need("deep", ("rope", "alibi"), "recall")
BEGINNING, END = 0.0, 1.0
"""Depths at which the pair of a recall stands: as far back as can be, and just before the question."""


def flat_found(lab: Lab) -> Found:
    """The length sweep."""
    runs = lab.runs(ALIBI, "alibi")
    return Found(rises(runs), (by_length("Loss of the same tokens", {"alibi": runs}),), lab.source(ALIBI))


def cost_found(lab: Lab) -> Found:
    """Recall from the beginning and from the end of a text of the trained length, with alibi and with rope."""
    found: dict[str, Number] = {}
    for name in RECALL.encodings:
        runs = lab.runs(RECALL, name)
        length = runs[0]["trained_length"]
        found |= {
            f"{name}, {word}": accuracy(runs, "recall", length, depth)
            for word, depth in (("far", BEGINNING), ("near", END))
        }
    rope, alibi = found["rope, far"], found["alibi, far"]
    behind = Number(rope.value - alibi.value, rope.sides[0] - alibi.sides[1], rope.sides[1] - alibi.sides[0], rope.over)
    numbers = {"rope near": found["rope, near"], "alibi near": found["alibi, near"], "behind": behind}
    return Found(numbers, (points("recall at the trained length: right answers", "share", found),))


def entropies(lab: Lab) -> tuple[list[np.ndarray], list[int]]:
    """By seed: the entropy (2 x heads) of each head at the trained length and at the longest; and both lengths."""
    found, lengths = [], []
    for run in lab.runs(ALIBI, "alibi"):
        looks = run["attention"]
        if len(looks) < 2:
            raise NotMeasured("the run has statistics of attention at one length only")
        found.append(np.array([[head["entropy"] for head in look["heads"]] for look in looks]))
        lengths = [look["length"] for look in looks]
    return found, lengths


def distribution_found(lab: Lab) -> Found:
    """The entropy of every head's weights at the trained length and at the longest, and how much attention goes past the trained length."""
    found, (near, far) = entropies(lab)
    change = np.array([np.abs(one[1] - one[0]) / one[0] for one in found])  # seeds x heads
    one = mean(change.mean(0)[:, None], np.arange(change.shape[1]))
    number = both([float(v) for v in change.mean(1)], one.low, one.high, f"{change.shape[1]} heads")
    shares = []
    for run in lab.runs(ALIBI, "alibi"):
        for head in run["attention"][-1]["heads"]:
            shares.append(
                sum(share for start, share in zip(head["edges"], head["distance"], strict=False) if start >= near)
            )
    heads = [f"{head['layer']}, {head['head']}" for head in lab.runs(ALIBI, "alibi")[0]["attention"][0]["heads"]]
    lines = {
        f"{n} tokens": [float(np.mean([o[k][h] for o in found])) for h in range(len(heads))]
        for k, n in enumerate((near, far))
    }
    figure = Figure("points", "Entropy of attention, by layer and head", "layer, head", "nats", heads, lines)
    most = f"from {min(shares):.1%} to {max(shares):.1%}"
    note = f"at {far} tokens heads give {most} of their attention to keys more than {near} tokens back, which training had not"
    return Found({"change": number}, (figure,), (note, *lab.source(ALIBI)))


def far_recall_found(lab: Lab) -> Found:
    """Recall at 8 times the trained length, from the beginning and from the end."""
    runs = lab.runs(RECALL, "alibi")
    length = runs[0]["trained_length"]
    found = {
        "near, trained length": accuracy(runs, "recall", length, END),
        "far, trained length": accuracy(runs, "recall", length, BEGINNING),
        "near, 8 times": accuracy(runs, "recall", 8 * length, END),
        "far, 8 times": accuracy(runs, "recall", 8 * length, BEGINNING),
    }
    return Found(
        {"far recall": found["far, 8 times"]}, (points("recall with alibi: right answers", "share", found, 0.5),)
    )


CLAIMS = (
    Claim(
        "alibi-flat",
        "ALiBi's loss stays flat at 2 and 8 times the trained length.",
        "ALiBi 在训练长度的 2 倍和 8 倍处损失保持平稳。",
        "002, 003",
        "Small models trained with alibi, tested on the same tokens at up to 8 times the trained length.",
        (
            core("2 times", "at most", HURTS, "the rise of the loss at 2 times the trained length, as a share,"),
            core("8 times", "at most", HURTS, "the rise of the loss at 8 times, as a share,"),
        ),
        trained=flat_found,
        needs=(ALIBI,),
    ),
    Claim(
        "alibi-cost",
        "ALiBi pays with far-distance tasks.",
        "ALiBi 的代价是远距离任务变差。",
        "001 §4.4.2, 002 §3",
        "Small models are trained to recall a value by its key; the pair stands at the beginning of a text of the trained length, or just before the question.",
        (
            control("rope near", "at least", 0.9, "the share of near answers that are right with rope"),
            control("alibi near", "at least", 0.9, "the share of near answers that are right with alibi"),
            core("behind", "at least", 0.0, "the share of far answers by which rope is ahead of alibi"),
        ),
        trained=cost_found,
        needs=(RECALL,),
    ),
    Claim(
        "alibi-same-distribution",
        "Far away ALiBi computes in the same distribution as in training.",
        "ALiBi 在长距离上的计算与训练时完全同分布。",
        "001 §4.4",
        "The entropy of every head's attention in small models with alibi, at the trained length and at the longest.",
        (core("change", "at most", HURTS, "the mean change of a head's entropy between the two lengths, as a share,"),),
        trained=distribution_found,
        needs=(ALIBI,),
    ),
)
