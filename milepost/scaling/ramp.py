"""Ramp: how much of each pair's frequency is kept, from 1 (fast pairs) to 0 (slow pairs), in the two ways that are in
use.

    turns of pair i over `trained` tokens        r_i = trained * w_i / 2π
    pair that makes r turns (a real number)      c(r) = d ln(trained / (2π r)) / (2 ln base)

    over turns    clip((r_i - slow) / (fast - slow), 0, 1)          linear in turns: the YaRN paper
    over pairs    1 - clip((i - c(fast)) / (c(slow) - c(fast)), 0, 1)    linear in the pair's number: the released code

They agree at both ends and not between: at pair 15 of gpt-oss, 0.047 over turns and 0.258 over pairs.

Bounds over pairs are held inside 0 .. `most`, and may cross there: where no pair makes as few turns as `slow`, or none
as many as `fast`. Published code then keeps what it should interpolate, or the reverse; here that is an error.
"""

from __future__ import annotations

import math

from milepost.spectrum import Spectrum


def pair_with(turns: float, plain: Spectrum, trained: int) -> float:
    """The pair, as a real number, that makes so many turns over the trained length."""
    return plain.size * math.log(trained / (2 * math.pi * turns)) / (2 * math.log(plain.base))


def over_turns(plain: Spectrum, trained: int, fast: float, slow: float) -> list[float]:
    """The share of each pair that is kept, linear in its turns; a step where both bounds are one."""
    if fast == slow:
        return [1.0 if trained * w / (2 * math.pi) >= slow else 0.0 for w in plain.frequencies]
    return [min(1.0, max(0.0, (trained * w / (2 * math.pi) - slow) / (fast - slow))) for w in plain.frequencies]


def bounds(
    plain: Spectrum, trained: int, fast: float, slow: float, *, truncate: bool, most: float
) -> tuple[float, float]:
    """The pairs between which the ramp falls, whole numbers with ``truncate``, the last at most ``most``."""
    low, high = pair_with(fast, plain, trained), pair_with(slow, plain, trained)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    return max(low, 0), min(high, most)


def over_pairs(plain: Spectrum, trained: int, fast: float, slow: float, *, truncate: bool, most: float) -> list[float]:
    """The share of each pair that is kept, linear in its number."""
    low, high = bounds(plain, trained, fast, slow, truncate=truncate, most=most)
    if high < low:
        what = f"pairs {low:g} and {high:g} of {len(plain.frequencies)}"
        raise ValueError(
            f"the bounds of the ramp ({fast:g} and {slow:g} turns over {trained} tokens) cross: {what}; a ramp over "
            "turns has no bounds"
        )
    width = high - low or 0.001  # equal bounds: a step
    return [1 - min(1.0, max(0.0, (i - low) / width)) for i in range(len(plain.frequencies))]
