"""Checkpoints of transformers: the only folder that knows that library, which is imported when it is needed.

The public names are imported when they are first used: torch alone takes two seconds, and a config can be read without it. A file and
the function in it may have one name; here it is the function.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

_HOME = {
    "Conversion": "convert_layout",
    "Diagnosis": "diagnose",
    "Extension": "extend",
    "Inspection": "inspect",
    "Loaded": "loaded",
    "Migration": "migrate",
    "ProofError": "convert_layout_proof",
    "Recommendation": "recommend",
    "Resized": "resize",
    "Verification": "verify",
    "convert_layout": "convert_layout",
    "diagnose": "diagnose",
    "extend": "extend",
    "inspect": "inspect",
    "load": "loaded",
    "migrate": "migrate",
    "read_text": "text",
    "recommend": "recommend",
    "resize": "resize",
    "use_engine": "use_engine",
    "verify": "verify",
}
"""Every public name, and the file that it is in. Add a line here and one below."""

__all__ = sorted(_HOME)  # noqa: PLE0605

if TYPE_CHECKING:
    from milepost.checkpoints.convert_layout import Conversion as Conversion
    from milepost.checkpoints.convert_layout import convert_layout as convert_layout
    from milepost.checkpoints.convert_layout_proof import ProofError as ProofError
    from milepost.checkpoints.diagnose import Diagnosis as Diagnosis
    from milepost.checkpoints.diagnose import diagnose as diagnose
    from milepost.checkpoints.extend import Extension as Extension
    from milepost.checkpoints.extend import extend as extend
    from milepost.checkpoints.inspect import Inspection as Inspection
    from milepost.checkpoints.inspect import inspect as inspect
    from milepost.checkpoints.loaded import Loaded as Loaded
    from milepost.checkpoints.loaded import load as load
    from milepost.checkpoints.migrate import Migration as Migration
    from milepost.checkpoints.migrate import migrate as migrate
    from milepost.checkpoints.recommend import Recommendation as Recommendation
    from milepost.checkpoints.recommend import recommend as recommend
    from milepost.checkpoints.resize import Resized as Resized
    from milepost.checkpoints.resize import resize as resize
    from milepost.checkpoints.text import read_text as read_text
    from milepost.checkpoints.use_engine import use_engine as use_engine
    from milepost.checkpoints.verify import Verification as Verification
    from milepost.checkpoints.verify import verify as verify


class _Package(ModuleType):
    """This package. Python puts a file that was imported in place of the function of that name: we look for public names first."""

    def __getattribute__(self, name: str) -> Any:
        if name in _HOME:
            return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
        return super().__getattribute__(name)


sys.modules[__name__].__class__ = _Package
