"""Slopes: those of ALiBi's heads, and how far each head reaches.

Reach is measured, not derived: with all contents alike, the softmax of the bias itself gives a weight to every
distance; the reach is the number of nearest tokens that hold 95% of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from milepost.attention import attend
from milepost.draw import Figure, Mark
from milepost.encoding import Encoding
from milepost.encodings.alibi import ALiBi
from milepost.explore.view import Shown, slider
from milepost.explore.words import PageWords
from milepost.layout import Layout

ENCODINGS = ("alibi",)
CONTROLS = (slider("context", 1024, 16, 8192, log=True),)
SHARE = 0.95
SHOWN = 128
"""Distances in the figure of weights."""


def show(enc: Encoding, asked: Mapping[str, Any], words: PageWords) -> Shown:
    """Slope and reach of each head, and the weights by distance."""
    if not isinstance(enc, ALiBi):
        raise ValueError(f"this view shows the slopes of ALiBi's heads, got {enc!r}; choose alibi")
    length, heads = asked["context"], enc.heads or 1
    weights = alike(enc, length, heads)  # H distances
    reach = ((weights.cumsum(-1) < SHARE).sum(-1) + 1).tolist()
    slopes = enc.past_slopes.tolist()
    numbers = [float(h) for h in range(heads)]
    some = sorted({round(n * (heads - 1) / max(1, min(heads, 8) - 1)) for n in range(min(heads, 8))})
    slope, reached, head = words.say("slopes.slope"), words.say("slopes.reach_axis"), words.phrase("head")
    far = Mark("y", length, words.say("slopes.context", length=length))
    near = [float(d) for d in range(min(SHOWN, length))]
    lines = {words.phrase(f"head {h}"): weights[h, : len(near)].tolist() for h in some}
    about: dict[str, Any] = {"x": numbers, "x_title": head, "log_y": True}
    figures = (
        Figure("lines", words.say("slopes.slopes"), y_title=slope, lines={slope: slopes}, points=(slope,), **about),
        Figure(
            "lines",
            words.say("slopes.reach", share=f"{SHARE:.0%}"),
            y_title=words.phrase("tokens"),
            lines={reached: reach},
            points=(reached,),
            marks=(far,),
            **about,
        ),
        Figure(
            "lines",
            words.say("slopes.weights"),
            words.phrase("distance"),
            words.say("slopes.weight"),
            near,
            lines=lines,
            low=0.0,
        ),
    )
    return Shown(
        figures,
        words.say("slopes.sentence", heads=heads, length=length, near=min(reach), far=max(reach)),
        ("attention.backends.reference",),
    )


def alike(enc: Encoding, length: int, heads: int) -> torch.Tensor:
    """The weights by distance (H length), nearest first, of the last of ``length`` tokens with equal contents."""
    q, k = torch.zeros(1, heads, 1, 2, dtype=torch.float64), torch.zeros(1, heads, length, 2, dtype=torch.float64)
    result = attend(q, k, k, enc, at=Layout.dense(1, start=length - 1), to=Layout.dense(length), details=True)
    return result.weights[0, :, 0].flip(-1)
