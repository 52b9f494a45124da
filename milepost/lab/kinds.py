"""Kinds: a lab run reads text, images or signals. What the sweep, its processes and Ray ask of any plan is on this page, and no more.

A plan is plain data, so that it can be written down, sent elsewhere and compared with another; its ``modality`` says which kind it is (without one: text).
"""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

Tell = Callable[[dict[str, Any]], None]
HOMES = {
    "text": ("milepost.lab.plan", "Plan"),
    "image": ("milepost.lab.space.plan", "ImagePlan"),
    "video": ("milepost.lab.space.signal_plan", "SignalPlan"),
    "eeg": ("milepost.lab.space.signal_plan", "SignalPlan"),
}


@dataclass(frozen=True)
class Trial:
    """One model to train: an encoding, a seed, and what it reads ("text", a task, "image", ...)."""

    encoding: str
    seed: int
    data: str = "text"

    @property
    def key(self) -> str:
        """A name for its folder."""
        word = re.sub(r"[^a-z0-9]+", "-", f"{self.encoding}-{self.data}".lower()).strip("-")[:60]
        return f"{word}-{self.seed}-{hashlib.sha256(repr(self).encode()).hexdigest()[:6]}"


class Data(Protocol):
    """What models are trained and tested on."""

    @property
    def digest(self) -> str:
        """A name for the very bytes."""

    def describe(self) -> dict[str, Any]:
        """What a result says about it."""


class Asked(Protocol):
    """A plan of any kind."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    reads: ClassVar[str]
    """What it trains on, in a word."""

    @property
    def threads(self) -> int:
        """Of a trial: they decide the last bits."""

    @property
    def encodings(self) -> tuple[str, ...]:
        """What is compared."""

    @property
    def steps(self) -> int:
        """Of each training."""

    def trials(self) -> list[Trial]:
        """Every model to train."""

    def trial(self, key: str) -> Trial:
        """The trial of a key."""

    def to_json(self) -> dict[str, Any]:
        """Plain data, which `from_json` reads."""

    def read(self) -> Any:
        """What models are trained and tested on: a `Data`."""

    def weights(self) -> int:
        """About how many numbers a model has."""

    def run(self, trial: Trial, folder: Path, tell: Tell) -> dict[str, Any]:
        """Train and measure one model: all that a report needs."""

    def compare(self, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Runs set against each other."""

    def protocol(self, data: Any) -> dict[str, Any]:
        """How the numbers were made."""


def from_json(data: dict[str, Any]) -> Asked:
    """The plan of `to_json`, of whatever kind."""
    module, name = HOMES[data.get("modality", "text")]
    found: Asked = getattr(importlib.import_module(module), name).from_json(data)
    return found
