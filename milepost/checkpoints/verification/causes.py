"""Causes: what a wrong table of frequencies, temperature or position looks like.

Each is recognised by its numbers, or not at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from milepost.rope import LayerRope, RopeSpec
from milepost.spectrum import geometric


@dataclass(frozen=True)
class Live:
    """Measured frequencies, and how far the angle at position ``low`` may be off."""

    w: Tensor
    low: int
    may: Tensor

    def is_table(self, other: Tensor) -> bool:
        """Whether another table gives the same angles."""
        return other.shape == self.w.shape and bool(((self.w - other).abs() * self.low <= 2 * self.may).all())


def why_frequencies(live: Live, rope: LayerRope, spec: RopeSpec, length: int) -> str:
    """What the measured frequencies are instead."""
    w = live.w
    if not bool(torch.isfinite(w).all()):
        return "they are not numbers: the table was never initialised, as after a lazy load (meta device, to_empty)"
    if bool((w.abs() * live.low <= live.may).all()):
        return (
            "they are all zero: the table was never initialised (a lazy load: meta device, to_empty), or nothing turns"
        )
    for kind, other in spec.kinds:
        if other is not None and other != rope and live.is_table(other.spectrum(length).tensor()):
            return f"they are those of the {kind} layers: two kinds of layers are swapped"
    for dtype in (torch.bfloat16, torch.float16):
        if live.is_table(rope.spectrum(length).tensor().to(dtype).double()):
            return f"they are the right ones, rounded to {str(dtype).removeprefix('torch.')}"
    if rope.scaling is not None and live.is_table(rope.plain().tensor()):
        return (
            "they are those without the config's scaling: was the config changed after the model was built? It is "
            "read only then"
        )
    base = _base(live, rope)
    if base is not None:
        plain = f"they are those of base {base:.6g}, and the config has {rope.base:.6g}"
        if abs(base - 10000) < 20:
            return plain + ": theta was lost, and the usual default is in its place"
        return plain + ": was the config changed after the model was built? It is read only then"
    even = w / rope.spectrum(length).tensor()
    if float((even - even[0]).abs().max()) < 1e-3 * abs(float(even[0])):
        return (
            f"all are {float(even[0]):.4g} times what is asked: positions are multiplied, or the encoding is applied "
            "twice"
        )
    falling = bool((w > 0).all()) and bool((w[1:] <= w[:-1] * 1.001).all()) and float(w[0]) < 1.5
    if not falling:
        return (
            "they do not fall from 1 as frequencies do: the table looks never initialised, as after a lazy load (meta "
            "device, to_empty)"
        )
    return (
        "they are neither those of another base nor without the scaling: was the config changed after the model was "
        "built?"
    )


def _base(live: Live, rope: LayerRope) -> float | None:
    """The base whose plain frequencies, scaled as the config asks or not, are the measured ones."""
    pairs = len(live.w)
    if pairs < 2 or not bool((live.w > 0).all()) or rope.rotary != 2 * pairs:
        return None
    i = torch.arange(pairs, dtype=torch.float64)
    sure = (live.w * live.low > 16 * live.may) & (i > 0)
    if not bool(sure.any()):
        return None
    last = int(sure.nonzero().max())
    for known in (10000.0, math.exp(-float(live.w[last].log()) * pairs / last)):
        if 1 < known < 1e12 and live.is_table(geometric(rope.rotary, known).tensor()):
            return known
    return None


def why_temperature(got: float, asked: float) -> str:
    """What the measured temperature is instead."""
    for value, words in (
        (asked**2, "it is squared: applied twice"),
        (asked**0.5, "its root: applied to one of q and k only"),
        (1.0, "it is not applied: was the config changed after the model was built?"),
    ):
        if abs(got / value - 1) < 1e-3:
            return words
    return "its cause is not known"


def why_position(unit: Tensor, at: int, live: Tensor, may: Tensor, spec: RopeSpec) -> str:
    """Which position a token is turned to instead of its own."""
    if not bool(torch.isfinite(unit.abs()).all()):
        return f"position {at} gives no number"
    ends = [n for n in (spec.served, spec.trained, spec.scaled) if n]
    tried = {at % n: f"positions are wrapped at {n}, a table's end" for n in ends} | {
        n - 1: f"positions are held at {n - 1}, a table's end" for n in ends
    }
    for dtype in (torch.bfloat16, torch.float16):
        tried.setdefault(
            int(torch.tensor(float(min(at, 65504))).to(dtype)), f"positions are in {str(dtype).removeprefix('torch.')}"
        )
    for other, words in tried.items():
        line = torch.polar(torch.ones_like(live), other * live)
        if other != at and bool(((unit - line).abs() <= 4 * may).all()):
            return f"position {at} is turned as position {other}: {words}"
    return f"position {at} is not turned by {at} times the angle of position 1"
