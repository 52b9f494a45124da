"""Functions of distance, trained: shared by heads or not, in buckets or smooth.

Parameters of their own help heads where sharing them costs more than 2% of the loss: a cost of at most that counts as
none, as in `recommend`. A cost of nothing could never be told from 0, however many texts are read.
"""

from __future__ import annotations

from milepost.claims.experiment import (
    Claim,
    Lab,
    Measurement,
    Need,
    Number,
    core,
    gap,
    least,
    limit,
    losses,
    most,
    points,
)
from milepost.claims.groups.practice.lengths import by_length, rises
from milepost.measure.losses import TOLERATED_RISE

EQUAL = "alibi(slopes=(0.03125, 0.03125, 0.03125, 0.03125))"
"""ALiBi with the geometric mean of the slopes of four heads in all of them."""
FAMILIES = {"t5": "t5(shared=True)", "kerple": "kerple(shared=True)", "alibi": EQUAL}
SHARED = Need("again", tuple(name for pair in FAMILIES.items() for name in pair))
BUCKETS, SMOOTH = ("t5", "shaw"), ("kerple", "fire")
KINDS = Need("text", (*BUCKETS, *SMOOTH))


def measure_shared(lab: Lab) -> Measurement:
    """What sharing costs in each family, at the trained length, on the same tokens."""
    costs = {}
    for own, shared in FAMILIES.items():
        runs = lab.runs(SHARED, own)
        home = runs[0]["trained_length"]
        cost, base = gap(runs, lab.runs(SHARED, shared), home), float(losses(runs, home).mean())
        costs[own] = Number(cost.value / base, cost.sides[0] / base, cost.sides[1] / base, cost.over)
    figure = points("What sharing over heads costs", "share of the loss", costs, TOLERATED_RISE)
    return Measurement({"most": most(costs.values()), "least": least(costs.values())}, (figure,))


def measure_kinds(lab: Lab) -> Measurement:
    """Parameters of the encodings, and the rise of the loss at 8 times the trained length: the better of each kind."""
    runs = {name: lab.runs(KINDS, name) for name in KINDS.encodings}
    smallest = min(run["parameters"] for some in runs.values() for run in some)
    rise = {name: rises(some)["8 times"] for name, some in runs.items()}
    bucket, smooth = (least(rise[name] for name in names) for names in (BUCKETS, SMOOTH))
    sizes = {name: some[0]["parameters"] for name, some in runs.items()}
    beyond = ", ".join(f"{name} {size - smallest}" for name, size in sizes.items())
    fewer = float(min(sizes[name] for name in SMOOTH) - min(sizes[name] for name in BUCKETS))
    figures = (
        points("Rise of the loss at 8 times the trained length", "share", rise, TOLERATED_RISE),
        by_length("Loss of the same tokens", runs),
    )
    note = f"parameters of whole models beyond those of the smallest: {beyond}"
    return Measurement({"ahead": bucket - smooth, "fewer": fewer}, figures, (note, *lab.source(KINDS)))


CLAIMS = (
    Claim(
        "shared-heads",
        "Sharing position parameters over heads costs diversity; per-head ones help.",
        "各头共享位置参数会牺牲多样性；分头的参数更好。",
        "001 §1.4",
        "Small models with t5, kerple and alibi, each with its own parameters (slopes) for every head and with one "
        "set for all, on the same tokens at the trained length.",
        (
            core("most", "at least", TOLERATED_RISE, "the largest cost of sharing among the three, as a share"),
            limit("least", "at least", TOLERATED_RISE, "the smallest cost of sharing among the three"),
        ),
        trained=measure_shared,
        needs=(SHARED,),
    ),
    Claim(
        "bucket-or-function",
        "Continuous functions of distance need fewer parameters than bucketed tables, and reach farther.",
        "与分桶的表相比，距离的连续函数参数更少、范围更远。",
        "001 §4.5",
        "Small models with t5 and shaw against kerple and fire: parameters, and the rise of the loss at 8 times the "
        "trained length, the better of each kind.",
        (
            core("fewer", "at most", 0.0, "the parameters of the smaller function minus those of the smaller table"),
            core(
                "ahead",
                "at least",
                0.0,
                "the rise of the loss of the better table minus that of the better function, as shares",
            ),
        ),
        trained=measure_kinds,
        needs=(KINDS,),
    ),
)
