"""Checkpoints of transformers: the only folder that knows that library, which is imported when it is needed."""

from __future__ import annotations

from milepost.checkpoints.convert_layout import Conversion, convert_layout
from milepost.checkpoints.convert_layout_proof import ProofError
from milepost.checkpoints.use_engine import use_engine

__all__ = ["Conversion", "ProofError", "convert_layout", "use_engine"]
