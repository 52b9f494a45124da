"""Match: which of the candidates does a server run?

    distance(c)     mean over targets of |server's loss - candidate's loss|, nats
    best            the candidate at the smallest distance
    the same here   candidates whose paired difference of |...| to the best one has an interval that touches 0, by a
                    bootstrap over stretches of the text: they can't be told apart
    noise           what 8-bit activations do to the best candidate's losses, run here: the inputs of every linear layer
                    are rounded to 8 bits in blocks of 32, as llama.cpp does. Coarser arithmetic is not in use for
                    unchanged weights
    fits            the best one's distance is at most 4 x that noise

Quantised weights must be those of the server: give its GGUF file. Targets of which only a bound is known are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from milepost.checkpoints.model.loaded import Loaded
from milepost.checkpoints.model.patch import hooked
from milepost.measure.drift import ALLOWANCE
from milepost.measure.intervals import Mean, Numbers, mean
from milepost.served.verification.candidates import CONFIG, Rotation

BLOCK, LEVELS = 32, 127
"""Channels that share a scale, and the largest number of 8 bits."""


@dataclass(frozen=True)
class Match:
    """``rows`` are the candidates, the nearest first; ``same`` those that can't be told from the best one.

    ``allowed`` is the distance up to which the best one fits.
    """

    rows: tuple[dict[str, Any], ...]
    same: tuple[str, ...]
    allowed: float
    targets: int

    @property
    def best(self) -> str:
        return str(self.rows[0]["candidate"])

    @property
    def fits(self) -> bool:
        return bool(self.rows[0]["distance"] <= self.allowed)

    def distance(self, name: str) -> float:
        """How far the server is from a candidate."""
        return float(next(row["distance"] for row in self.rows if row["candidate"] == name))

    @property
    def nearest_other(self) -> float | None:
        """The distance of the nearest candidate that can be told from the best one."""
        return next((float(row["distance"]) for row in self.rows if row["candidate"] not in self.same), None)


def losses_here(subject: Loaded, rotation: Rotation, windows: Numbers, positions: Sequence[Sequence[int]]) -> Numbers:
    """Losses (n k) of a candidate at the positions of each window."""
    rows = []
    with subject.turned(rotation.encodings):
        for row, at in zip(windows, positions, strict=True):
            ids = torch.from_numpy(np.ascontiguousarray(row[None, : at[-1] + 1])).to(subject.device)
            rows.append(subject.losses(ids)[0, [p - 1 for p in at]].double().cpu().numpy())
    return np.stack(rows)


@contextmanager
def eight_bits(model: nn.Module) -> Iterator[None]:
    """Within it, the inputs of linear layers are rounded to 8 bits, in blocks of 32 channels with a scale each."""

    def rounded(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        x = inputs[0]
        if x.shape[-1] % BLOCK:
            return inputs
        blocks = x.reshape(*x.shape[:-1], -1, BLOCK)
        scale = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-30) / LEVELS
        return ((blocks / scale).round().mul(scale).flatten(-2), *inputs[1:])

    parts = [part for part in model.modules() if isinstance(part, nn.Linear)]
    with hooked(*(part.register_forward_pre_hook(rounded) for part in parts)):
        yield


def match(
    server: Numbers, outside: Numbers, candidates: Mapping[str, Numbers], noisy: Numbers, noisy_of: str, blocks: int
) -> Match:
    """The candidates (n k each) against a server's losses (n k), ``blocks`` stretches to a window.

    ``noisy`` are the losses of candidate ``noisy_of`` with 8-bit activations.
    """
    known = ~outside
    off = {name: np.where(known, np.abs(server - losses), 0.0) for name, losses in candidates.items()}
    counts = known.reshape(len(server) * blocks, -1).sum(1)
    used = counts > 0
    if not used.any():
        raise ValueError("no target's loss is known, so that nothing can be compared")

    def average(values: Numbers) -> Mean:
        sums = values.reshape(len(server) * blocks, -1).sum(1)[used]
        return mean(sums[:, None], np.arange(int(used.sum())), counts=counts[used])

    distances = {name: average(values).value for name, values in off.items()}
    ranked = sorted(distances, key=distances.__getitem__)
    best, rows = ranked[0], []
    for name in ranked:
        excess = average(off[name] - off[best])
        touches = name == best or excess.low is None or excess.low <= 0
        rows.append(
            {"candidate": name, "distance": distances[name], "more_than_the_best": excess.to_json(), "same": touches}
        )
    noise = average(np.where(known, np.abs(noisy - candidates[noisy_of]), 0.0)).value
    same = tuple(str(row["candidate"]) for row in rows if row["same"])
    return Match(tuple(rows), same, ALLOWANCE * noise, int(known.sum()))


def rotation_sentence(found: Match) -> str:
    """What the server runs, in words."""
    if not found.fits:
        return (
            f"it runs none of the candidates: the nearest, {found.best}, is {found.rows[0]['distance']:.3g} nats a "
            f"token away, and 8-bit arithmetic explains {found.allowed:.2g}"
        )
    names = " or ".join(found.same)
    other = found.nearest_other
    apart = "" if other is None else f"; the nearest that can be told apart is {other:.3g} away"
    if CONFIG in found.same and len(found.same) == 1:
        return f"it turns as the config says: {found.rows[0]['distance']:.3g} nats a token away{apart}"
    if CONFIG in found.same:
        return f"it can't be told which of these it runs: {names}; a longer text may tell them apart"
    asked = found.distance(CONFIG)
    return (
        f"it runs {names} ({found.rows[0]['distance']:.3g} nats a token away), and not what the config asks for "
        f"({asked:.3g} away)"
    )
