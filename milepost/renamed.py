"""Renamed: modules and classes that README or docs of earlier versions showed say what they are called now."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

MODULES = {
    "milepost.dialects": "milepost.rope",
    "milepost.analysis": "milepost.rope.analysis",
    "milepost.space": "milepost.positions",
    "milepost.report": "milepost.draw",
    "milepost.diagnose": "milepost.measure",
    "milepost.results": "milepost.measure.results",
    "milepost.choose": "milepost.lab.choose",
    "milepost.resize": "milepost.encodings.resize_table",
    "milepost.encodings.logn": "milepost.encodings.temperature",
}
"""Old name, new name."""
CLASSES = {"LogN": "Temperature(form='logn', length=...)"}
"""Public classes: old name, what to write now."""


class Renamed:
    """A finder that answers for the old names alone, and only where no such module is found."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Raise for a module that was renamed; None, "look elsewhere", for all others."""
        if name in MODULES:
            raise ModuleNotFoundError(f"{name} was renamed: import {MODULES[name]} instead", name=name)
        return None


def install() -> None:
    """Look for old names after everything else was looked for."""
    if Renamed not in sys.meta_path:
        sys.meta_path.append(Renamed)
