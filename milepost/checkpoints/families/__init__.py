"""Families by running: what a model type that no list knows does about positions, measured on a small random model.

measured = find_measured(config)             # from the cache, or by running; `CannotBuild` says why not
as_spec(measured, config), as_positions(measured, config, spec)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from milepost.checkpoints.families.bounds import CannotBuild
from milepost.checkpoints.families.small import version

if TYPE_CHECKING:
    from milepost.checkpoints.families.measure import MeasuredFamily

__all__ = ["CannotBuild", "find_measured"]


def find_measured(config: Mapping[str, Any]) -> MeasuredFamily:
    """What a config's class does, from the cache where it was measured before."""
    known = version()
    from milepost.checkpoints.families import cache  # torch

    file = cache.file_of(config, known)
    measured = cache.load(file)
    if measured is None:
        from milepost.checkpoints.families.measure import measure
        from milepost.checkpoints.model.quiet import quiet

        with quiet():
            measured = measure(config)
        cache.save(measured, file)
    return measured
