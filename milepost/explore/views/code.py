"""Code: what each position is to the encoding, as a heat map.

An embedding's code, what a query of ones becomes, or the bias of a head: the heat maps of `milepost.portrait`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.encoding import Encoding
from milepost.encodings import NAMES
from milepost.explore.view import Shown, slider
from milepost.explore.words import PageWords
from milepost.portrait import portrait

ENCODINGS = ("sinusoidal", *(name for name in NAMES if name != "sinusoidal"))
CONTROLS = (slider("length", 96, 2, 160),)


def show(enc: Encoding, asked: Mapping[str, Any], words: PageWords) -> Shown:
    """The heat maps over ``length`` positions."""
    shown = portrait(enc, asked["length"], only="heat")
    known = ("embed", "query", "bias", "rescore", "features", "spread", "value")
    point = next((point for point in known if point in enc.points), "none")
    figures = tuple(figure.said(words.phrase) for figure in shown.figures)
    return Shown(figures, words.say(f"code.{point}", length=shown.length))
