"""Buckets: which distances T5 takes for the same, from the encoding's own table of edges."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from milepost.draw import Figure, Mark
from milepost.encoding import Encoding
from milepost.encodings.t5 import T5
from milepost.explore.view import Shown, slider
from milepost.explore.words import PageWords

ENCODINGS = ("t5",)
CONTROLS = (slider("length", 160, 2, 512),)
SIDE = 128
"""Tokens on one side of the map."""


def show(enc: Encoding, asked: Mapping[str, Any], words: PageWords) -> Shown:
    """The bucket of every distance, as stairs and as a map of queries and keys."""
    if not isinstance(enc, T5):
        raise ValueError(f"this view shows the buckets of T5, got {enc!r}; choose t5")
    length = asked["length"]
    first = 0 if enc.mode == "causal" else 1 - length
    distance = torch.arange(first, length)
    stairs = enc.bucket(distance).double().tolist()
    side = min(length, SIDE)
    i, j = torch.arange(side)[:, None], torch.arange(side)[None, :]
    table = enc.bucket(i - j).double()
    hidden = (j > i) & (enc.mode == "causal")
    rows = [
        [None if gap else v for v, gap in zip(row, gaps, strict=True)]
        for row, gaps in zip(table.tolist(), hidden.tolist(), strict=True)
    ]
    places = [float(n) for n in range(side)]
    marks = tuple(
        Mark("x", float(at), words.say("buckets.last", distance=enc.max_distance))
        for at in [enc.max_distance]
        if at < length
    )
    bucket = words.say("buckets.bucket")
    figures = (
        Figure(
            "lines",
            words.say("buckets.stairs"),
            words.say("buckets.distance"),
            bucket,
            distance.double().tolist(),
            lines={bucket: stairs},
            stepped=True,
            marks=marks,
        ),
        Figure(
            "heat",
            words.say("buckets.map"),
            words.phrase("key position"),
            words.phrase("query position"),
            places,
            places,
            rows,
            square=True,
        ),
    )
    exact = int((enc.edges == torch.arange(1, len(enc.edges) + 1)).long().cumprod(0).sum())
    return Shown(figures, words.say("buckets.sentence", buckets=enc.buckets, exact=exact, distance=int(enc.edges[-1])))
