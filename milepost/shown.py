"""How a notebook shows what is below the parts that draw it.

An encoding, a scaling and a RopeSpec are formulas: their documents are built by parts above them, which they must not
import. So they ask here, by the name of their class. `milepost/__init__.py`, which is above every part and is always
imported first, says who answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_BUILDERS: dict[str, Callable[[Any], Any]] = {}


def built_by(name: str, build: Callable[[Any], Any]) -> None:
    """Say who builds the document of a class and of those below it: ``milepost.encoding.Encoding``."""
    _BUILDERS[name] = build


def html(thing: Any) -> str:
    """A piece of a notebook."""
    names = [f"{cls.__module__}.{cls.__qualname__}" for cls in type(thing).__mro__]
    build = next(_BUILDERS[name] for name in names if name in _BUILDERS)
    return str(build(thing).fragment())
