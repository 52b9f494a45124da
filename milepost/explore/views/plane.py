"""Plane: how alike the places of a plane are to the one in its middle.

The maps of `milepost.portrait` for encodings of several axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.encoding import Encoding
from milepost.encodings import SPACE
from milepost.explore.view import Shown, slider
from milepost.explore.words import PageWords
from milepost.portrait import portrait

ENCODINGS = ("axial", *(name for name in SPACE if name != "axial"))
CONTROLS = (slider("side", 21, 2, 25),)


def show(enc: Encoding, asked: Mapping[str, Any], words: PageWords) -> Shown:
    """The maps over a square of ``side`` places."""
    if enc.axes < 2:
        raise ValueError(
            f"this view is for positions of several axes, and {enc!r} has one; choose one of {', '.join(ENCODINGS)}"
        )
    shown = portrait(enc, asked["side"] ** 2)
    figures = tuple(figure.said(words.phrase) for figure in shown.figures)
    return Shown(figures, words.say("plane.sentence"))
