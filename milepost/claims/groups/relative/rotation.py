"""Rotation: what RoPE does to scores and norms, exactly."""

from __future__ import annotations

import torch
from torch import Tensor

from milepost.claims.claim import Claim, Figure, Found
from milepost.claims.rule import control, core, limit
from milepost.claims.world import FAR, drawn, largest
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
    q, k = (drawn(DRAWS, HEAD, seed=seed) for seed in (1, 2))
    return tuple((x / x.norm(dim=-1, keepdim=True)).to(dtype) for x in (q, k))


def turned(x: Tensor, place: int, enc: RoPE | None = None) -> Tensor:
    """``x`` (n D) as the key at a place."""
    rope = RoPE(HEAD) if enc is None else enc
    return rope.key(x[None, :, None], torch.tensor([place]))[0, :, 0]


def score(q: Tensor, k: Tensor, i: int, j: int) -> Tensor:
    """(R_i q) · (R_j k), one for each draw."""
    at = torch.tensor([i])
    return (RoPE(HEAD).query(q[None, :, None], at)[0, :, 0] * turned(k, j)).sum(-1)


def _spread(dtype: torch.dtype) -> float:
    """The largest spread of a score over places, for every offset."""
    q, k = vectors(dtype)
    scores = torch.stack([torch.stack([score(q, k, i, i + offset) for i in PLACES]) for offset in OFFSETS]).double()
    return float((scores.amax(1) - scores.amin(1)).max())


def _in_float32() -> tuple[list[float], float]:
    """The same where the angle itself is float32, as plain code has it: by place the change against place 0, and the largest."""
    q, k = vectors(torch.float32)
    w = RoPE(HEAD).inv_freq.float()

    def plain(x: Tensor, place: int) -> Tensor:
        angle = torch.tensor([float(place)], dtype=torch.float32)[:, None] * w
        return rotate(x[None, :, None], angle.cos(), angle.sin(), HEAD, "half")[0, :, 0]

    near = (plain(q, 0) * plain(k, 7)).sum(-1)
    changes = [largest((plain(q, i) * plain(k, i + 7)).sum(-1) - near) for i in PLACES]
    return changes, max(changes)


def relative_found() -> Found:
    """Scores of one q and k at equal offsets, at places up to 1,048,575."""
    by_place, plain = _in_float32()
    figure = Figure(
        "lines", "Change of a score against the same offset at place 0, angles in float32", "place", "largest change", PLACES, {"float32 angles": by_place},
        log_x=True, log_y=True, mark=64 * SINGLE,
    )  # fmt: skip
    return Found({"double": _spread(torch.float64), "single": _spread(torch.float32), "plain": plain}, (figure,))


def norm_found() -> Found:
    """Norms before and after, at places up to 1,048,575."""
    q, _ = vectors()
    places = [0, 1, 255, 4096, *PLACES, FAR]
    changes = [largest(turned(q, p).norm(dim=-1) - 1) for p in places]
    moved = min(largest(turned(q, p) - q) for p in places[1:])
    figure = Figure(
        "lines",
        "Norms after rotation",
        "place + 1",
        "largest change of a norm of 1",
        [p + 1 for p in places],
        {"rope": changes},
        log_x=True,
    )
    return Found({"change": max(changes), "moved": moved}, (figure,))


def vanishes_found() -> Found:
    """The size of the rotation matrix itself, by distance."""
    eye = torch.eye(HEAD, dtype=torch.float64)
    distances = [1, 8, 64, 512, 4096, 4100, 4500, 32768, 262144, FAR]
    sizes = [float(turned(eye, d).norm()) / HEAD**0.5 for d in distances]
    signs = [largest(turned(eye, d)) for d in distances]
    figure = Figure(
        "lines", "Size of the rotation by a distance", "distance", "norm over that at distance 0", distances, {"norm": sizes, "largest entry": signs},
        log_x=True, mark=0.5,
    )  # fmt: skip
    return Found({"far": min(sizes)}, (figure,))


def sign_found() -> Found:
    """Both sides of the equation, with m - n and with n - m."""
    q, k = vectors()
    places = [(7, 3), (3, 7), (1000, 10), (FAR, 131071)]
    errors = {"m - n": 0.0, "n - m": 0.0}
    for m, n in places:
        left = score(q, k, m, n)
        for name, by in (("m - n", m - n), ("n - m", n - m)):
            errors[name] = max(errors[name], largest(left - (q * turned(k, by)).sum(-1)))
    figure = Figure(
        "points", "(R_m q) · (R_n k) against q · (R_x k)", "", "largest error", ["x = m - n", "x = n - m"], {"error": [errors["m - n"], errors["n - m"]]},
        log_y=True, mark=budget(FAR),
    )  # fmt: skip
    return Found({"m - n": errors["m - n"]}, (figure,), (f"with R_{{n-m}} the largest error is {errors['n - m']:.2g}",))


def absolute_found() -> Found:
    """Scores with query and key exchanged."""
    q, k = vectors()
    distances = [1, 2, 4, 8, 16, 64, 256, 1024, 131071]
    changes = [largest(score(q, k, 0, d) - score(q, k, d, 0)) for d in distances]
    figure = Figure(
        "lines", "Change of a score when the key stands as far on the other side", "distance", "largest change", distances, {"rope": changes}, log_x=True,
    )  # fmt: skip
    return Found({"change": max(changes)}, (figure,))


CLAIMS = (
    Claim(
        "rope-relative",
        "(R_i q)·(R_j k) depends on j - i alone.",
        "(R_i q)·(R_j k) 只取决于 j - i。",
        "001 §5.2, 002 §2, 003",
        "Scores of 32 random q and k of norm 1 at nine offsets from five places up to 1,048,575, in float64, in float32 with angles in float64, and "
        "with angles in float32 as plain code has them.",
        (
            core("double", "at most", budget(FAR), "the largest spread of a score over places, in float64,"),
            core("single", "at most", 64 * SINGLE, "the largest spread over places in float32, angles in float64,"),
            limit("plain", "at most", 64 * SINGLE, "the largest change over places with angles in float32"),
        ),
        exact=relative_found,
    ),
    Claim(
        "rope-norm",
        "Rotation keeps norms.",
        "旋转保持范数不变。",
        "004",
        "Norms of 32 random vectors after rotation at places up to 1,048,575, in float64.",
        (
            control("moved", "at least", SEEN, "the smallest change that a rotation makes to the vectors"),
            core("change", "at most", budget(1), "the largest change of a norm of 1"),
        ),
        exact=norm_found,
    ),
    Claim(
        "rope-vanishes",
        "At far distance the rotation's values become very small or tend to zero.",
        "距离很远时，旋转矩阵的值会变得很小或趋近于零。",
        "002 §2, and the second answer",
        "The norm of the rotation matrix at distances from 1 to 1,048,575, over that at distance 0.",
        (core("far", "at most", 0.5, "the smallest norm of the rotation at any distance, over that at 0,"),),
        exact=vanishes_found,
    ),
    Claim(
        "rope-sign",
        "(R_m q)·(R_n k) = q·(R_{m-n} k).",
        "(R_m q)·(R_n k) = q·(R_{m-n} k)。",
        "001 §5.2",
        "Both sides for 32 random q and k of norm 1 at four pairs of places up to 1,048,575, in float64; and the same with n - m.",
        (core("m - n", "at most", budget(FAR), "the largest error with R_{m-n}"),),
        exact=sign_found,
    ),
    Claim(
        "rope-abs",
        "The rotation depends on the absolute distance |j - i|.",
        "旋转只取决于绝对距离 |j - i|。",
        "002 §二",
        "Scores of 32 random q and k of norm 1 with the key before and as far after the query, in float64.",
        (
            core(
                "change",
                "at most",
                budget(131071),
                "the largest change of a score when the key stands as far on the other side",
            ),
        ),
        exact=absolute_found,
    ),
)
