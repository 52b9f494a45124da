"""Frequencies: base, wrapping, and which pairs carry what."""

from __future__ import annotations

import math
from itertools import pairwise

import torch

from milepost.claims.experiment import FAR, Claim, Lab, Measurement, Need, Plot, core, gap, limit
from milepost.claims.groups.absolute.sinusoids import nearest
from milepost.claims.groups.practice.lengths import by_length
from milepost.spectrum import geometric

SIZE = 128
BASES = (100.0, 1000.0, 10000.0, 100000.0, 500000.0)
TRIED = Need("text", ("rope(base=100.0)", "rope", "rope(base=500000.0)"))
NEAR = 0.05
"""Of the diameter of a pair's circle: two positions of a pair that are nearer count as one."""


def measure_base() -> Measurement:
    """Wavelengths and the angle between neighbours, by base."""
    spectra = [geometric(SIZE, base) for base in BASES]
    longest = [max(s.wavelengths) for s in spectra]
    step = [sum(s.frequencies) / len(s.frequencies) for s in spectra]
    fastest = [max(s.frequencies) for s in spectra]
    turns = {"mean of pairs": step, "fastest pair": fastest}
    figures = (
        Plot("lines", "Longest wavelength", "base", "tokens", BASES, {"longest": longest}, log_x=True, log_y=True),
        Plot("lines", "Angle from one token to the next", "base", "radians", BASES, turns, log_x=True),
    )
    growths = {name: [b / a for a, b in pairwise(v)] for name, v in (("step", step), ("fastest", fastest))}
    numbers = {"longest": min(b / a for a, b in pairwise(longest))} | {name: max(v) for name, v in growths.items()}
    return Measurement(numbers, figures)


def measure_bases(lab: Lab) -> Measurement:
    """Small models of three bases."""
    runs = {name: lab.runs(TRIED, name) for name in TRIED.encodings}
    small, _, large = runs.values()
    home = small[0]["trained_length"]
    numbers = {"far": gap(small, large, 8 * home), "home": gap(small, large, home)}
    return Measurement(numbers, (by_length("Loss of the same tokens", runs),), lab.source(TRIED))


def measure_wrap() -> Measurement:
    """The nearest positions of each pair by itself, and of all pairs together."""
    spectrum = geometric(SIZE)
    w = spectrum.tensor()
    alone = []
    for pair, wave in enumerate(spectrum.wavelengths):
        turns = torch.arange(1, max(2, int(FAR / wave) + 1))[:100000]
        k = (turns * wave).round().long()
        k = k[(k >= 1) & (k <= FAR)]
        alone.append(float((2 * torch.sin(k * w[pair] / 2)).abs().min()) / 2 if len(k) else 1.0)
    whole = [pair for pair, wave in enumerate(spectrum.wavelengths) if wave <= FAR]
    best, where, octaves = nearest(w)
    widest = 2 * math.sqrt(SIZE / 2)
    offsets = [1 << n for n in range(len(octaves))]
    first = [float(torch.sin(torch.arange(k, min(2 * k, FAR + 1)).double() * w[0] / 2).abs().min()) for k in offsets]
    figure = Plot(
        "lines",
        "The nearest other position",
        "offset, from",
        "smallest distance over the largest possible",
        offsets,
        {"all pairs together": (octaves / widest).tolist(), "pair 0 alone": first},
        log_x=True,
        mark=NEAR,
    )
    notes = (
        f"all pairs together are nearest at offset {where}",
        f"{len(whole)} of {SIZE // 2} pairs make a full turn by position {FAR}",
    )
    return Measurement({"one": max(alone[pair] for pair in whole), "joint": best / widest}, (figure,), notes)


CLAIMS = (
    Claim(
        "base-up",
        "A larger base helps long range and costs local resolution (the document says both this and its opposite).",
        "增大底数有利于长距离，但牺牲局部分辨率（笔记中两种相反的说法并存）。",
        "001 §5.3",
        "Wavelengths and the angle from one token to the next for bases from 100 to 500,000, each against the base "
        "before. Small models trained with rope of base 100, 10,000 and 500,000, at the trained length and at 8 times "
        "it.",
        (
            core("longest", "at least", 1.01, "the smallest growth of the longest wavelength"),
            core("step", "at most", 0.99, "the largest growth of the mean angle between neighbours"),
            limit("fastest", "at most", 0.99, "the largest growth of the fastest pair's angle between neighbours"),
            limit(
                "far",
                "at most",
                0.0,
                "the loss with the largest base minus that with the smallest at 8 times the trained length, in nats",
            ),
            limit("home", "at least", 0.0, "the same difference at the trained length"),
        ),
        exact=measure_base,
        trained=measure_bases,
        needs=(TRIED,),
    ),
    Claim(
        "phase-wrap",
        "Past a full turn, far positions alias.",
        "超过一整圈之后，远处的位置会混叠、无法区分。",
        "001 §5.3.1",
        "For each pair that makes a full turn by position 1,048,575, the distance to its nearest other position, over "
        "the diameter of its circle; then that of all 64 pairs together, over every offset.",
        (
            core("one", "at most", NEAR, "the largest distance of any one pair to its nearest other position"),
            limit("joint", "at most", NEAR, "the distance of all pairs together to their nearest other position"),
        ),
        exact=measure_wrap,
    ),
)
