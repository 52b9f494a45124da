"""Sinusoids: whether codes are unique, how they move, and what is left of that after a projection."""

from __future__ import annotations

import math
from itertools import pairwise

import torch
from torch import Tensor

from milepost.angles import cos_sin
from milepost.claims.experiment import FAR, Claim, Measurement, Plot, control, core, gaussian, limit, max_abs
from milepost.encodings.sinusoidal import Sinusoidal
from milepost.rotation import rotate
from milepost.spectrum import geometric
from milepost.testing.layer import budget

WIDTH = 128
AT_ONCE = 1 << 16
"""Positions at a time."""
OFFSETS = (1, 7, 1000, 131071)
PLACES = (0, 1, 255, 4096, 131071, 524288, FAR - OFFSETS[-1])
ROUNDING = WIDTH * budget(FAR)
"""What float64 permits in a product of two codes at positions up to 1,048,575."""
BFLOAT16 = 2 * math.sqrt(WIDTH) * 2.0**-9
"""How far rounding to bfloat16 may move two codes: codes that are nearer might become equal."""


def nearest(frequencies: Tensor, farthest: int = FAR) -> tuple[float, int, Tensor]:
    """The smallest distance of two codes of cosines and sines up to ``farthest`` apart, and its offset.

    Third comes the smallest distance in each octave of offsets. |c(p) - c(p + k)|² = sum of 2 (1 - cos w k) depends on
    k alone.
    """
    best, where = float("inf"), 0
    octaves = torch.full((farthest.bit_length(),), float("inf"), dtype=torch.float64)
    for first in range(1, farthest + 1, AT_ONCE):
        k = torch.arange(first, min(first + AT_ONCE, farthest + 1))
        # 1 - cos a = 2 sin²(a/2), exact for small a
        apart = 2 * (cos_sin(k, frequencies / 2, torch.float64)[1] ** 2).sum(-1).sqrt()
        octaves.scatter_reduce_(0, torch.log2(k.double()).floor().long(), apart, "amin")
        at = int(apart.argmin())
        if float(apart[at]) < best:
            best, where = float(apart[at]), int(k[at])
    return best, where, octaves


def measure_unique() -> Measurement:
    """The nearest two codes among 1,048,576."""
    enc, pos = Sinusoidal(WIDTH), torch.tensor(PLACES)
    best, where, octaves = nearest(enc.frequencies)
    again = Sinusoidal(WIDTH).code(pos.flip(0)).flip(0)
    most = max(max_abs(enc.code(torch.arange(a, min(a + AT_ONCE, FAR + 1)))) for a in range(0, FAR + 1, AT_ONCE))
    figure = Plot(
        "lines",
        "The nearest code, by how far away it is",
        "offset, from",
        "smallest distance",
        [1 << n for n in range(len(octaves))],
        {f"sinusoidal, width {WIDTH}": octaves.tolist()},
        log_x=True,
        mark=BFLOAT16,
    )
    numbers = {"nearest": best, "again": max_abs(again - enc.code(pos)), "most": most}
    return Measurement(numbers, (figure,), (f"the nearest two codes have offset {where}",))


def measure_linear() -> Measurement:
    """One rotation for each offset, at all positions."""
    enc, pos = Sinusoidal(WIDTH), torch.tensor(PLACES)
    here = enc.code(pos)

    def moved(k: int) -> Tensor:
        # (sin, cos) turns the other way than (cos, sin)
        cos, sin = cos_sin(torch.tensor([-k]), enc.frequencies, torch.float64)
        return rotate(here[None, None], cos, sin, WIDTH, "interleaved")[0, 0]

    errors = [max_abs(moved(k) - enc.code(pos + k)) for k in OFFSETS]
    others = [max_abs(moved(k + 1) - enc.code(pos + k)) for k in OFFSETS]
    figure = Plot(
        "lines",
        "PE(p + k) against the rotation by k of PE(p)",
        "k",
        "largest error over positions up to 1,048,575",
        OFFSETS,
        {"rotation by k": errors, "rotation by k + 1": others},
        log_x=True,
        log_y=True,
        mark=budget(FAR),
    )
    return Measurement({"error": max(errors), "other": min(others)}, (figure,))


def products(project: bool) -> Tensor:
    """PE(i) · PE(j) at positions i (columns) for offsets j - i (rows); or (W_q PE(i)) · (W_k PE(j))."""
    enc, pos = Sinusoidal(WIDTH), torch.tensor(PLACES)
    q = k = torch.eye(WIDTH, dtype=torch.float64)
    if project:
        q, k = (gaussian(WIDTH, WIDTH, seed=seed) / WIDTH**0.5 for seed in (1, 2))
    return torch.stack([((enc.code(pos) @ q) * (enc.code(pos + offset) @ k)).sum(-1) for offset in OFFSETS])


def measure_dot() -> Measurement:
    """Products at one offset from many positions, before and after projection."""
    plain, projected = products(False), products(True)
    spreads = [float((x.amax(1) - x.amin(1)).max()) for x in (plain, projected)]  # over positions, of any offset
    lines = {"as they are": plain[1].tolist(), "after random W_q, W_k": projected[1].tolist()}
    title, x = f"PE(i) · PE(i + {OFFSETS[1]}) at positions i", [place + 1 for place in PLACES]
    figure = Plot("lines", title, "i + 1", "product", x, lines, log_x=True)
    return Measurement({"plain": spreads[0], "projected": spreads[1]}, (figure,))


def measure_wavelengths() -> Measurement:
    """Wavelengths at three widths."""
    lines, ends = {}, []
    uneven = first = last = 0.0
    for width in (64, 512, 4096):
        waves = geometric(width).wavelengths
        ratios = [b / a for a, b in pairwise(waves)]
        uneven = max(uneven, max(ratios) / min(ratios) - 1)
        first = max(first, abs(waves[0] / (2 * math.pi) - 1))
        last = max(last, abs(waves[-1] / (10000 * 2 * math.pi) - 1))
        lines[f"width {width}"] = [waves[round(n * (len(waves) - 1) / 31)] for n in range(32)]
        ends.append(f"{waves[-1] / (2 * math.pi):.0f} at width {width}")
    title, shares = "Wavelengths, first pair to last", [n / 31 for n in range(32)]
    figure = Plot("lines", title, "pair, as a share", "tokens", shares, lines, log_y=True)
    note = f"the last wavelength over 2π is 10000^(1 - 2/d): {', '.join(ends)}"
    return Measurement({"uneven": uneven, "first": first, "last": last}, (figure,), (note,))


CLAIMS = (
    Claim(
        "sin-unique",
        "Sinusoidal codes are unique, deterministic and bounded.",
        "正弦编码唯一、确定且有界。",
        "001 §3.2, 004",
        f"The nearest two of all codes of width {WIDTH} up to position 1,048,575 (every offset is tried, in float64); "
        "the codes computed again in another order; the largest number in any code. Codes that are nearer than the "
        "bound could become equal in bfloat16.",
        (
            core("nearest", "at least", BFLOAT16, "the distance of the nearest two codes"),
            core("again", "at most", 0.0, "the difference when codes are computed again"),
            core("most", "at most", 1.0, "the largest number in a code"),
        ),
        exact=measure_unique,
    ),
    Claim(
        "sin-linear",
        "PE(p+k) is a fixed linear map (a rotation) of PE(p).",
        "PE(p+k) 是 PE(p) 的一个固定线性映射（旋转）。",
        "001 §3.2.1, 004",
        "For each of four offsets up to 131,071 one rotation is applied to the codes of positions up to 1,048,575; "
        "the result is compared with the codes there.",
        (
            control("other", "at least", 1e-3, "the smallest error of the rotation by one more"),
            core("error", "at most", budget(FAR), "the largest error of the rotation"),
        ),
        exact=measure_linear,
    ),
    Claim(
        "sin-dot",
        "PE(i)·PE(j) is a function of i - j alone.",
        "PE(i)·PE(j) 只是 i - j 的函数。",
        "002 §1",
        "Products of codes at four offsets from seven positions up to 1,048,575; then again after random W_q and W_k, "
        "as attention sees them.",
        (
            core("plain", "at most", ROUNDING, "the largest spread of PE(i)·PE(j) over positions"),
            limit("projected", "at most", ROUNDING, "the largest spread over positions after random projections"),
        ),
        exact=measure_dot,
    ),
    Claim(
        "sin-relation",
        "Two sinusoidal codes at equal distance relate differently at other places.",
        "相距相同的两个正弦编码，其关系会随绝对位置而改变。",
        "003 §1",
        "Products of codes at four offsets from seven positions up to 1,048,575, and the same after random W_q and "
        "W_k.",
        (
            control("projected", "at least", 1e-3, "the largest spread over positions after random projections"),
            core("plain", "at least", 1e-3, "the largest spread of PE(i)·PE(j) over positions"),
        ),
        exact=measure_dot,
    ),
    Claim(
        "wavelengths",
        "Wavelengths grow geometrically from 2π to 10000·2π.",
        "波长按几何级数从 2π 增长到 10000·2π。",
        "001 §3.2.2",
        "All wavelengths at widths 64, 512 and 4096: how even their ratios are, and where they begin and end.",
        (
            core("uneven", "at most", budget(1), "the unevenness of neighbours' ratios"),
            core("first", "at most", budget(1), "the distance of the first from 2π, as a share"),
            limit("last", "at most", budget(1), "the largest distance of the last from 10000·2π, as a share"),
        ),
        exact=measure_wavelengths,
    ),
)
