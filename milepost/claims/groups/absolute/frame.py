"""frame: a task whose answer depends on the position in a fixed frame, irregularly; and how models solve it.

at position p, the answer is the letter there, shifted by s_p;     s: drawn once, for all texts and models

A formula misses the pattern where a model with it does not learn the task: where fewer than 9 of 10 answers are right,
the bound of tasks.py for every task. How far a table is ahead decides nothing where both know all answers.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from milepost.claims.experiment import Lab, Measurement, Number, fit, measure_once, points, shares
from milepost.claims.groups.absolute.tasks import LEARNED
from milepost.lab.model import Decoder, Shape
from milepost.lab.train import Recipe

FRAME, LETTERS, FIRST = 32, 26, 97
ENCODINGS = ("learned", "sinusoidal", "rope")
STEPS = {"quick": 600, "standard": 600}
TESTED = 512
"""Rows."""


def rows(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Letters (count x FRAME), and the answer at each position."""
    shifts = np.random.default_rng(4).integers(0, LETTERS, FRAME)
    letters = np.random.default_rng((5, seed)).integers(0, LETTERS, (count, FRAME))
    return torch.from_numpy(FIRST + letters), torch.from_numpy(FIRST + (letters + shifts) % LETTERS)


def right(encoding: str, seed: int, steps: int) -> Number:
    """The share of right answers of one model."""
    model = Decoder(Shape(256, 2, 96, 4, FRAME), encoding).start(seed)
    fit(model, lambda step: rows(32, (seed + 1) * 1_000_003 + step), Recipe(steps, 32, FRAME, seed=seed))
    letters, answers = rows(TESTED, 0)
    with torch.no_grad():
        return Number(float((model(letters).argmax(-1) == answers).double().mean()))


def measure_frame(lab: Lab) -> Measurement:
    """The share of right answers with each encoding."""
    home, by_encoding = lab.home("frame"), {}
    for encoding in ENCODINGS:
        values = [
            measure_once(home, f"{encoding}-{seed}", partial(right, encoding, seed, STEPS[lab.profile])).value
            for seed in lab.seeds
        ]
        by_encoding[encoding] = shares(values, TESTED * len(values), "rows")
    return Measurement(by_encoding, (points("Right answers in the frame", "share", by_encoding, LEARNED),))
