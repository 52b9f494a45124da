"""First codes: integers and binary numbers."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from milepost.claims.claim import Claim, Figure, Found
from milepost.claims.groups.absolute.sinusoids import AT_ONCE, ROUNDING, WIDTH
from milepost.claims.rule import control, core
from milepost.claims.world import FAR, drawn
from milepost.encodings.binary import Binary
from milepost.encodings.integer import Integer
from milepost.encodings.sinusoidal import Sinusoidal

BITS = 20
"""Bits that count to 1,048,575."""


def steps(enc: Binary | Sinusoidal) -> tuple[float, float]:
    """The smallest and the largest distance between neighbouring codes, over all positions up to 1,048,575."""
    least, most = float("inf"), 0.0
    for first in range(0, FAR, AT_ONCE):
        pos = torch.arange(first, min(first + AT_ONCE, FAR) + 1)
        code = enc.embed(torch.zeros(1, len(pos), enc.width or 0, dtype=torch.float64), pos)[0]
        apart = (code[1:] - code[:-1]).norm(dim=-1)
        least, most = min(least, float(apart.min())), max(most, float(apart.max()))
    return least, most


def integer_found() -> Found:
    """Words with raw and with normalised integers added."""
    words, lengths = drawn(1, 64, WIDTH, seed=1), (64, 512, 4096)
    places = (0, 1, 8, 127, 1023, FAR)
    alike: list[float] = []
    normed: list[float] = []
    for place in places:
        x = Integer().embed(words, torch.full((64,), place))[0]
        pairs = torch.triu_indices(64, 64, 1)
        for kept, some in ((alike, x), (normed, F.layer_norm(x, (WIDTH,)))):
            kept.append(float(F.cosine_similarity(some[pairs[0]], some[pairs[1]], dim=-1).mean()))
    spacing = []
    for length in lengths:
        code = (
            Integer(over="length")
            .at(length)
            .embed(torch.zeros(1, length, 1, dtype=torch.float64), torch.arange(length))[0, :, 0]
        )
        spacing.append(float((code[1:] - code[:-1]).mean()))
    figure = Figure(
        "lines", "How alike different words become when their place is added to every channel", "position + 1", "mean cosine of different words",
        [p + 1 for p in places], {"raw": alike, "raw, after a layer norm": normed}, log_x=True, mark=0.99,
    )  # fmt: skip
    note = f"a layer norm takes out what is added to every channel alike: behind it the cosine at position 127 is {normed[3]:.2g}"
    return Found({"alike": alike[3], "words": abs(alike[0]), "spacing": spacing[0] / spacing[1]}, (figure,), (note,))


def binary_found() -> Found:
    """Distances between neighbours, at every position."""
    numbers = {name: steps(enc) for name, enc in (("binary", Binary(BITS)), ("sinusoidal", Sinusoidal(WIDTH)))}
    pos = torch.arange(64)
    lines: dict[str, list[float]] = {}
    for name, enc in (("binary", Binary(BITS)), ("sinusoidal", Sinusoidal(WIDTH))):
        code = enc.embed(torch.zeros(1, 64, enc.width or 0, dtype=torch.float64), pos)[0]
        lines[name] = (code[1:] - code[:-1]).norm(dim=-1).tolist()
    figure = Figure(
        "lines", "Distance from a position's code to the next one's", "position", "distance", pos[:-1].tolist(), lines
    )
    return Found({name: most / least for name, (least, most) in numbers.items()}, (figure,))


CLAIMS = (
    Claim(
        "integer-swamps",
        "Raw integers swamp the embedding; normalised integers change spacing with length.",
        "直接加整数会淹没词嵌入；归一化的整数会让间距随长度改变。",
        "004",
        "Places are added to 64 random words of unit variance: how alike do different words become at position 127? Then the spacing of places over their "
        "number, at 64 and at 512 tokens.",
        (
            control("words", "at most", 0.1, "the mean cosine of different words at position 0, without its sign,"),
            core("alike", "at least", 0.99, "the mean cosine of different words at position 127"),
            core("spacing", "at least", 2.0, "the spacing at 64 tokens over that at 512"),
        ),
        exact=integer_found,
    ),
    Claim(
        "binary-jumps",
        "Binary codes jump between neighbours; sinusoids move smoothly.",
        "二进制编码在相邻位置之间跳变；正弦编码平滑变化。",
        "004",
        "The distance between the codes of neighbours at every position up to 1,048,575: the largest over the smallest.",
        (
            core("binary", "at least", 2.0, "the largest step of binary codes over the smallest"),
            core("sinusoidal", "at most", 1 + ROUNDING, "the largest step of sinusoidal codes over the smallest"),
        ),
        exact=binary_found,
    ),
)
