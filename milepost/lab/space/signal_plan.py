"""SignalPlan: a run on made signals of three or four axes, as plain data. Is order along every axis learned?"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from milepost.lab.kinds import Tell, Trial
from milepost.lab.plan import SCHEMA
from milepost.lab.space.encoder import Encoder, Shape
from milepost.lab.space.signals import KINDS, Signals
from milepost.lab.strangers import import_named
from milepost.spec import nearest


@dataclass(frozen=True)
class Profile:
    """What a size word means; ``share`` channels of each head turn by each axis."""

    layers: int
    share: int
    heads: int
    steps: int
    rows: int
    tested: int
    seeds: int


PROFILES = {
    "tiny": Profile(1, 4, 2, 10, 8, 64, 1),
    "quick": Profile(2, 4, 4, 300, 32, 512, 1),
    "standard": Profile(2, 8, 4, 1000, 64, 2048, 3),
}


@dataclass(frozen=True)
class SignalPlan:
    """Everything that decides the numbers of a run. ``threads`` of a trial and ``digest`` of the signals are set as it begins."""

    profile: str
    modality: str
    shape: Shape
    steps: int
    rows: int
    tested: int
    seeds: tuple[int, ...]
    encodings: tuple[str, ...]
    threads: int = 1
    digest: str = ""
    schema: int = field(default=SCHEMA)
    reads: ClassVar[str] = "signals"

    def trials(self) -> list[Trial]:
        """Every model to train."""
        return [Trial(enc, seed, self.modality) for seed in self.seeds for enc in self.encodings]

    def trial(self, key: str) -> Trial:
        """The trial of a key."""
        return next(trial for trial in self.trials() if trial.key == key)

    def read(self) -> Signals:
        """What makes the signals."""
        return KINDS[self.modality]

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    @staticmethod
    def from_json(data: dict[str, Any]) -> SignalPlan:
        """The plan of `to_json`."""
        lists = {name: tuple(value) for name, value in data.items() if isinstance(value, list)}
        return SignalPlan(
            **{**data, **lists, "shape": Shape(**{**data["shape"], "sides": tuple(data["shape"]["sides"])})}
        )

    def weights(self) -> int:
        """About how many numbers a model has."""
        return (
            12 * self.shape.layers * self.shape.width**2
            + (self.shape.channels + self.shape.classes + math.prod(self.shape.sides)) * self.shape.width
        )

    def run(self, trial: Trial, folder: Path, tell: Tell) -> dict[str, Any]:
        """Train and measure one model."""
        from milepost.lab.space.signal_trial import run

        return run(self, trial, folder, tell)

    def compare(self, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Nothing is compared: each run is set against chance."""
        return []

    def protocol(self, data: Signals) -> dict[str, Any]:
        """How each number was made, in a sentence."""
        return {
            "plan": self.to_json(),
            "signals": data.describe(),
            "intervals": "95%, Wilson's",
            "label": "a bit for each axis: which of two marks stands before the other on it",
            "right": "share of test signals whose bit of this axis is told right; chance is a half",
            "turned": "share of test signals whose told bit of this axis turns when they are mirrored along it: 1 for who knows the order, 0 for who does not",
            "others": "share of the other axes' told bits that turn then: 0 for who keeps axes apart",
            "learned": "an axis is learned where the interval of `right` and that of `turned` lie above a half",
            "shift": "largest change of a logit, in float64, when all places move by so many along one axis; the control moves half of the tokens",
        }


def usual(kind: str) -> tuple[str, ...]:
    """What is tried: no position, and axial RoPE."""
    return "nope", f"axial(axes={len(KINDS[kind].axes)}, base=100.0)"


def make(kind: str, profile: str = "quick", *, encodings: Sequence[str] = (), seeds: Sequence[int] = ()) -> SignalPlan:
    """A plan from what a user asks for; all that can be wrong is found here, before any training."""
    if kind not in KINDS:
        raise ValueError(f"unknown signal {kind!r}{nearest(kind, KINDS)}; there are {', '.join(KINDS)}")
    if profile not in PROFILES:
        raise ValueError(
            f"unknown profile {profile!r} for signals{nearest(profile, PROFILES)}; there are {', '.join(PROFILES)}"
        )
    word, signals = PROFILES[profile], KINDS[kind]
    width = word.heads * word.share * len(signals.axes)
    shape = Shape(signals.sides, signals.channels, signals.classes, word.layers, width, word.heads)
    chosen = tuple(dict.fromkeys(encodings or usual(kind)))
    import_named(chosen)
    for spec in chosen:
        Encoder(shape, spec)  # unknown names, wrong arguments: said now
    numbers = tuple(seeds) or tuple(range(word.seeds))
    if len(set(numbers)) < len(numbers) or min(numbers) < 0:
        raise ValueError(f"seeds are different whole numbers, at least 0, got {list(numbers)}")
    return SignalPlan(profile, kind, shape, word.steps, word.rows, word.tested, numbers, chosen)
