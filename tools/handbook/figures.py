"""The figures of the handbook's chapters: exact ones from the package's own formulas, measured ones from the results that it ships.

Nothing is drawn by hand: a figure is a list of panels of numbers, which `milepost.report.svg` draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import codes
import forms
import lab
import order

from milepost.portrait import Panel
from milepost.report.figure import Figure as Drawn
from milepost.report.figure import of_panel


@dataclass(frozen=True)
class Figure:
    """Panels, and whether their horizontal axis is in powers of two."""

    panels: list[Panel]
    log_x: bool = False

    def drawn(self) -> list[Drawn]:
        """As the package draws them."""
        return [replace(of_panel(panel), log_x=self.log_x) for panel in self.panels]


FIGURES: dict[str, Callable[[], Figure]] = {
    **{name: (lambda make=make: Figure(make())) for name, make in (codes.PANELS | order.PANELS | forms.PANELS).items()},
    **{name: (lambda make=make: Figure(make(), log_x=True)) for name, make in lab.PANELS.items()},
    "migration": lambda: Figure(lab.migration()),
}
"""Every figure by its name: `figures/NAME.svg` in a page."""
