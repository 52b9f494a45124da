"""Checkpoints of transformers: the only folder that knows that library, which is imported when it is needed.

The public names are imported when they are first used: torch alone takes two seconds, and a config can be read without
it. Each command has its folder, named by a noun: `verify` is in verification/verify.py.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOME = {
    "Conversion": "layout_conversion.convert_layout",
    "Diagnosis": "diagnosis.diagnose",
    "Extension": "extension.extend",
    "Inspection": "inspection.inspect",
    "Loaded": "model.loaded",
    "Migration": "migration.migrate",
    "ProofError": "layout_conversion.proof",
    "Recommendation": "recommendation.recommend",
    "Resized": "resizing.resize",
    "Verification": "verification.verify",
    "convert_layout": "layout_conversion.convert_layout",
    "diagnose": "diagnosis.diagnose",
    "extend": "extension.extend",
    "inspect": "inspection.inspect",
    "load": "model.load",
    "migrate": "migration.migrate",
    "read_text": "model.text",
    "recommend": "recommendation.recommend",
    "resize": "resizing.resize",
    "use_engine": "model.engine_attention",
    "verify": "verification.verify",
}
"""Every public name, and the file that it is in. Add a line here and one below."""

__all__ = sorted(_HOME)  # noqa: PLE0605

if TYPE_CHECKING:
    from milepost.checkpoints.diagnosis.diagnose import Diagnosis as Diagnosis
    from milepost.checkpoints.diagnosis.diagnose import diagnose as diagnose
    from milepost.checkpoints.extension.extend import Extension as Extension
    from milepost.checkpoints.extension.extend import extend as extend
    from milepost.checkpoints.inspection.inspect import Inspection as Inspection
    from milepost.checkpoints.inspection.inspect import inspect as inspect
    from milepost.checkpoints.layout_conversion.convert_layout import Conversion as Conversion
    from milepost.checkpoints.layout_conversion.convert_layout import convert_layout as convert_layout
    from milepost.checkpoints.layout_conversion.proof import ProofError as ProofError
    from milepost.checkpoints.migration.migrate import Migration as Migration
    from milepost.checkpoints.migration.migrate import migrate as migrate
    from milepost.checkpoints.model.engine_attention import use_engine as use_engine
    from milepost.checkpoints.model.load import load as load
    from milepost.checkpoints.model.loaded import Loaded as Loaded
    from milepost.checkpoints.model.text import read_text as read_text
    from milepost.checkpoints.recommendation.recommend import Recommendation as Recommendation
    from milepost.checkpoints.recommendation.recommend import recommend as recommend
    from milepost.checkpoints.resizing.resize import Resized as Resized
    from milepost.checkpoints.resizing.resize import resize as resize
    from milepost.checkpoints.verification.verify import Verification as Verification
    from milepost.checkpoints.verification.verify import verify as verify


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
