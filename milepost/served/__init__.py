"""Models that run behind a server: measured through the engine that serves them.

    subject = milepost.served.connect("http://127.0.0.1:8000", tokenizer="path/to/model")

servers/ has a file for each server. The commands are `diagnose`, `verify`, `compare` and `recommend`, given an address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from milepost.served.connection import connect

__all__ = ["connect"]


def __getattr__(name: str) -> Any:
    if name == "connect":
        from milepost.served.connection import connect

        return connect
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
