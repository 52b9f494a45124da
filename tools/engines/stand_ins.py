"""Modules that stand in for packages that an engine imports and does not need to turn anything.

stand_in("torchvision")    every import of it, or of a module inside of it, gets empty classes
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any


class _Name(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(name, (_Nothing,), {})

    def __iter__(cls) -> Any:
        return iter(())


class _Nothing(metaclass=_Name):
    def __init__(self, *args: Any, **options: Any) -> None: ...

    def __call__(self, *args: Any, **options: Any) -> Any:
        return args[0] if args else None


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(name, (_Nothing,), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, names: tuple[str, ...]):
        self.names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if any(name == top or name.startswith(top + ".") for top in self.names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        module = _Module(spec.name)
        module.__path__ = []
        module.__version__ = "0.28.0"
        return module

    def exec_module(self, module: types.ModuleType) -> None: ...


def stand_in(*names: str) -> None:
    """Let imports of these packages succeed, and give nothing."""
    sys.meta_path.insert(0, _Finder(names))
