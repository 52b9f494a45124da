"""The lab: trains short, tests long."""

from __future__ import annotations

from milepost.public import public_names

__all__, __getattr__ = public_names(__name__, __file__)
