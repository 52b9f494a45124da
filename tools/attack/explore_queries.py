"""Queries to the explorer: every view with wrong, huge and foreign values; answers are JSON without NaN, or files."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from milepost.explore.answer import KINDS, answer, file
from milepost.explore.views import VIEWS
from tools.attack import specs
from tools.attack.mutation import NUMBERS, WORDS

KEYS = ("encoding", "lang", "width", "set.0.base", "set.0.heads", "set.0.scaling.factor", "set.9.x", "set.", "target")


def prepare(folder: Path) -> Any:
    """What specs are made of."""
    return specs.prepare(folder)


def attack(state: Any, rng: random.Random) -> None:
    """One query."""
    names, words = state
    view = rng.choice([*VIEWS, *VIEWS, *VIEWS, "x"])
    known = [control.name for control in VIEWS[view].CONTROLS] if view in VIEWS else []
    query: dict[str, str] = {}
    if rng.random() < 0.7:
        query["encoding"] = (
            specs._call(names, words, rng, 1)
            if rng.random() < 0.6
            else rng.choice(VIEWS[view].ENCODINGS if view in VIEWS else ["rope"])
        )
    for _ in range(rng.randrange(4)):
        given = rng.choice((str(rng.choice(NUMBERS)), rng.choice(WORDS)[:400], "zh", "1.5", "-3", "9" * 500, "1e400"))
        query[rng.choice([*known, *known, *KEYS])] = given
    json.dumps(answer(view, query), allow_nan=False)
    if rng.random() < 0.2:
        file(view, rng.choice([*KINDS, "exe"]), {**query, "figure": rng.choice(("0", "0", "1", "-1", "9" * 20))})
