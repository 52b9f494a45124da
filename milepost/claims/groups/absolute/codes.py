"""First codes: integers and binary numbers."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from milepost.claims.experiment import FAR, Claim, Measurement, Plot, control, core, gaussian
from milepost.claims.groups.absolute.sinusoids import AT_ONCE, ROUNDING, WIDTH
from milepost.encodings.binary import Binary
from milepost.encodings.integer import Integer
from milepost.encodings.sinusoidal import Sinusoidal

BITS = 20
"""Bits that count to 1,048,575."""


def steps(enc: Binary | Sinusoidal, first: int, last: int) -> torch.Tensor:
    """The distance from the code of each position to that of the next one, from ``first`` to ``last``."""
    pos = torch.arange(first, last + 1)
    code = enc.embed(torch.zeros(1, len(pos), enc.width or 0, dtype=torch.float64), pos)[0]
    distances: torch.Tensor = (code[1:] - code[:-1]).norm(dim=-1)
    return distances


def measure_integer() -> Measurement:
    """Words with raw and with normalised integers added."""
    words, places = gaussian(1, 64, WIDTH, seed=1), (0, 1, 8, 127, 1023, FAR)
    pairs = torch.triu_indices(64, 64, 1)

    def alike(x: torch.Tensor) -> float:
        return float(F.cosine_similarity(x[pairs[0]], x[pairs[1]], dim=-1).mean())

    added = [Integer().embed(words, torch.full((64,), place))[0] for place in places]
    raw, normed = [alike(x) for x in added], [alike(F.layer_norm(x, (WIDTH,))) for x in added]
    spacing = []
    for length in (64, 512):
        zeros = torch.zeros(1, length, 1, dtype=torch.float64)
        code = Integer(over="length").at(length).embed(zeros, torch.arange(length))[0, :, 0]
        spacing.append(float((code[1:] - code[:-1]).mean()))
    figure = Plot(
        "lines",
        "How alike different words become when their position is added to every channel",
        "position + 1",
        "mean cosine of different words",
        [place + 1 for place in places],
        {"raw": raw, "raw, after a layer norm": normed},
        log_x=True,
        mark=0.99,
    )
    note = (
        f"a layer norm removes what is added to every channel: after it the cosine at position 127 is {normed[3]:.2g}"
    )
    return Measurement({"alike": raw[3], "words": abs(raw[0]), "spacing": spacing[0] / spacing[1]}, (figure,), (note,))


def measure_binary() -> Measurement:
    """Distances between neighbours, at every position."""
    ratios, lines = {}, {}
    for name, enc in (("binary", Binary(BITS)), ("sinusoidal", Sinusoidal(WIDTH))):
        parts = [steps(enc, first, min(first + AT_ONCE, FAR)) for first in range(0, FAR, AT_ONCE)]
        ratios[name] = max(float(part.max()) for part in parts) / min(float(part.min()) for part in parts)
        lines[name] = steps(enc, 0, 63).tolist()
    title = "Distance from a position's code to the next one's"
    return Measurement(ratios, (Plot("lines", title, "position", "distance", list(range(63)), lines),))


CLAIMS = (
    Claim(
        "integer-swamps",
        "Raw integers swamp the embedding; normalised integers change spacing with length.",
        "直接加整数会淹没词嵌入；归一化的整数会让间距随长度改变。",
        "004",
        "Positions are added to 64 random words of unit variance: how alike do different words become at position "
        "127? Then the spacing of positions divided by the length, at 64 and at 512 tokens.",
        (
            control("words", "at most", 0.1, "the absolute mean cosine of different words at position 0"),
            core("alike", "at least", 0.99, "the mean cosine of different words at position 127"),
            core("spacing", "at least", 2.0, "the spacing at 64 tokens over that at 512"),
        ),
        exact=measure_integer,
    ),
    Claim(
        "binary-jumps",
        "Binary codes jump between neighbours; sinusoids move smoothly.",
        "二进制编码在相邻位置之间跳变；正弦编码平滑变化。",
        "004",
        "The distance between the codes of neighbours at every position up to 1,048,575: the largest over the "
        "smallest.",
        (
            core("binary", "at least", 2.0, "the largest step of binary codes over the smallest"),
            core("sinusoidal", "at most", 1 + ROUNDING, "the largest step of sinusoidal codes over the smallest"),
        ),
        exact=measure_binary,
    ),
)
