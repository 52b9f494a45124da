"""Real: a checkpoint that the reader gives, stretched to twice its trained length without training, on the reader's text.

Same targets: the last half of the trained length is scored, with the trained length and with twice it read. A stretched model keeps one setting for
both, as a served one does. What was measured once is held for all claims, and kept window by window in OUT/checkpoint.json: a run that was stopped goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from milepost.checkpoints.model.load import load
from milepost.checkpoints.model.text import read_text
from milepost.checkpoints.recommendation.candidates import by_layer
from milepost.claims.claim import NotMeasured
from milepost.claims.rule import Number
from milepost.measure.intervals import mean
from milepost.measure.losses import same_targets
from milepost.measure.results import write_json
from milepost.rope.spec import LayerRope, RopeSpec
from milepost.scaling.yarn import YaRN

TIMES, WINDOWS = 2, 4
FILE = "checkpoint.json"
Numbers = np.ndarray[Any, Any]


class Real:
    """One model and one text; losses are measured when they are first asked for."""

    def __init__(
        self,
        model: str | Path,
        text: str | Path,
        tell: Callable[[str, float], None] = lambda what, share: None,
        out: Path | None = None,
    ):
        self.subject, self.tell = load(model), tell
        spec, trained = self.subject.spec, self.subject.trained
        if spec is None or trained is None:
            raise ValueError(
                f"claims about stretching want a rotary model that says its trained length; {self.subject.name} is none: give another --model"
            )
        self.spec, self.trained, self.target = replace(spec, trained=trained), trained, TIMES * trained
        read = read_text(text, self.subject)
        self.begin = read.begin
        self.windows, self.groups = read.windows(self.target, WINDOWS)
        self.about = {
            "model": self.subject.name,
            "positions": repr(self.spec),
            "text": read.digest,
            "windows": len(self.windows),
            "begin": self.begin,
        }
        self.file = None if out is None else out / FILE
        self.held: dict[tuple[str, int], list[float]] = self._kept()
        self.subject.prove(
            by_layer(self.spec, len(self.subject.inspection.layers))
        )  # what is put in the place of its rotation is it, unstretched

    def _stretched(self, method: str) -> RopeSpec:
        made = self.spec.extended(self.target, method.split(",", maxsplit=1)[0])  # type: ignore[arg-type]
        if method == "yarn, no temperature":
            made = replace(made, kinds=tuple((kind, _cold(rope)) for kind, rope in made.kinds))
        return made

    def losses(self, method: str, length: int) -> Numbers:
        """Mean losses of the targets (windows,) under a method ("none": as it is), with ``length`` tokens read."""
        done = self.held.setdefault((method, length), [])
        layers = len(self.subject.inspection.layers)
        for number in range(len(done), len(self.windows)):
            self.tell(f"{self.subject.name}, {method}, {length} tokens", number / len(self.windows))
            with nullcontext() if method == "none" else self.subject.turned(by_layer(self._stretched(method), layers)):
                found = float(
                    same_targets(
                        self.subject, self.windows[number][None], length, max(1, self.trained // 2), begin=self.begin
                    ).mean()
                )
            if not np.isfinite(found):
                raise NotMeasured(f"a loss of {self.subject.name} with {method} at {length} tokens is no number")
            done.append(found)
            if self.file is not None:
                write_json(
                    self.file,
                    {
                        **self.about,
                        "losses": [
                            {"method": name, "length": n, "by_window": some} for (name, n), some in self.held.items()
                        ],
                    },
                )
        return np.array(done)

    def _kept(self) -> dict[tuple[str, int], list[float]]:
        """What was measured before of the same model on the same text."""
        if self.file is None or not self.file.exists():
            return {}
        told = json.loads(self.file.read_text(encoding="utf-8"))
        other = [
            f"{name} {told.get(name)!r}, not {value!r}" for name, value in self.about.items() if told.get(name) != value
        ]
        if other:
            raise ValueError(f"{self.file} was measured with {'; '.join(other)}: name another --out")
        return {(one["method"], one["length"]): one["by_window"] for one in told["losses"]}

    def _mean(self, values: Numbers) -> Number:
        one = mean(values[:, None], self.groups)
        return Number(one.value, one.low, one.high, f"{len(values)} windows")

    def gain(self, method: str, against: str = "none") -> Number:
        """Nats gained at twice the trained length."""
        return self._mean(self.losses(against, self.target) - self.losses(method, self.target))

    def cost(self, method: str) -> Number:
        """What texts of the trained length pay, as a share of what the model loses there."""
        plain = self.losses("none", self.trained)
        return self._mean((self.losses(method, self.trained) - plain) / plain.mean())

    def rise(self, method: str) -> Number:
        """How much more is lost at twice the trained length than by the model as it is at the trained one, as a share."""
        plain = self.losses("none", self.trained)
        return self._mean((self.losses(method, self.target) - plain) / plain.mean())


def _cold(rope: LayerRope | None) -> LayerRope | None:
    """The same without a temperature."""
    if rope is None or not isinstance(rope.scaling, YaRN):
        return rope
    return replace(rope, scaling=replace(rope.scaling, attention_factor=1.0))
