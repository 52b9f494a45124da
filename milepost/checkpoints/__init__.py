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
    "Inspection": "inspect",
    "ProofError": "convert_layout_proof",
    "Verification": "verify",
    "convert_layout": "convert_layout",
    "inspect": "inspect",
    "use_engine": "use_engine",
    "verify": "verify",
}
"""Every public name, and the file that it is in. Add a line here and one below."""

__all__ = sorted(_HOME)  # noqa: PLE0605

if TYPE_CHECKING:
    from milepost.checkpoints.convert_layout import Conversion as Conversion
    from milepost.checkpoints.convert_layout import convert_layout as convert_layout
    from milepost.checkpoints.convert_layout_proof import ProofError as ProofError
    from milepost.checkpoints.inspect import Inspection as Inspection
    from milepost.checkpoints.inspect import inspect as inspect
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
