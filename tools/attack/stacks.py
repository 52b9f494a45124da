"""Stacks of layers, `layers(3 * rope in window(4096), nope)`: groups, counts and windows put together wrongly."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from milepost.spec import build
from milepost.stack import Stack
from tools.attack import specs

COUNTS = ("1", "2", "3", "0", "-1", "1024", "1025", "9" * 400, "1.5", "True", "'x'", "rope")


def prepare(folder: Path) -> Any:
    """What specs are made of."""
    return specs.prepare(folder)


def attack(state: Any, rng: random.Random) -> None:
    """One stack: what it prints is read as the same, and each kind of its layers is used."""
    text = f"layers({', '.join(_group(state, rng) for _ in range(rng.choice((0, 1, 2, 2, 3))))})"
    text = f"{text} + rope" if rng.random() < 0.05 else text
    if rng.random() < 0.15:
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(("(", ")", ",", "*", " in ", "\0", "layers(", "[" * 90, "3 * ")) + text[at:]
    made = build(text, heads=2, head_dim=8, width=16, length=16)
    assert repr(build(repr(made), heads=2, head_dim=8, width=16, length=16)) == repr(made), f"{text} prints another"
    for number in {0, 1, 2, 1000} if isinstance(made, Stack) else ():
        specs.use(made.layer(number)[0], text)


def _group(state: Any, rng: random.Random) -> str:
    names, words = state
    known = ("rope", "nope", "alibi", "t5", "fox", "temperature", "rope + alibi")
    text = rng.choice(known) if rng.random() < 0.7 else specs._call(names, words, rng, 1)
    if rng.random() < 0.4:
        text = f"{rng.choice(COUNTS)} * ({text})" if "+" in text else f"{rng.choice(COUNTS)} * {text}"
    return f"{text} in window({rng.choice(COUNTS)})" if rng.random() < 0.3 else text
