"""Space: positions of several axes."""

from __future__ import annotations

import torch
from torch import Tensor

from milepost.claims.experiment import FAR, Claim, Measurement, Plot, control, core, gaussian, limit, max_abs
from milepost.claims.groups.practice.sight import SIGHT, measure_sight
from milepost.encodings.axial import Axial
from milepost.measure.losses import TOLERATED_RISE
from milepost.positions import grid
from milepost.testing.layer import budget

AXES = (1, 2, 3, 4)
HEAD, SIDE = 48, 3
MOVES = (1, 1000, FAR - SIDE)


def measure_axes() -> Measurement:
    """Scores between all positions of a small grid, moved along each axis by itself; and with the keys moved alone."""
    together, alone = [], []
    for axes in AXES:
        enc = Axial(HEAD, axes=axes)
        pos = grid(*(SIDE,) * axes) if axes > 1 else torch.arange(SIDE)[None]
        q, k = (gaussian(1, 1, pos.shape[-1], HEAD, seed=seed) / HEAD**0.5 for seed in (1, 2))
        steps = [_step(pos, axis, by) for axis in range(axes) for by in MOVES]
        here = _scores(enc, q, k, pos, pos)
        together.append(max(max_abs(_scores(enc, q, k, pos + step, pos + step) - here) for step in steps))
        alone.append(min(max_abs(_scores(enc, q, k, pos, pos + step) - here) for step in steps))
    figure = Plot(
        "lines",
        "Change of scores when positions move along one axis",
        "axes",
        "largest change",
        AXES,
        {"queries and keys together": together, "keys alone": alone},
        log_y=True,
        mark=HEAD * budget(FAR),
    )
    return Measurement({"together": max(together), "alone": min(alone)}, (figure,))


def _scores(enc: Axial, q: Tensor, k: Tensor, at: Tensor, to: Tensor) -> Tensor:
    return enc.query(q, at) @ enc.key(k, to).transpose(-1, -2)


def _step(pos: Tensor, axis: int, by: int) -> Tensor:
    """What moves positions (axes n, or 1 n) along one axis."""
    step = torch.zeros_like(pos)
    step[axis] = by
    return step


CLAIMS = (
    Claim(
        "n-d",
        "RoPE extends to 2-D, and to 4-D data such as EEG.",
        "RoPE 可扩展到二维，以及脑电图等四维数据。",
        "004",
        "Scores between all positions of a small grid of one to four axes, turned axis by axis: queries and keys move "
        "by up to 1,048,572 along each axis together, and the keys alone.",
        (
            control("alone", "at least", 1e-3, "the smallest change when keys move along one axis"),
            core(
                "together", "at most", HEAD * budget(FAR), "the largest change of a score when all move along one axis"
            ),
        ),
        exact=measure_axes,
    ),
    Claim(
        "vit-2d",
        "Image patches need 2-D positions; learned 1-D tables do not carry to another resolution.",
        "图像块需要二维位置；可学习的一维位置表不能迁移到其他分辨率。",
        "001 §7, 004",
        "Small vision models are trained at one size and tested on the same images at half and at twice that: learned "
        "tables of one axis (as they are, or resampled along their row) and of two (resampled on the grid), 2-D "
        "sinusoids, axial and mixed rope (with the positions of the new grid, or those scaled to the trained grid). "
        "Where there are two ways, the one that is right more often counts.",
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
                TOLERATED_RISE,
                "the smallest lead of 2-D sinusoids, axial and mixed rope over the 1-D table at the trained size",
            ),
            limit("half, least", "at least", 0.0, "the same smallest lead at half the size"),
            limit("twice, least", "at least", 0.0, "the same smallest lead at twice the size"),
        ),
        trained=measure_sight,
        needs=(SIGHT,),
    ),
)
