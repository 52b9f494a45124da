"""The figures of the handbook's chapters: exact ones from the package's own formulas, measured ones from the results
that it ships.

Nothing is drawn by hand: a figure is a list of pictures as numbers, which `milepost.draw.svg` draws.
"""

from __future__ import annotations

from collections.abc import Callable

import codes
import forms
import lab
import order

from milepost.draw.figure import Figure

FIGURES: dict[str, Callable[[], list[Figure]]] = {**codes.FIGURES, **order.FIGURES, **forms.FIGURES, **lab.FIGURES}
"""Every figure by its name: `figures/NAME.svg` in a page."""
