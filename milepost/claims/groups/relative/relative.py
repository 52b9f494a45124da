"""Relative schemes: shift invariance, buckets and functions of distance."""

from __future__ import annotations

from statistics import median

import torch

from milepost.claims.experiment import FAR, Claim, Measurement, Need, Plot, core, limit, max_abs
from milepost.claims.groups.practice.lengths import sweep_lengths
from milepost.encoding import Encoding
from milepost.encodings import NAMES
from milepost.encodings.catalogue import pages
from milepost.encodings.t5 import T5
from milepost.layout import Layout
from milepost.measure.losses import TOLERATED_RISE
from milepost.spec import build
from milepost.testing.layer import Layer, budget, randomised_copy

MOVES = (1, 1000, 100000, FAR - 64)
TOKENS = 64
TABLE = 4096
"""Rows of tables, so that positions have room to move."""
T5_TEXT = Need("text", ("t5",))


def shifted(enc: Encoding) -> float:
    """The largest change of any output when all positions of a text move by one number, if the encoding permits it."""
    enc = randomised_copy(enc)
    layer = Layer(enc)
    x, worst = layer.text(TOKENS), 0.0
    still = layer(x, Layout.dense(TOKENS))
    for by in MOVES:
        if enc.end is None or by + TOKENS <= enc.end:
            worst = max(worst, max_abs(layer(x, Layout.dense(TOKENS, start=by)) - still))
    return worst


def measure_shift() -> Measurement:
    """Every encoding of text, as its page describes it: relative or absolute."""
    changes: dict[str, dict[str, float]] = {"relative": {}, "absolute": {}}
    for page in pages():
        kind = page.facts.get("Information", "").split(",")[0].split(";")[0].split()[0]
        if page.name in NAMES and kind in changes:
            enc = build(page.name, heads=4, head_dim=16, width=64, length=TABLE)
            changes[kind][page.name] = shifted(enc)
    relative, absolute = changes.values()
    changed = [name for name, change in relative.items() if change > budget(FAR)]
    unchanged = [name for name, change in absolute.items() if change <= 1e-6]
    notes = [f"relative, but its outputs change: {', '.join(changed)}"] if changed else []
    notes += [f"absolute, but its outputs do not change: {', '.join(unchanged)}"] if unchanged else []
    names = [*relative, *absolute]
    # a logarithm of 0 can't be drawn
    shown = {kind: [max(mine[n], 1e-17) if n in mine else None for n in names] for kind, mine in changes.items()}
    title = "Change of outputs when all positions move"
    figure = Plot("points", title, "", "largest change", names, shown, log_y=True, mark=budget(FAR))
    numbers = {
        "typical": median(relative.values()),
        "relative": max(relative.values()),
        "absolute": min(absolute.values()),
    }
    return Measurement(numbers, (figure,), tuple(notes))


def measure_t5() -> Measurement:
    """The buckets of distances up to 1,048,575."""
    enc = T5(heads=4)
    distance = torch.cat([torch.arange(4096), torch.arange(4096, FAR + 1, 97), torch.tensor([FAR])])
    bucket, far = enc.bucket(distance), distance >= enc.max_distance
    shown = [1, 2, 4, 8, 16, 32, 64, 96, 112, 120, 128, 256, 1024, 16384, FAR]
    lines = {"t5": enc.bucket(torch.tensor(shown)).tolist()}
    last = float(enc.buckets - 1)
    figure = Plot("lines", "Bucket by distance", "distance", "bucket", shown, lines, log_x=True, mark=last)
    numbers = {name: float(len(set(bucket[side].tolist()))) for name, side in (("far", far), ("near", ~far))}
    return Measurement(numbers, (figure,))


CLAIMS = (
    Claim(
        "shift",
        "Relative schemes are shift-invariant; absolute ones are not.",
        "相对位置编码具有平移不变性；绝对位置编码没有。",
        "001 §4.2",
        "Every encoding of text, relative or absolute as its page says, with random parameters: one layer of "
        "attention over 64 tokens, whose positions all move by 1, by 1,000, by 100,000 and to 1,048,575, as far as "
        "the encoding permits.",
        (
            core("typical", "at most", budget(FAR), "the median change of outputs over relative schemes"),
            core("absolute", "at least", 1e-6, "the smallest change of outputs over absolute schemes"),
            limit("relative", "at most", budget(FAR), "the largest change of outputs over relative schemes"),
        ),
        exact=measure_shift,
    ),
    Claim(
        "t5-limits",
        "T5's buckets limit its reach: every far distance is one bucket.",
        "T5 的分桶限制了它的范围：所有远距离都落在同一个桶里。",
        "003",
        "The buckets of all distances up to 4,096 and of every 97th up to 1,048,575; small models trained with t5, "
        "tested at up to 8 times the trained length.",
        (
            core("far", "at most", 1.0, "the number of buckets that distances from 128 on fall into"),
            limit(
                "8 times", "at least", TOLERATED_RISE, "the rise of the loss at 8 times the trained length, as a share"
            ),
        ),
        exact=measure_t5,
        trained=sweep_lengths(T5_TEXT),
        needs=(T5_TEXT,),
    ),
)
