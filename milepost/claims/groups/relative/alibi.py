"""ALiBi: slopes, weights and reach."""

from __future__ import annotations

import math
from itertools import pairwise

import torch

from milepost.claims.claim import Claim, Figure, Found
from milepost.claims.groups.relative.alibi_trained import RECALL, far_recall_found
from milepost.claims.groups.relative.heads import BANDS, bands_found
from milepost.claims.rule import control, core, limit
from milepost.claims.world import FAR
from milepost.encodings.alibi import ALiBi, slopes
from milepost.testing.layer import budget

HEADS = (2, 4, 8, 16, 32)
SMALLEST = 126 * math.log(2)
"""e^-x is below the smallest normal float32 from here on."""


def reach_found() -> Found:
    """The bands of distance in which heads look, by their number: a head's reach is 1 / slope, where its weights have fallen to 1/e."""
    bands = [(1 / max(slopes(n)), 1 / min(slopes(n))) for n in HEADS]
    octaves = [math.log2(far / near) for near, far in bands]
    figure = Figure(
        "lines", "Reach of the most short-sighted and the most far-sighted head", "heads", "tokens until weights fall to 1/e", HEADS,
        {"shortest": [near for near, _ in bands], "longest": [far for _, far in bands]}, log_x=True, log_y=True,
    )  # fmt: skip
    numbers = {"octaves": min(b - a for a, b in pairwise(octaves)), "farther": bands[-1][1] / bands[0][1]}
    return Found(numbers, (figure,))


def weights_found() -> Found:
    """Logits and weights of equal keys by distance, from the bias itself."""
    n, enc = 256, ALiBi(heads=8)
    distance = torch.arange(n)
    bias = enc.bias(torch.arange(8)[:, None], distance, torch.zeros_like(distance)).double()
    weights = bias.softmax(-1)

    def bent(y: torch.Tensor) -> float:
        """The largest departure of any head from its best straight line, over its own range."""
        x = torch.stack([distance.double(), torch.ones(n, dtype=torch.float64)], -1)
        line = (x @ torch.linalg.lstsq(x, y.T).solution).T
        return float(((y - line).abs().amax(-1) / (y.amax(-1) - y.amin(-1))).min())

    head = 3
    figure = Figure(
        "lines", f"Weights of equal keys, head {head + 1} of 8", "tokens back", "weight", distance[:96].tolist(),
        {"weight": weights[head, :96].tolist(), "straight line": [float(weights[head, 0] * (1 - d / 96)) for d in range(96)]},
    )  # fmt: skip
    return Found({"logits": bent(bias), "weights": bent(weights), "log": bent(weights.log())}, (figure,))


def infinite_found() -> Found:
    """What is left of a key's weight at a distance, against an equal key at distance 0, in the most far-sighted of 8 heads."""
    enc, gentlest = ALiBi(heads=8), 7
    distances = [1, 16, 256, 1024, 4096, 16384, 32768, 131072, FAR]
    bias = enc.bias(torch.tensor(gentlest), torch.tensor(distances), torch.tensor(0)).double()
    reach = SMALLEST / min(slopes(8))
    figure = Figure(
        "lines", "Logarithm of the weight, most far-sighted of 8 heads", "distance", "ln(weight / weight at 0)", distances,
        {"alibi": bias.tolist()}, log_x=True, mark=-SMALLEST,
    )  # fmt: skip
    return Found(
        {"left": float(bias[-1])},
        (figure,),
        (f"equal keys get a weight that float32 still holds up to distance {reach:.0f}",),
    )


CLAIMS = (
    Claim(
        "alibi-heads",
        "More heads cover more distance bands.",
        "头越多，覆盖的距离带越广。",
        "001 §4.4.1",
        "The reach of every head (1 over its slope) for 2, 4, 8, 16 and 32 heads: how many octaves of distance lie between the shortest and the longest. "
        "The mean distance of every head of small models trained with 2, 4, 8 and 16 heads, at one width: the same.",
        (
            core("octaves", "at least", 0.1, "the smallest gain in octaves covered by doubling the heads"),
            limit("farther", "at least", 1.01, "the longest reach with 32 heads over that with 2"),
            limit("trained", "at least", 0.1, "the octaves that 16 trained heads cover more than 2"),
        ),
        exact=reach_found,
        trained=bands_found,
        needs=tuple(BANDS.values()),
        exact_decides=True,
    ),
    Claim(
        "alibi-weights-linear",
        "ALiBi's attention weights fall linearly with distance.",
        "ALiBi 的注意力权重随距离线性递减。",
        "003",
        "Logits and weights of equal keys up to 255 tokens back in 8 heads: the largest departure from the best straight line, over the range, in the "
        "straightest head.",
        (
            control("logits", "at most", budget(256), "the departure of logits from a straight line"),
            core("weights", "at most", 0.01, "the departure of weights from a straight line"),
        ),
        exact=weights_found,
    ),
    Claim(
        "alibi-infinite",
        'ALiBi "extrapolates without limit".',
        "ALiBi “可无限外推”。",
        "002",
        "The weight of a key 1,048,575 tokens back in the most far-sighted of 8 heads, against an equal key at distance 0. Small models trained to "
        "recall a value are asked at 8 times the trained length for a pair at the beginning of the text.",
        (
            core("left", "at least", -SMALLEST, "the logarithm of that weight, which float32 can't hold below that,"),
            core(
                "far recall",
                "at least",
                0.5,
                "the share of right answers from the beginning of 8 times the trained length",
            ),
        ),
        exact=infinite_found,
        trained=far_recall_found,
        needs=(RECALL,),
    ),
)
