"""Learning: was a model trained enough? What doubling its tokens would still take away, from its own curve.

    L(t) = floor + scale t^-power,     gain = L(T) - L(2T)

The curve is fitted between a tenth and six tenths of the training, where the rate has not fallen far yet: the fall of
the rate at the end lowers the loss by itself, and would be taken for learning.
"""

from __future__ import annotations

from statistics import linear_regression
from typing import Any

FIRST, LAST, FEWEST = 0.1, 0.6, 10
POWERS = tuple(0.05 * number for number in range(1, 41))


def gain_of_doubling(curve: list[float]) -> float | None:
    """Nats a token; None where the curve has too few points. ``curve`` has means of equally long stretches."""
    count = len(curve)
    where = range(int(count * FIRST), int(count * LAST))
    if len(where) < FEWEST:
        return None
    values = [curve[place] for place in where]
    fits: list[tuple[float, float]] = []
    for power in POWERS:
        falls = [((place + 0.5) / count) ** -power for place in where]
        scale, floor = linear_regression(falls, values)
        error = sum((floor + scale * fall - value) ** 2 for fall, value in zip(falls, values, strict=True))
        fits.append((error, scale * (1 - 2.0**-power)))
    return max(0.0, min(fits)[1])


def unsettled(runs: list[dict[str, Any]], losses: dict[str, float]) -> list[str]:
    """Encodings that doubling the tokens could still bring past the best one, by their loss at the trained length."""
    if len(losses) < 2:
        return []
    best = min(losses.values())
    gains: dict[str, float] = {}
    for run in runs:
        gain = gain_of_doubling(run.get("train_loss") or [])
        if gain is not None:
            gains[run["encoding"]] = max(gain, gains.get(run["encoding"], 0.0))
    return [name for name, loss in losses.items() if best < loss < best + gains.get(name, 0.0)]
