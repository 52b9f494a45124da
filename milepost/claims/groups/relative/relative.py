"""Relative schemes: shift invariance, buckets and functions of distance."""

from __future__ import annotations

from statistics import median

import torch

from milepost.checkpoints.recommendation.recommend import HURTS
from milepost.claims.claim import Claim, Figure, Found
from milepost.claims.groups.relative.functions import T5 as T5_TEXT
from milepost.claims.groups.relative.functions import t5_lengths_found
from milepost.claims.rule import core, limit
from milepost.claims.world import FAR, largest
from milepost.encoding import Encoding
from milepost.encodings import NAMES
from milepost.encodings.catalogue import pages
from milepost.encodings.t5 import T5
from milepost.layout import Layout
from milepost.spec import build
from milepost.testing.layer import Layer, budget, randomised_copy

MOVES = (1, 1000, 100000, FAR - 64)
TOKENS = 64
TABLE = 4096
"""Rows of tables, so that they have room to be moved in."""


def shifted(enc: Encoding) -> float:
    """The largest change of any output when all positions of a text move by one number, over all moves that the encoding permits."""
    enc = randomised_copy(enc)
    layer = Layer(enc)
    x, worst = layer.text(TOKENS), 0.0
    still = layer(x, Layout.dense(TOKENS))
    for by in MOVES:
        if enc.end is None or by + TOKENS <= enc.end:
            worst = max(worst, largest(layer(x, Layout.dense(TOKENS, start=by)) - still))
    return worst


def shift_found() -> Found:
    """Every encoding of text, as its page describes it: relative or absolute."""
    found: dict[str, dict[str, float]] = {"relative": {}, "absolute": {}}
    for page in pages():
        kind = page.facts.get("Information", "").split(",")[0].split(";")[0].split()[0]
        if page.name in NAMES and kind in found:
            enc = build(page.name, heads=4, head_dim=16, width=64, length=TABLE)
            found[kind][page.name] = shifted(enc)
    relative, absolute = found["relative"], found["absolute"]
    moved = [name for name, change in relative.items() if change > budget(FAR)]
    still = [name for name, change in absolute.items() if change <= 1e-6]
    names = [*relative, *absolute]
    drawn = {
        kind: [max(mine[n], 1e-17) if n in mine else None for n in names] for kind, mine in found.items()
    }  # a logarithm of 0 can't be drawn
    figure = Figure(
        "points", "Change of outputs when all positions move", "", "largest change", names, drawn, log_y=True, mark=budget(FAR),
    )  # fmt: skip
    notes = [f"relative, and yet moved: {', '.join(moved)}"] if moved else []
    notes += [f"absolute, and not moved: {', '.join(still)}"] if still else []
    numbers = {
        "typical": median(relative.values()),
        "relative": max(relative.values()),
        "absolute": min(absolute.values()),
    }
    return Found(numbers, (figure,), tuple(notes))


def t5_found() -> Found:
    """The buckets of distances up to 1,048,575."""
    enc = T5(heads=4)
    distance = torch.cat([torch.arange(4096), torch.arange(4096, FAR + 1, 97), torch.tensor([FAR])])
    bucket = enc.bucket(distance)
    far = bucket[distance >= enc.max_distance]
    shown = [1, 2, 4, 8, 16, 32, 64, 96, 112, 120, 128, 256, 1024, 16384, FAR]
    figure = Figure(
        "lines", "Bucket by distance", "distance", "bucket", shown, {"t5": enc.bucket(torch.tensor(shown)).tolist()}, log_x=True, mark=float(enc.buckets - 1),
    )  # fmt: skip
    return Found(
        {"far": float(len(set(far.tolist()))), "near": float(len(set(bucket[distance < enc.max_distance].tolist())))},
        (figure,),
    )


CLAIMS = (
    Claim(
        "shift",
        "Relative schemes are shift-invariant; absolute ones are not.",
        "相对位置编码具有平移不变性；绝对位置编码没有。",
        "001 §4.2",
        "Every encoding of text, relative or absolute as its page says, with random parameters: one layer of attention over 64 tokens, whose positions "
        "all move by 1, 1,000, 100,000 and to 1,048,575, as far as the encoding goes.",
        (
            core("typical", "at most", budget(FAR), "the median change of outputs over relative schemes"),
            core("absolute", "at least", 1e-6, "the smallest change of outputs over absolute schemes"),
            limit("relative", "at most", budget(FAR), "the largest change of outputs over relative schemes"),
        ),
        exact=shift_found,
    ),
    Claim(
        "t5-limits",
        "T5's buckets limit its reach: every far distance is one bucket.",
        "T5 的分桶限制了它的范围：所有远距离都落在同一个桶里。",
        "003",
        "The buckets of all distances up to 4,096 and of every 97th up to 1,048,575; small models trained with t5, tested at up to 8 times the trained length.",
        (
            core("far", "at most", 1.0, "the number of buckets that distances from 128 on fall into"),
            limit("8 times", "at least", HURTS, "the rise of the loss at 8 times the trained length, as a share,"),
        ),
        exact=t5_found,
        trained=t5_lengths_found,
        needs=(T5_TEXT,),
    ),
)
