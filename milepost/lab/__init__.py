"""The lab: trains short, tests long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milepost.lab.checkpoint import load as load

__all__ = ["load"]


def __getattr__(name: str) -> Any:
    if name == "load":
        from milepost.lab.checkpoint import load

        return load
    raise AttributeError(f"module 'milepost.lab' has no attribute {name!r}")
