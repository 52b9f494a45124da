"""ALiBi, trained: flat losses, far recall, and whether far attention is like that of training."""

from __future__ import annotations

import numpy as np

from milepost.claims.experiment import (
    Claim,
    Lab,
    Measurement,
    Need,
    NotMeasured,
    Number,
    Plot,
    accuracy,
    control,
    core,
    mean_over,
    points,
)
from milepost.claims.groups.practice.lengths import sweep_lengths
from milepost.measure.losses import TOLERATED_RISE

ALIBI = Need("text", ("alibi",))
RECALL = Need("deep", ("rope", "alibi"), "recall")
DEPTHS = {"far": 0.0, "near": 1.0}
"""Depths at which the pair of a recall stands: at the beginning of the text, and just before the question."""


def measure_cost(lab: Lab) -> Measurement:
    """Recall from the beginning and from the end of a text of the trained length, with alibi and with rope."""
    shares: dict[str, Number] = {}
    for name in RECALL.encodings:
        runs = lab.runs(RECALL, name)
        length = runs[0]["trained_length"]
        shares |= {f"{name}, {word}": accuracy(runs, "recall", length, depth) for word, depth in DEPTHS.items()}
    numbers = {"rope near": shares["rope, near"], "alibi near": shares["alibi, near"]}
    numbers["behind"] = shares["rope, far"] - shares["alibi, far"]
    return Measurement(numbers, (points("recall at the trained length: right answers", "share", shares),))


def measure_distribution(lab: Lab) -> Measurement:
    """The entropy of every head's weights at the trained and the longest length; attention past the former."""
    runs = lab.runs(ALIBI, "alibi")
    if any(len(run["attention"]) < 2 for run in runs):
        raise NotMeasured("the run has statistics of attention at one length only")
    near, far = (look["length"] for look in runs[-1]["attention"])
    entropies = np.array([[[head["entropy"] for head in look["heads"]] for look in run["attention"]] for run in runs])
    change = np.abs(entropies[:, 1] - entropies[:, 0]) / entropies[:, 0]  # seeds x heads
    shares = [
        sum(share for start, share in zip(head["edges"], head["distance"], strict=False) if start >= near)
        for run in runs
        for head in run["attention"][-1]["heads"]
    ]
    names = [f"{head['layer']}, {head['head']}" for head in runs[0]["attention"][0]["heads"]]
    lines = {f"{n} tokens": [float(v) for v in entropies[:, k].mean(0)] for k, n in enumerate((near, far))}
    figure = Plot("points", "Entropy of attention, by layer and head", "layer, head", "nats", names, lines)
    spread = f"from {min(shares):.1%} to {max(shares):.1%}"
    note = f"at {far} tokens heads give {spread} of their attention to keys that are more than {near} tokens back"
    return Measurement({"change": mean_over(change, "heads")}, (figure,), (note, *lab.source(ALIBI)))


def measure_far_recall(lab: Lab) -> Measurement:
    """Recall at 8 times the trained length, from the beginning and from the end."""
    runs = lab.runs(RECALL, "alibi")
    shares = {
        f"{word}, {name}": accuracy(runs, "recall", times * runs[0]["trained_length"], DEPTHS[word])
        for name, times in (("trained length", 1), ("8 times", 8))
        for word in ("near", "far")
    }
    figure = points("recall with alibi: right answers", "share", shares, 0.5)
    return Measurement({"far recall": shares["far, 8 times"]}, (figure,))


CLAIMS = (
    Claim(
        "alibi-flat",
        "ALiBi's loss stays flat at 2 and 8 times the trained length.",
        "ALiBi 在训练长度的 2 倍和 8 倍处损失保持平稳。",
        "002, 003",
        "Small models trained with alibi, tested on the same tokens at up to 8 times the trained length.",
        (
            core(
                "2 times", "at most", TOLERATED_RISE, "the rise of the loss at 2 times the trained length, as a share"
            ),
            core("8 times", "at most", TOLERATED_RISE, "the rise of the loss at 8 times, as a share"),
        ),
        trained=sweep_lengths(ALIBI),
        needs=(ALIBI,),
    ),
    Claim(
        "alibi-cost",
        "ALiBi pays with far-distance tasks.",
        "ALiBi 的代价是远距离任务变差。",
        "001 §4.4.2, 002 §3",
        "Small models are trained to recall a value by its key; the pair stands at the beginning of a text of the "
        "trained length, or just before the question.",
        (
            control("rope near", "at least", 0.9, "the share of near answers that are right with rope"),
            control("alibi near", "at least", 0.9, "the share of near answers that are right with alibi"),
            core("behind", "at least", 0.0, "the share of far answers by which rope is ahead of alibi"),
        ),
        trained=measure_cost,
        needs=(RECALL,),
    ),
    Claim(
        "alibi-same-distribution",
        "Far away ALiBi computes in the same distribution as in training.",
        "ALiBi 在长距离上的计算与训练时完全同分布。",
        "001 §4.4",
        "The entropy of every head's attention in small models with alibi, at the trained length and at the longest.",
        (
            core(
                "change",
                "at most",
                TOLERATED_RISE,
                "the mean change of a head's entropy between the two lengths, as a share",
            ),
        ),
        trained=measure_distribution,
        needs=(ALIBI,),
    ),
)
