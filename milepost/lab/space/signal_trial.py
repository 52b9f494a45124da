"""A trial on signals: one Encoder trained, and measured axis by axis for whether it knows the order, as plain data."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from milepost.lab.space.encoder import Encoder
from milepost.lab.space.signal_plan import SignalPlan
from milepost.lab.space.signals import Signals
from milepost.lab.train import Recipe, labels
from milepost.lab.trial import Run, Tell, Trial, train_and_measure
from milepost.measure.intervals import share
from milepost.positions import grid

Numbers = np.ndarray[Any, Any]
FAR = 1 << 20
"""Positions by which a signal is moved."""
MOVED = 8
"""Signals that are moved."""
TESTING = 1 << 31
"""A part of the seed that no training has."""


def run_signal_trial(
    plan: SignalPlan, trial: Trial, folder: Path, tell: Tell = lambda news: None, data: Signals | None = None
) -> dict[str, Any]:
    """Train and measure; see `train_and_measure`. ``data`` is what generates the signals, if not the plan's own."""
    signals = plan.read() if data is None else data
    model = Encoder(plan.shape, trial.spec).start(trial.seed)
    recipe = Recipe(plan.steps, plan.rows, math.prod(signals.sides), seed=trial.seed, bfloat16=plan.bfloat16)

    def batch(step: int) -> tuple[Numbers, Numbers]:
        return signals.make(plan.rows, (trial.seed, step))

    def measure() -> list[Run]:
        tell({"measuring": "every axis"})
        tested, wanted = signals.make(plan.tested, (TESTING,))
        whole = share(int((answers(model, tested) == wanted).sum()), len(wanted))
        right = {"accuracy": whole.value, "low": whole.low, "high": whole.high, "chance": 1 / signals.classes}
        return [{**right, "signals": len(wanted), "by_axis": by_axis(model, signals, tested, wanted)}]

    empty: Run = {"strategy": "none", "by_axis": []}
    return train_and_measure(trial, model, folder, recipe, batch, labels, measure, tell, about={}, empty=empty)


def by_axis(model: Encoder, signals: Signals, tested: Numbers, wanted: Numbers) -> list[dict[str, Any]]:
    """Of each axis: how often its bit is right, whether a mirror turns it, and what a move along it changes."""
    bits, mine = signals.bits(wanted), signals.bits(answers(model, tested))
    rows = []
    for axis, name in enumerate(signals.axes):
        turned = signals.bits(answers(model, signals.mirrored(tested, axis))) != mine
        right = share(int((mine == bits)[:, axis].sum()), len(bits))
        mirror = share(int(turned[:, axis].sum()), len(bits))
        assert right.low is not None and mirror.low is not None
        rows.append(
            {
                "axis": name,
                "right": right.value,
                "right_low": right.low,
                "right_high": right.high,
                "turned": mirror.value,
                "turned_low": mirror.low,
                "turned_high": mirror.high,
                "others": float(np.delete(turned, axis, 1).mean()),
                "learned": right.low > 0.5 and mirror.low > 0.5,
                **moved(model, tested[:MOVED], axis),
            }
        )
    return rows


@torch.no_grad()
def answers(model: Encoder, signals: Numbers) -> Numbers:
    """The likeliest class of each signal."""
    some = np.array_split(signals, 1 + len(signals) // 256)
    return np.concatenate([model(torch.from_numpy(part).to(model.device)).argmax(-1).cpu().numpy() for part in some])


@torch.no_grad()
def moved(model: Encoder, signals: Numbers, axis: int) -> dict[str, Any]:
    """How much the logits change, in float64, when all tokens move far along an axis.

    As a control, every other token moves. Encodings that end, or that get one number a token, are not measured.
    """
    if any(enc.points and (enc.axes == 1 or enc.sides is not None) for enc in model.encodings):
        return {"moved_by": FAR, "change": None, "control": None, "largest_logit": None}
    exact, x = copy.deepcopy(model).double().cpu(), torch.from_numpy(signals).double()
    here = grid(*model.sides)
    before, changes = exact(x, here), []
    for some in (slice(None), slice(None, None, 2)):
        there = here.clone()
        there[axis, :, some] += FAR
        changes.append(float((exact(x, there) - before).abs().max()))
    return {"moved_by": FAR, "change": changes[0], "control": changes[1], "largest_logit": float(before.abs().max())}
