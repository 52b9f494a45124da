"""Scalings: how RoPE is stretched. Each maps a spectrum to a spectrum, one page each.

A scaling is a frozen dataclass; `repr` is its spec string. One that depends on the length of the text says so
(`length_dependent`) and gives the plain scaling for a length with `at(length)`.
"""

from __future__ import annotations

from milepost.scaling.dynamic import Dynamic
from milepost.scaling.hybrid import Hybrid
from milepost.scaling.larger_base import LargerBase
from milepost.scaling.linear import Linear
from milepost.scaling.llama3 import Llama3
from milepost.scaling.longrope import LongRoPE
from milepost.scaling.ntk import NTK
from milepost.scaling.ntk_by_parts import NTKByParts
from milepost.scaling.proportional import Proportional
from milepost.scaling.scaling import Scaling
from milepost.scaling.staged import Staged
from milepost.scaling.yarn import YaRN, mscale

SCALINGS: dict[str, type[Scaling]] = {
    "larger_base": LargerBase,
    "linear": Linear,
    "ntk": NTK,
    "ntk_by_parts": NTKByParts,
    "dynamic": Dynamic,
    "staged": Staged,
    "yarn": YaRN,
    "llama3": Llama3,
    "longrope": LongRoPE,
    "proportional": Proportional,
    "hybrid": Hybrid,
}
"""Every scaling by its name in specs, which is the file's."""

__all__ = [
    "NTK", "SCALINGS", "Dynamic", "Hybrid", "LargerBase", "Linear", "Llama3", "LongRoPE", "NTKByParts", "Proportional",
    "Scaling", "Staged", "YaRN", "mscale",
]  # fmt: skip
