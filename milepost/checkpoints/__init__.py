"""Checkpoints of transformers: the only folder that knows that library, which is imported when it is needed."""

from __future__ import annotations

from milepost.checkpoints.use_engine import use_engine

__all__ = ["use_engine"]
