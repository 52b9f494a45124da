"""A checkpoint that the reader gives, stretched to twice its trained length without training, on the reader's text.

The targets are the same: the last half of the trained length is scored, with the trained length and with twice that as
context. A stretched model has one setting for both, as a served model has. Losses are measured once for all claims, and
written window by window to OUT/checkpoint.json, so that a stopped run continues.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np

from milepost.checkpoints.model.load import load
from milepost.checkpoints.model.text import read_text
from milepost.checkpoints.recommendation.candidates import encodings_by_layer
from milepost.claims.rule import NotMeasured, Number
from milepost.claims.seeds import Numbers
from milepost.measure.intervals import mean
from milepost.measure.losses import same_targets
from milepost.measure.results import write_json
from milepost.rope import LayerRope, RopeSpec
from milepost.scaling import YaRN

TIMES, WINDOWS = 2, 4
FILE = "checkpoint.json"


class StretchedCheckpoint:
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
                "claims about stretching need a model with rotary positions whose config says its trained length; "
                f"{self.subject.name} is not one: give another --model"
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
        self.held: dict[tuple[str, int], list[float]] = self._measured_before()
        # our rotation, unstretched, gives the model's own outputs
        self.subject.prove(encodings_by_layer(self.spec, len(self.subject.inspection.layers)))

    @property
    def note(self) -> str:
        """What was read, for the evidence."""
        return f"on {self.subject.name}, trained at {self.trained}, read at {self.target}"

    def _stretched(self, method: str) -> RopeSpec:
        made = self.spec.extended(self.target, method.split(",", maxsplit=1)[0])  # type: ignore[arg-type]
        if method == "yarn, no temperature":
            made = replace(made, kinds=tuple((kind, _without_temperature(rope)) for kind, rope in made.kinds))
        return made

    def losses(self, method: str, length: int) -> Numbers:
        """Mean losses of the targets (windows,) under a method ("none": as it is), in ``length`` tokens of context."""
        losses = self.held.setdefault((method, length), [])
        layers = len(self.subject.inspection.layers)
        scored = max(1, self.trained // 2)
        for number in range(len(losses), len(self.windows)):
            self.tell(f"{self.subject.name}, {method}, {length} tokens", number / len(self.windows))
            with (
                nullcontext()
                if method == "none"
                else self.subject.turned(encodings_by_layer(self._stretched(method), layers))
            ):
                window = self.windows[number][None]
                loss = float(same_targets(self.subject, window, length, scored, begin=self.begin).mean())
            if not np.isfinite(loss):
                raise NotMeasured(f"a loss of {self.subject.name} with {method} at {length} tokens is not finite")
            losses.append(loss)
            if self.file is not None:
                rows = [{"method": name, "length": n, "by_window": some} for (name, n), some in self.held.items()]
                write_json(self.file, {**self.about, "losses": rows})
        return np.array(losses)

    def _measured_before(self) -> dict[tuple[str, int], list[float]]:
        """The losses in the file, which must be of the same model and the same text."""
        if self.file is None or not self.file.exists():
            return {}
        held = json.loads(self.file.read_text(encoding="utf-8"))
        other = [
            f"{name} {held.get(name)!r}, not {value!r}" for name, value in self.about.items() if held.get(name) != value
        ]
        if other:
            raise ValueError(f"{self.file} was measured with {'; '.join(other)}: name another --out")
        return {(row["method"], row["length"]): row["by_window"] for row in held["losses"]}

    def _mean(self, values: Numbers) -> Number:
        over_windows = mean(values[:, None], self.groups)
        return Number(over_windows.value, over_windows.low, over_windows.high, f"{len(values)} windows")

    def gain(self, method: str, against: str = "none") -> Number:
        """By how many nats a method lowers the loss at twice the trained length."""
        return self._mean(self.losses(against, self.target) - self.losses(method, self.target))

    def cost(self, method: str) -> Number:
        """By what share a method raises the loss of texts of the trained length."""
        return self._against_plain(self.losses(method, self.trained))

    def rise(self, method: str) -> Number:
        """By what share the loss at twice the trained length is above that of the model as it is at the trained one."""
        return self._against_plain(self.losses(method, self.target))

    def _against_plain(self, losses: Numbers) -> Number:
        plain = self.losses("none", self.trained)
        return self._mean((losses - plain) / plain.mean())


def _without_temperature(rope: LayerRope | None) -> LayerRope | None:
    if rope is None or not isinstance(rope.scaling, YaRN):
        return rope
    return replace(rope, scaling=replace(rope.scaling, attention_factor=1.0))
