"""User modules: encodings that a user names as ``package.module:Class``. `build` imports none; who runs a plan does.

The folders of a user come after Python's own library on every search path, here and in the processes of trials, so that
a file of the working folder never stands in for a module such as ``random``.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
import sysconfig
from collections.abc import Iterable


def search_path() -> list[str]:
    """Where a trial's process looks for modules: Python's own library, then the other places of this process."""
    own = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
    places = dict.fromkeys(os.path.abspath(place) for place in sys.path)
    return sorted(places, key=lambda place: os.path.realpath(place.removesuffix("lib-dynload")) not in own)


def import_named(specs: Iterable[str], places: Iterable[str] = ()) -> None:
    """Import the modules that specs name, and no others; they may be in the current folder, or in ``places``."""
    for module, cls in (pair for spec in specs for pair in re.findall(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)", spec)):
        sys.path += [place for place in dict.fromkeys((os.getcwd(), *places)) if place not in sys.path]
        try:
            importlib.import_module(module)
        except Exception as error:  # a user's module may do anything
            raise ValueError(
                f"can't import {module!r} for {module}:{cls} ({type(error).__name__}: {error}); "
                "give the module as python would import it from here"
            ) from None
