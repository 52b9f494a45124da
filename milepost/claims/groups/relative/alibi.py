"""ALiBi: slopes, weights and reach."""

from __future__ import annotations

import math
from itertools import pairwise

import torch

from milepost.claims.experiment import FAR, Claim, Measurement, Plot, control, core, limit
from milepost.claims.groups.relative.alibi_trained import RECALL, measure_far_recall
from milepost.claims.groups.relative.heads import BANDS, measure_bands
from milepost.encodings.alibi import ALiBi, slopes
from milepost.testing.layer import budget

HEADS = (2, 4, 8, 16, 32)
SMALLEST = 126 * math.log(2)
"""e^-x is below the smallest normal float32 from here on."""


def measure_reach() -> Measurement:
    """The distances that heads reach, by their number. A head reaches 1 / slope, where its weights fall to 1/e."""
    near, far = ([1 / pick(slopes(n)) for n in HEADS] for pick in (max, min))
    octaves = [math.log2(b / a) for a, b in zip(near, far, strict=True)]
    figure = Plot(
        "lines",
        "Reach of the most short-sighted and the most far-sighted head",
        "heads",
        "tokens until weights fall to 1/e",
        HEADS,
        {"shortest": near, "longest": far},
        log_x=True,
        log_y=True,
    )
    return Measurement({"octaves": min(b - a for a, b in pairwise(octaves)), "farther": far[-1] / far[0]}, (figure,))


def measure_weights() -> Measurement:
    """Logits and weights of equal keys by distance, from the bias itself."""
    n, enc, head = 256, ALiBi(heads=8), 3
    distance = torch.arange(n)
    bias = enc.bias(torch.arange(8)[:, None], distance, torch.zeros_like(distance)).double()
    weights = bias.softmax(-1)

    def bent(y: torch.Tensor) -> float:
        """The largest departure from the best straight line, over the range, in the straightest head."""
        x = torch.stack([distance.double(), torch.ones(n, dtype=torch.float64)], -1)
        line = (x @ torch.linalg.lstsq(x, y.T).solution).T
        return float(((y - line).abs().amax(-1) / (y.amax(-1) - y.amin(-1))).min())

    straight = [float(weights[head, 0] * (1 - d / 96)) for d in range(96)]
    lines = {"weight": weights[head, :96].tolist(), "straight line": straight}
    title = f"Weights of equal keys, head {head + 1} of 8"
    figure = Plot("lines", title, "tokens back", "weight", distance[:96].tolist(), lines)
    return Measurement({"logits": bent(bias), "weights": bent(weights), "log": bent(weights.log())}, (figure,))


def measure_infinite() -> Measurement:
    """The weight of a key by distance, against an equal key at distance 0, in the most far-sighted of 8 heads."""
    enc, gentlest = ALiBi(heads=8), 7
    distances = [1, 16, 256, 1024, 4096, 16384, 32768, 131072, FAR]
    bias = enc.bias(torch.tensor(gentlest), torch.tensor(distances), torch.tensor(0)).double()
    figure = Plot(
        "lines",
        "Logarithm of the weight, most far-sighted of 8 heads",
        "distance",
        "ln(weight / weight at 0)",
        distances,
        {"alibi": bias.tolist()},
        log_x=True,
        mark=-SMALLEST,
    )
    note = f"float32 can represent the weight of equal keys up to distance {SMALLEST / min(slopes(8)):.0f}"
    return Measurement({"left": float(bias[-1])}, (figure,), (note,))


CLAIMS = (
    Claim(
        "alibi-heads",
        "More heads cover more distance bands.",
        "头越多，覆盖的距离带越广。",
        "001 §4.4.1",
        "The reach of every head (1 over its slope) for 2, 4, 8, 16 and 32 heads: the number of octaves of distance "
        "between the shortest and the longest. Then the same for the mean distance of every head of small models of "
        "one width, trained with 2, 4, 8 and 16 heads.",
        (
            core("octaves", "at least", 0.1, "the smallest gain in octaves covered by doubling the heads"),
            limit("farther", "at least", 1.01, "the longest reach with 32 heads over that with 2"),
            limit("trained", "at least", 0.1, "the octaves that 16 trained heads cover minus those that 2 cover"),
        ),
        exact=measure_reach,
        trained=measure_bands,
        needs=tuple(BANDS.values()),
        exact_decides=True,
    ),
    Claim(
        "alibi-weights-linear",
        "ALiBi's attention weights fall linearly with distance.",
        "ALiBi 的注意力权重随距离线性递减。",
        "003",
        "Logits and weights of equal keys up to 255 tokens back in 8 heads: the largest departure from the best "
        "straight line, over the range, in the straightest head.",
        (
            control("logits", "at most", budget(256), "the departure of logits from a straight line"),
            core("weights", "at most", 0.01, "the departure of weights from a straight line"),
        ),
        exact=measure_weights,
    ),
    Claim(
        "alibi-infinite",
        'ALiBi "extrapolates without limit".',
        "ALiBi “可无限外推”。",
        "002",
        "The weight of a key 1,048,575 tokens back in the most far-sighted of 8 heads, against an equal key at "
        "distance 0; below the bound, float32 can't represent it. Small models trained to recall a value are asked at "
        "8 times the trained length for a pair at the beginning of the text.",
        (
            core("left", "at least", -SMALLEST, "the logarithm of that weight"),
            core(
                "far recall",
                "at least",
                0.5,
                "the share of right answers from the beginning of 8 times the trained length",
            ),
        ),
        exact=measure_infinite,
        trained=measure_far_recall,
        needs=(RECALL,),
    ),
)
