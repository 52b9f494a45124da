"""The claims themselves, one file for each group of `milepost.claims.GROUPS`; frame, heads, moved and sight hold the longer experiments."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milepost.claims.claim import Claim

FOLDERS = {
    "absolute": ("order", "tasks", "probes", "codes", "sinusoids", "added", "added_trained"),
    "relative": ("relative", "functions", "alibi", "alibi_trained", "rotation", "frequencies", "rotary", "pairs"),
    "practice": ("lengths", "scaling", "tuned", "cost", "space", "choosing"),
}
"""Every folder, and the groups in it."""


def claims_of(group: str) -> tuple[Claim, ...]:
    """The claims of a group, in their order."""
    folder = next(folder for folder, groups in FOLDERS.items() if group in groups)
    claims: tuple[Claim, ...] = import_module(f"milepost.claims.groups.{folder}.{group}").CLAIMS
    return claims
