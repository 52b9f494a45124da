"""How runs look: a colour for each model, a dash for each strategy, a mark that helps where colours are close."""

from __future__ import annotations

from dataclasses import dataclass

from milepost.report.lab_runs import Results, Run, whose

COLOURS = (
    "#2563eb", "#d97706", "#059669", "#dc2626", "#7c3aed", "#d200b4", "#876900", "#785a78",
    "#69c300", "#b487a5", "#ff78f0", "#5ab4ff", "#a5b487", "#a578ff", "#ff5a87", "#4b87b4",
)  # fmt: skip
"""Chosen to be far from each other in OKLab, and to stand out from white and from a dark page."""
MARKS = ("circle", "square", "diamond", "triangle-up", "x", "star")
DASHES = ("dash", "dot", "dashdot", "longdash", "longdashdot", "2px,6px", "12px,3px,2px,3px,2px,3px")


@dataclass(frozen=True)
class Look:
    """A line's colour, dash and mark."""

    colour: str
    dash: str
    mark: str

    @property
    def shade(self) -> str:
        """The colour of its interval."""
        red, green, blue = (int(self.colour[at : at + 2], 16) for at in (1, 3, 5))
        return f"rgba({red},{green},{blue},0.12)"


def look(run: Run, results: Results) -> Look:
    """Strategies share their model's colour and differ in their dash; what was tuned has an open mark."""
    models = list(dict.fromkeys(whose(one) for one in results["runs"]))
    used = list(dict.fromkeys(_strategy(one) for one in results["runs"] if one["strategy"] != "none"))
    number = models.index(whose(run))
    mark = MARKS[(number + number // len(COLOURS)) % len(MARKS)] + ("-open" if run.get("tuned_steps") else "")
    dash = "solid" if run["strategy"] == "none" else DASHES[used.index(_strategy(run)) % len(DASHES)]
    return Look(COLOURS[number % len(COLOURS)], dash, mark)


def _strategy(run: Run) -> str:
    return str(run["strategy"]).removesuffix(" tuned")
