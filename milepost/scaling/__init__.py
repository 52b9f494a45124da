"""Scalings: how RoPE is stretched. Each maps a spectrum to a spectrum, one page each.

A scaling is a frozen dataclass; `repr` is its spec string. One that depends on the length of the text says so
(`length_dependent`) and gives the plain scaling for a length with `at(length)`.
"""

from __future__ import annotations

from milepost.scaling.scaling import Scaling

NAMES: dict[str, str] = {
    "larger_base": "LargerBase",
    "linear": "Linear",
    "ntk": "NTK",
    "ntk_by_parts": "NTKByParts",
    "dynamic": "Dynamic",
    "staged": "Staged",
    "yarn": "YaRN",
    "llama3": "Llama3",
    "longrope": "LongRoPE",
    "proportional": "Proportional",
    "hybrid": "Hybrid",
}
"""Every scaling: its name (the file's), and its class."""

__all__ = ["NAMES", "Scaling"]
