"""Distance: similarity or bias, by how far apart two tokens are. The lines of `milepost.portrait`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.encoding import Encoding
from milepost.encodings import NAMES
from milepost.explore.view import Shown, slider
from milepost.explore.words import PageWords
from milepost.portrait import portrait

ENCODINGS = ("rope", *(name for name in NAMES if name != "rope"))
CONTROLS = (slider("length", 128, 2, 256),)


def show(enc: Encoding, asked: Mapping[str, Any], words: PageWords) -> Shown:
    """The lines over ``length`` positions, wavelengths apart: these have a view of their own."""
    shown = portrait(enc, asked["length"], only="lines")
    figures = [figure for figure in shown.figures if figure.x_title != "pair"]
    kind = "relative" if enc.shift_invariant and enc.points else "absolute" if enc.points else "none"
    return Shown(tuple(figure.said(words.phrase) for figure in figures), words.say(f"distance.{kind}"))
