"""Space: positions of several axes."""

from __future__ import annotations

import torch

from milepost.claims.claim import Claim, Figure, Found
from milepost.claims.groups.practice.sight import SIGHT, sight_found
from milepost.claims.rule import control, core, limit
from milepost.claims.world import FAR, drawn, largest
from milepost.encodings.axial import Axial
from milepost.positions import grid
from milepost.testing.layer import budget

AXES = (1, 2, 3, 4)
HEAD, SIDE = 48, 3
MOVES = (1, 1000, FAR - SIDE)


def axes_found() -> Found:
    """Scores between all places of a small grid, moved along each axis by itself; and with one token moved alone."""
    together, alone = [], []
    for axes in AXES:
        enc = Axial(HEAD, axes=axes)
        pos = grid(*(SIDE,) * axes) if axes > 1 else torch.arange(SIDE)[None]
        n = pos.shape[-1]
        q, k = (drawn(1, 1, n, HEAD, seed=seed) / HEAD**0.5 for seed in (1, 2))

        def scores(
            at: torch.Tensor, to: torch.Tensor, enc: Axial = enc, q: torch.Tensor = q, k: torch.Tensor = k
        ) -> torch.Tensor:
            return enc.query(q, at) @ enc.key(k, to).transpose(-1, -2)

        here, worst, least = scores(pos, pos), 0.0, float("inf")
        for axis in range(axes):
            for by in MOVES:
                step = torch.zeros_like(pos)
                (step if axes == 1 else step[axis])[:] = by
                worst = max(worst, largest(scores(pos + step, pos + step) - here))
                least = min(least, largest(scores(pos, pos + step) - here))
        together.append(worst)
        alone.append(least)
    figure = Figure(
        "lines", "Change of scores when places move along one axis", "axes", "largest change", AXES,
        {"queries and keys together": together, "keys alone": alone}, log_y=True, mark=HEAD * budget(FAR),
    )  # fmt: skip
    return Found({"together": max(together), "alone": min(alone)}, (figure,))


CLAIMS = (
    Claim(
        "n-d",
        "RoPE extends to 2-D, and to 4-D data such as EEG.",
        "RoPE 可扩展到二维，以及脑电图等四维数据。",
        "004",
        "Scores between all places of a small grid of one to four axes, turned axis by axis: moved by up to 1,048,572 along each axis, together and "
        "the keys alone.",
        (
            control("alone", "at least", 1e-3, "the smallest change when keys move along one axis"),
            core(
                "together", "at most", HEAD * budget(FAR), "the largest change of a score when all move along one axis"
            ),
        ),
        exact=axes_found,
    ),
    Claim(
        "vit-2d",
        "Image patches need 2-D positions; learned 1-D tables do not carry to another resolution.",
        "图像块需要二维位置；可学习的一维位置表不能迁移到其他分辨率。",
        "001 §7, 004",
        "Small vision models are trained at one size and tested on the same images at half and at twice that: learned tables of one axis (as it is, or its row "
        "resampled) and of two (resampled on the grid), 2-D sinusoids, axial and mixed rope (told the new places, or those stretched onto the trained "
        "grid). Where there are two ways, the one that is right more often counts.",
        (
            control("learned", "at least", 0.5, "the share of right answers of the 1-D table at the trained size"),
            core(
                "half",
                "at least",
                0.0,
                "the share of images by which the 2-D table is ahead of the 1-D one at half the size",
            ),
            core("twice", "at least", 0.0, "the same lead at twice the size"),
            limit(
                "home, least",
                "at least",
                0.0,
                "the least lead of 2-D sinusoids, axial and mixed rope over the 1-D table at the trained size",
            ),
            limit("half, least", "at least", 0.0, "the same least lead at half the size"),
            limit("twice, least", "at least", 0.0, "the same least lead at twice the size"),
        ),
        trained=sight_found,
        needs=(SIGHT,),
    ),
)
