"""Strangers: encodings that a user names as ``package.module:Class``. `build` never imports by itself; whoever runs a plan does, here.

A plan may be run in other processes, on other machines: they are given the folders in which this one looks for modules.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable


def folders() -> list[str]:
    """Where this process looks for modules, the current folder first."""
    return list(dict.fromkeys([os.getcwd(), *(os.path.abspath(place) for place in sys.path if place)]))


def import_named(specs: Iterable[str], where: Iterable[str] = ()) -> None:
    """Import the modules that specs name; ``where`` are more folders to look in, after the current one."""
    for module, cls in (pair for spec in specs for pair in re.findall(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)", spec)):
        sys.path[:0] = [place for place in (os.getcwd(), *where) if place not in sys.path]
        try:
            importlib.import_module(module)
        except Exception as error:  # a stranger's module may do anything
            why = f"{type(error).__name__}: {error}"
            raise ValueError(
                f"can't import {module!r} for {module}:{cls} ({why}); give the module as python would import it from here"
            ) from None
