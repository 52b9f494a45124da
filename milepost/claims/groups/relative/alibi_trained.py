"""ALiBi, trained: flat losses, far tasks, and whether far attention is like that of training.

Far tasks are two, and each has a near one beside it: a value is recalled by its key from the beginning of a text or
from its end, and a letter is repeated from half a text back (copy) or from two tokens back (previous). ALiBi pays in a
task where rope gives more than 2% more right answers: less counts as nothing, as in `recommend`, because two models
that are always right can't be told apart. It pays at all where it does so in one of them.
"""

from __future__ import annotations

import numpy as np

from milepost.claims.experiment import (
    LEAD,
    SHARE,
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
    least,
    limit,
    mean_over,
    most,
    points,
)
from milepost.claims.groups.practice.lengths import sweep_lengths
from milepost.encodings.alibi import slopes
from milepost.lab import tasks
from milepost.lab.task_scores import SEED, scores
from milepost.measure.losses import TOLERATED_RISE

ALIBI = Need("text", ("alibi",))
RECALL = Need("deep", ("rope", "alibi"), "recall")
DEPTHS = {"far": 0.0, "near": 1.0}
"""Depths at which the pair of a recall stands: at the beginning of the text, and just before the question."""
BOTH = {task: Need("deep", ("rope", "alibi"), task, weights=True) for task in ("recall", "previous", "copy")}
NEAR_FAR = {"recall": (("recall", 1.0), ("recall", 0.0)), "copy": (("previous", None), ("copy", None))}
"""The near and the far form of each task, with the depth of a recall."""
TESTED = 512
"""Texts."""


def right_answers(lab: Lab, name: str, task: str, depth: float | None) -> np.ndarray:
    """The share of right answers in each text (seeds x texts), at the trained length."""
    how = {} if depth is None else {"depth": depth}
    by_model = []
    for model in lab.models(BOTH[task], name):
        ids, scored, _ = tasks.rows(task, model.shape.length, TESTED, seed=SEED, **how)
        by_model.append(scores(model, ids, scored)[1] / scored.sum(1))
    return np.array(by_model)


def measure_cost(lab: Lab) -> Measurement:
    """Two far tasks and their near forms in texts of the trained length, with alibi and with rope."""
    shown: dict[str, Number] = {}
    leads: list[Number] = []
    near: dict[str, list[Number]] = {"rope": [], "alibi": []}
    for word, forms in NEAR_FAR.items():
        close, far = ({name: right_answers(lab, name, *form) for name in near} for form in forms)
        for name, shares in near.items():
            shares.append(mean_over(close[name], "texts", ends=SHARE))
            shown[f"{word}, near, {name}"] = shares[-1]
            shown[f"{word}, far, {name}"] = mean_over(far[name], "texts", ends=SHARE)
        leads.append(mean_over(far["rope"] - far["alibi"], "texts", ends=LEAD))
    numbers = {f"{name} near": least(some) for name, some in near.items()}
    numbers |= {"behind": most(leads), "least": least(leads)}
    shape = lab.plans["deep"].shape
    weakest = min(slopes(shape.heads)) * shape.length
    note = f"over {shape.length} tokens the weakest of {shape.heads} slopes takes {weakest:.2g} from a logit"
    return Measurement(numbers, (points("Right answers at the trained length", "share", shown),), (note,))


def measure_distribution(lab: Lab) -> Measurement:
    """The entropy of every head's weights at the trained and the longest length; attention past the former."""
    runs = [run for run in lab.runs(ALIBI, "alibi") if run.get("attention")]  # the package has those of one seed
    if not runs or any(len(run["attention"]) < 2 for run in runs):
        raise NotMeasured("the run has statistics of attention at one length only, or none")
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
        "Small models are trained to recall a value by its key, from the beginning of a text of the trained length or "
        "from just before the question; to copy letters from half a text back; and to repeat the letter two tokens "
        "back. Alibi and rope answer the same texts.",
        (
            control("rope near", "at least", 0.9, "the smaller share of near answers that are right with rope"),
            control("alibi near", "at least", 0.9, "the smaller share of near answers that are right with alibi"),
            core(
                "behind",
                "at least",
                TOLERATED_RISE,
                "the share of far answers by which rope is ahead of alibi, in the task where that is more",
            ),
            limit("least", "at least", TOLERATED_RISE, "the same lead in the other far task"),
        ),
        trained=measure_cost,
        needs=tuple(BOTH.values()),
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
