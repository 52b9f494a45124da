"""Dialects: a RopeSpec in the words of each engine. One file each; none needs the engine installed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from milepost.dialects.keys import ConfigError
from milepost.dialects.rope_spec import Rope, RopeSpec

__all__ = ["ConfigError", "Rope", "RopeSpec", "read"]


def read(config: Mapping[str, Any] | str | os.PathLike[str], *, allow_unknown: bool = False) -> RopeSpec:
    """The spec of a config in memory, or of what stands at a path: see `RopeSpec.from_config`."""
    from milepost.dialects import files, transformers

    if isinstance(config, Mapping):
        return transformers.read(config, allow_unknown=allow_unknown)
    return files.read(config, allow_unknown=allow_unknown)
