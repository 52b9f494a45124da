"""A small text to read, and plans small enough to run in a test."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from milepost.lab.model import Shape
from milepost.lab.plan import TextPlan, make

WORDS = [
    "position",
    "token",
    "length",
    "query",
    "key",
    "value",
    "table",
    "angle",
    "base",
    "window",
    "near",
    "far",
    "layer",
    "head",
    "loss",
    "text",
]


@pytest.fixture(scope="session")
def texts(tmp_path_factory) -> Path:
    """A folder of twenty texts of some 3000 bytes."""
    folder = tmp_path_factory.mktemp("texts")
    for number in range(20):
        rng = np.random.default_rng(number)
        (folder / f"text-{number:02}.txt").write_text(" ".join(rng.choice(WORDS, 500)))
    return folder


@pytest.fixture
def small(texts):
    """A plan of a tiny model with some of its fields set."""

    def made(encodings=("rope",), *, seeds=(0,), lengths="1x,2x,4x", strategies=("linear",), **fields) -> TextPlan:
        plan = make(
            "tiny", encodings=encodings, strategy_names=strategies, lengths=lengths, seeds=seeds, text=str(texts)
        )
        return replace(plan, **{"steps": 8, "rows": 4, "windows": 6, "shape": Shape(256, 2, 16, 2, 16), **fields})

    return made
