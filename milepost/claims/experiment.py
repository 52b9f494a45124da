"""All that an experiment is written with: claims and their rules, models to train, numbers of several seeds.

The groups import it as a whole; each part has its own page beside this one.
"""

from __future__ import annotations

from milepost.claims.checkpoint import StretchedCheckpoint
from milepost.claims.claim import Claim, Measurement, Plot, measure_each, points
from milepost.claims.needs import Need
from milepost.claims.random_model import FAR, HEADS, WIDTH, RandomModel, gaussian, max_abs, permutation
from milepost.claims.rule import Clause, NotMeasured, Number, Rule, control, core, least, limit, most
from milepost.claims.seeds import (
    LEAD,
    SHARE,
    Numbers,
    Run,
    accuracy,
    gap,
    losses,
    mean_loss,
    mean_of_seeds,
    mean_over,
    rise,
    shares,
)
from milepost.claims.trained import Lab
from milepost.claims.training import fit, measure_once

__all__ = [
    "FAR",
    "HEADS",
    "LEAD",
    "SHARE",
    "WIDTH",
    "Claim",
    "Clause",
    "Lab",
    "Measurement",
    "Need",
    "NotMeasured",
    "Number",
    "Numbers",
    "Plot",
    "RandomModel",
    "Rule",
    "Run",
    "StretchedCheckpoint",
    "accuracy",
    "control",
    "core",
    "fit",
    "gap",
    "gaussian",
    "least",
    "limit",
    "losses",
    "max_abs",
    "mean_loss",
    "mean_of_seeds",
    "mean_over",
    "measure_each",
    "measure_once",
    "most",
    "permutation",
    "points",
    "rise",
    "shares",
]
