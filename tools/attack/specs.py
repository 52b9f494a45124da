"""Specs of encodings: names, arguments and values put together wrongly; what is built must give finite numbers."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch

from milepost import Encoding, Layout
from milepost.attention import attend
from milepost.encodings import NAMES, SPACE
from milepost.encodings.catalogue import page
from milepost.explore.specs import built
from milepost.maps import NAMES as MAPS
from milepost.scaling import SCALINGS
from milepost.spec import build

VALUES = (
    "0",
    "1",
    "2",
    "-1",
    "3.5",
    "1e400",
    "1e-320",
    "nan",
    "None",
    "True",
    "'half'",
    "'x'",
    "10000.0",
    "(2, 2)",
    "[1]",
    "''",
)


def prepare(folder: Path) -> Any:
    """Names, and the arguments of each."""
    names = [*NAMES, *SPACE, *MAPS, *SCALINGS, "none", "x:y", "__import__"]
    words = sorted({word for name in (*NAMES, *SPACE) for word in page(name).arguments})
    return names, [*words, "scaling", "rope", "base", "factor", "trained", "heads", "x"]


def attack(state: Any, rng: random.Random) -> None:
    """One spec, built twice: under the explorer's limits, and as the command line builds it."""
    names, words = state
    text = " + ".join(_call(names, words, rng, 0) for _ in range(rng.choice((1, 1, 1, 2, 3))))
    if rng.random() < 0.15:
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(("(", ")", ",", "=", ".", "\0", "é", "[" * 90, " " * 50, "**")) + text[at:]
    built(text)
    use(build(text, heads=2, head_dim=8, width=16, length=16), text)


def use(made: Encoding, text: str) -> None:
    """Attend with it, features of hidden states included; what it gives must be finite."""
    if made.axes == 1:
        q, at = torch.ones(1, 2, 5, 8), Layout.dense(5)
        features = made.features(torch.ones(1, 5, 16), at.pos) if made.feature_count else None
        out = attend(q, q, q, made, at=at, features=features)
        assert bool(torch.isfinite(out).all()), f"{text} gives numbers that are not finite"


def _call(names: list[str], words: list[str], rng: random.Random, depth: int) -> str:
    count = rng.choice((0, 0, 1, 1, 2, 3))
    given = ", ".join(f"{rng.choice(words)}={_value(names, words, rng, depth)}" for _ in range(count))
    return f"{rng.choice(names)}({given})" if count or rng.random() < 0.3 else rng.choice(names)


def _value(names: list[str], words: list[str], rng: random.Random, depth: int) -> str:
    return _call(names, words, rng, depth + 1) if rng.random() < 0.3 and depth < 3 else rng.choice(VALUES)
