"""The colours and dashes of drawings, on a white page and on a dark one."""

from __future__ import annotations

COLOURS = (
    "#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#d200b4", "#876900", "#785a78",
    "#69c300", "#b487a5", "#ff78f0", "#5ab4ff", "#a5b487", "#a578ff", "#ff5a87", "#4b87b4",
)  # fmt: skip
"""Chosen to be far from each other in OKLab, and to stand out from white and from a dark page."""
RED = COLOURS[3]
"""For warnings."""
CALM = tuple(colour for colour in COLOURS if colour != RED)
GREY = "#888"
DASHES = ("", "6 4", "2 3", "6 3 2 3", "10 4", "10 3 2 3", "2 6", "12 3 2 3 2 3")
"""Solid first."""
MARKS = ("circle", "square", "diamond", "triangle", "cross", "star")
VIRIDIS = ("#440154", "#482878", "#3e4a89", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725")
SIGNED = ("#1e4d8f", "#3b7fc4", "#86b6dd", "#cfe1ef", "#f7f7f7", "#f8d5c4", "#eb9a7c", "#cf5246", "#8e1b2c")
"""Of what has both signs: blue below zero, red above."""


def shade(share: float, colours: tuple[str, ...]) -> tuple[int, int, int]:
    """The colour at a share of a scale, from 0 to 1."""
    place = share * (len(colours) - 1)
    at = min(int(place), len(colours) - 2)
    a, b = ([int(colour[n : n + 2], 16) for n in (1, 3, 5)] for colour in colours[at : at + 2])
    red, green, blue = (round(u + (v - u) * (place - at)) for u, v in zip(a, b, strict=True))
    return red, green, blue
