"""frame: a task whose answer depends on the place in a fixed frame, irregularly. And what models make of it.

at place p, the answer is the letter there, shifted by s_p;     s: drawn once, for all texts and models
"""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from torch import Tensor

from milepost.claims.claim import Found, points
from milepost.claims.rule import Number
from milepost.claims.seeds import shares
from milepost.claims.small import fit, kept
from milepost.claims.trained import Lab
from milepost.lab.model import Decoder, Shape
from milepost.lab.train import Recipe

FRAME, LETTERS, FIRST = 32, 26, 97
ENCODINGS = ("learned", "sinusoidal", "rope")
STEPS = {"quick": 300, "standard": 600}
TESTED = 96
"""Rows."""


def rows(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Letters (count x FRAME), and the answer at each place."""
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


def frame_found(lab: Lab) -> Found:
    """Each encoding, and how far the table is ahead."""
    home, found = lab.home("frame"), {}
    for encoding in ENCODINGS:
        values = [
            kept(home, f"{encoding}-{seed}", partial(right, encoding, seed, STEPS[lab.profile])).value
            for seed in lab.seeds
        ]
        found[encoding] = shares(values, TESTED * len(values), "rows")
    table = found["learned"]
    ahead = {
        name: Number(table.value - one.value, table.sides[0] - one.sides[1], table.sides[1] - one.sides[0], one.over)
        for name, one in found.items() if name != "learned"
    }  # fmt: skip
    return Found({"learned": table, **ahead}, (points("Right answers in the frame", "share", found, 0.5),))
