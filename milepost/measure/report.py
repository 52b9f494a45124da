"""The picture of how far heads look, for every report that has it."""

from __future__ import annotations

import itertools
import math
from typing import Any

from milepost.draw import Alternative, Figure, Mark

Row = dict[str, Any]
LOOKS = "mean distance {}, looks at {} keys, first token {}"


def heads_by_distance(maps: dict[str, list[Row]], most: float, at: int | None = None) -> Figure:
    """The share of attention that goes so many tokens back, a row for each head; maps by their labels; the trained
    length is marked.
    """
    alternatives = tuple(
        Alternative(label, [head["distance"] for head in heads], looks(heads)) for label, heads in maps.items()
    )
    heads = next(iter(maps.values()))
    edges = heads[0]["edges"]
    columns = tuple(str(a) if e - a == 1 else f"{a}-{e - 1}" for a, e in itertools.pairwise(edges))
    marks = (Mark("x", edges.index(at), "trained length"),) if at in edges else ()
    about: dict[str, Any] = {"x_names": columns, "y_names": tuple(f"{head['layer']}, {head['head']}" for head in heads)}
    about |= {
        "alternatives": alternatives,
        "notes": alternatives[0].notes,
        "note": LOOKS,
        "marks": marks,
        "low": 0.0,
        "high": most,
        "percent": True,
    }
    return Figure("heat", "Share of attention by distance", "tokens back", "layer, head", z=alternatives[0].z, **about)


def looks(heads: list[Row]) -> list[str]:
    """How far each head looks: the numbers of `LOOKS`."""
    return [f"{head['mean']:.1f}|{math.exp(head['entropy']):.1f}|{head['sink']:.1%}" for head in heads]
