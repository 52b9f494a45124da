"""The public names of a package, each imported when it is first used: torch alone takes two seconds.

Its stub, ``__init__.pyi``, lists them once: for type checkers, and for this file.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any


def public_names(
    package: str, file: str, renamed: Mapping[str, str] = MappingProxyType({})
) -> tuple[list[str], Callable[[str], Any]]:
    """The names in the stub beside ``file``, and the ``__getattr__`` that imports them, and that says of names of old
    what is written now (``renamed``).
    """
    with open(f"{file}i", encoding="utf-8") as stub:  # each line is: from MODULE import NAME as NAME
        home = {words[3]: words[1] for words in map(str.split, stub) if words[:1] == ["from"]}

    def get(name: str) -> Any:
        if name in renamed:
            raise AttributeError(f"{package}.{name} was renamed: write {package}.{renamed[name]} instead")
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(home[name]), name)

    return sorted(home), get
