"""Checkpoints of transformers: the only folder that knows that library, which is imported when it is needed.

The public names are imported when they are first used: torch alone takes two seconds, and a config can be read without
it. Each command has its folder, named by a noun: `verify` is in verification/verify.py.
"""

from __future__ import annotations

from milepost.public import public_names

__all__, __getattr__ = public_names(__name__, __file__)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
