"""Rotation: what RoPE does to scores and norms, exactly."""

from __future__ import annotations

import torch
from torch import Tensor

from milepost.claims.experiment import FAR, Claim, Measurement, Plot, control, core, gaussian, limit, max_abs
from milepost.encodings.rope import RoPE
from milepost.rotation import rotate
from milepost.testing.layer import budget

HEAD = 64
DRAWS = 32
OFFSETS = (-131071, -1000, -7, -1, 0, 1, 7, 1000, 131071)
PLACES = (131071, 131072, 262144, 524287, FAR - 131071)
SINGLE = 2.0**-23
"""What float32 resolves at 1."""
SEEN = 1e-3


def vectors(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Random q and k of norm 1, DRAWS x HEAD."""
    q, k = (gaussian(DRAWS, HEAD, seed=seed) for seed in (1, 2))
    return tuple((x / x.norm(dim=-1, keepdim=True)).to(dtype) for x in (q, k))


def turned(x: Tensor, place: int, enc: RoPE | None = None) -> Tensor:
    """``x`` (n D) as the key at a position."""
    rope = RoPE(HEAD) if enc is None else enc
    return rope.key(x[None, :, None], torch.tensor([place]))[0, :, 0]


def score(q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
    """(R_i q) · (R_j k), one for each draw."""
    at = torch.tensor([i])
    return (RoPE(HEAD).query(q[None, :, None], at)[0, :, 0] * turned(k, j)).sum(-1)


def _spread(dtype: torch.dtype) -> float:
    """The largest spread of a score over positions, for every offset."""
    q, k = vectors(dtype)
    scores = torch.stack([torch.stack([score(q, k, i, i + offset) for i in PLACES]) for offset in OFFSETS]).double()
    return float((scores.amax(1) - scores.amin(1)).max())


def _in_float32() -> list[float]:
    """By position, the change of a score against position 0 where the angle itself is float32, as in plain code."""
    q, k = vectors(torch.float32)
    w = RoPE(HEAD).inv_freq.float()

    def plain(x: Tensor, place: int) -> Tensor:
        angle = torch.tensor([float(place)], dtype=torch.float32)[:, None] * w
        return rotate(x[None, :, None], angle.cos(), angle.sin(), HEAD, "half")[0, :, 0]

    near = (plain(q, 0) * plain(k, 7)).sum(-1)
    return [max_abs((plain(q, i) * plain(k, i + 7)).sum(-1) - near) for i in PLACES]


def measure_relative() -> Measurement:
    """Scores of one q and k at equal offsets, at positions up to 1,048,575."""
    by_place = _in_float32()
    figure = Plot(
        "lines",
        "Change of a score against the same offset at position 0, angles in float32",
        "position",
        "largest change",
        PLACES,
        {"float32 angles": by_place},
        log_x=True,
        log_y=True,
        mark=64 * SINGLE,
    )
    numbers = {"double": _spread(torch.float64), "single": _spread(torch.float32), "plain": max(by_place)}
    return Measurement(numbers, (figure,))


def measure_norm() -> Measurement:
    """Norms before and after, at positions up to 1,048,575."""
    q, _ = vectors()
    places = [0, 1, 255, 4096, *PLACES, FAR]
    changes = [max_abs(turned(q, p).norm(dim=-1) - 1) for p in places]
    moved = min(max_abs(turned(q, p) - q) for p in places[1:])
    x, axis = [p + 1 for p in places], "largest change of a norm of 1"
    figure = Plot("lines", "Norms after rotation", "position + 1", axis, x, {"rope": changes}, log_x=True)
    return Measurement({"change": max(changes), "moved": moved}, (figure,))


def measure_vanishes() -> Measurement:
    """The size of the rotation matrix itself, by distance."""
    eye = torch.eye(HEAD, dtype=torch.float64)
    distances = [1, 8, 64, 512, 4096, 4100, 4500, 32768, 262144, FAR]
    matrices = [turned(eye, d) for d in distances]
    lines = {
        "norm": [float(m.norm()) / HEAD**0.5 for m in matrices],
        "largest entry": [max_abs(m) for m in matrices],
    }
    title, axis = "Size of the rotation by a distance", "norm over that at distance 0"
    figure = Plot("lines", title, "distance", axis, distances, lines, log_x=True, mark=0.5)
    return Measurement({"far": min(lines["norm"])}, (figure,))


def measure_sign() -> Measurement:
    """Both sides of the equation, with m - n and with n - m."""
    q, k = vectors()
    places = [(7, 3), (3, 7), (1000, 10), (FAR, 131071)]
    errors = [
        max(max_abs(score(q, k, m, n) - (q * turned(k, sign * (m - n))).sum(-1)) for m, n in places) for sign in (1, -1)
    ]
    figure = Plot(
        "points",
        "(R_m q) · (R_n k) against q · (R_x k)",
        "",
        "largest error",
        ["x = m - n", "x = n - m"],
        {"error": errors},
        log_y=True,
        mark=budget(FAR),
    )
    return Measurement({"m - n": errors[0]}, (figure,), (f"with R_{{n-m}} the largest error is {errors[1]:.2g}",))


def measure_absolute() -> Measurement:
    """Scores with query and key exchanged."""
    q, k = vectors()
    distances = [1, 2, 4, 8, 16, 64, 256, 1024, 131071]
    changes = [max_abs(score(q, k, 0, d) - score(q, k, d, 0)) for d in distances]
    title = "Change of a score when the key stands as far on the other side"
    figure = Plot("lines", title, "distance", "largest change", distances, {"rope": changes}, log_x=True)
    return Measurement({"change": max(changes)}, (figure,))


CLAIMS = (
    Claim(
        "rope-relative",
        "(R_i q)·(R_j k) depends on j - i alone.",
        "(R_i q)·(R_j k) 只取决于 j - i。",
        "001 §5.2, 002 §2, 003",
        "Scores of 32 random q and k of norm 1 at nine offsets from five positions up to 1,048,575, in float64, in "
        "float32 with angles in float64, and with angles in float32 as in plain code.",
        (
            core("double", "at most", budget(FAR), "the largest spread of a score over positions, in float64"),
            core("single", "at most", 64 * SINGLE, "the largest spread over positions in float32, angles in float64"),
            limit("plain", "at most", 64 * SINGLE, "the largest change over positions with angles in float32"),
        ),
        exact=measure_relative,
    ),
    Claim(
        "rope-norm",
        "Rotation keeps norms.",
        "旋转保持范数不变。",
        "004",
        "Norms of 32 random vectors after rotation at positions up to 1,048,575, in float64.",
        (
            control("moved", "at least", SEEN, "the smallest change that a rotation makes to the vectors"),
            core("change", "at most", budget(1), "the largest change of a norm of 1"),
        ),
        exact=measure_norm,
    ),
    Claim(
        "rope-vanishes",
        "At far distance the rotation's values become very small or tend to zero.",
        "距离很远时，旋转矩阵的值会变得很小或趋近于零。",
        "002 §2, and the second answer",
        "The norm of the rotation matrix at distances from 1 to 1,048,575, over that at distance 0.",
        (core("far", "at most", 0.5, "the smallest norm of the rotation at any distance, over that at 0"),),
        exact=measure_vanishes,
    ),
    Claim(
        "rope-sign",
        "(R_m q)·(R_n k) = q·(R_{m-n} k).",
        "(R_m q)·(R_n k) = q·(R_{m-n} k)。",
        "001 §5.2",
        "Both sides for 32 random q and k of norm 1 at four pairs of positions up to 1,048,575, in float64; and again "
        "with n - m.",
        (core("m - n", "at most", budget(FAR), "the largest error with R_{m-n}"),),
        exact=measure_sign,
    ),
    Claim(
        "rope-abs",
        "The rotation depends on the absolute distance |j - i|.",
        "旋转只取决于绝对距离 |j - i|。",
        "002 §二",
        "Scores of 32 random q and k of norm 1 with the key before the query, and as far after it, in float64.",
        (
            core(
                "change",
                "at most",
                budget(131071),
                "the largest change of a score when the key stands as far on the other side",
            ),
        ),
        exact=measure_absolute,
    ),
)
