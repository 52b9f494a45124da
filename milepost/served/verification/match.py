"""Match: which of the candidates does a server run?

    distance        mean over targets of |server's loss - candidate's loss|, nats
    best            the candidate at the smallest distance
    the same here   candidates whose paired difference of |...| to the best one has an interval that touches 0, by a
                    bootstrap over stretches of the text: they can't be told apart
    far             that interval lies above 0 by more than its own width: six standard errors. Such a candidate is out
                    of the race after the first eighth of each text, and is not run on the whole
    noise           what 8-bit activations do to the best candidate's losses, run here: the inputs of every linear layer
                    are rounded to 8 bits in blocks of 32, as llama.cpp does. Coarser arithmetic is not in use for
                    unchanged weights
    fits            the best one's distance is at most 4 x that noise

Quantised weights must be those of the server: give its GGUF file. Targets of which only a bound is known are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor, nn

from milepost.checkpoints.model.patch import hooked
from milepost.measure.intervals import Numbers, mean
from milepost.served.verification.candidates import CONFIG

BLOCK, LEVELS = 32, 127
"""Channels that share a scale, and the largest number of 8 bits."""


@dataclass(frozen=True)
class Match:
    """``rows`` are the candidates, the nearest first, those that were run on the start of texts alone last.

    ``allowed`` is the distance up to which the best one fits; ``targets`` were compared.
    """

    rows: tuple[dict[str, Any], ...]
    allowed: float
    targets: int

    @property
    def same(self) -> tuple[str, ...]:
        """Those that can't be told from the best one."""
        return tuple(str(row["candidate"]) for row in self.rows if row["same"])

    @property
    def best(self) -> str:
        return str(self.rows[0]["candidate"])

    @property
    def fits(self) -> bool:
        return bool(self.rows[0]["distance"] <= self.allowed)

    def distance(self, name: str) -> float | None:
        """How far the server is from a candidate; None where it gave no numbers, or those of another one."""
        return next((float(row["distance"]) for row in self.rows if row["candidate"] == name), None)

    @property
    def nearest_other(self) -> float | None:
        """The distance of the nearest candidate that can be told from the best one."""
        return min((float(row["distance"]) for row in self.rows if not row["same"]), default=None)


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
    server: Numbers, outside: Numbers, candidates: Mapping[str, Numbers], stretches: Numbers, tokens: int
) -> tuple[dict[str, Any], ...]:
    """The candidates (n k each) against a server's losses (n k), the nearest first. ``tokens`` were read of each text.

    ``stretches`` (k) says which stretch of a window each target is in.
    """
    known = ~outside
    groups = (stretches + np.arange(len(server))[:, None] * (int(stretches.max()) + 1))[known]
    if not known.any():
        raise ValueError("no target's loss is known, so that nothing can be compared")
    off = {name: np.abs(server - losses)[known] for name, losses in candidates.items()}
    ranked = sorted(off, key=lambda name: float(off[name].mean()))
    rows = []
    for name in ranked:
        excess = mean((off[name] - off[ranked[0]])[:, None], groups)
        low, high = excess.low, excess.high
        rows.append(
            {
                "candidate": name, "distance": float(off[name].mean()), "more_than_the_best": excess.to_json(),
                "same": name == ranked[0] or low is None or low <= 0,
                "far": name != ranked[0] and low is not None and high is not None and low > high - low,
                "tokens": tokens,
            }
        )  # fmt: skip
    return tuple(rows)


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
    far = "which gives no numbers" if asked is None else f"{asked:.3g} away"
    return (
        f"it runs {names} ({found.rows[0]['distance']:.3g} nats a token away), and not what the config asks for ({far})"
    )
