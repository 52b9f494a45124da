"""Temperatures by position: what models multiply a query by, besides the rotation, so that far queries stay sharp.

    llama4     1 + a ln(floor((p + 1) / n) + 1)        Llama 4, in the layers that do not turn
    mistral    1 + a ln(1 + floor(p / n))              Ministral 3, Devstral 2, Mistral Large 3 (llama_4_scaling_beta)
    inkling    1 + a ln(max(1, (p + 1) / n))           Inkling
    beam       (1 + (p + 1) / n)^a                     Beam, in the layers that do not turn

p is the query's position. All are 1, or nearly, at position 0: a reader that drops them is right in short texts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Form = Literal["llama4", "mistral", "inkling", "beam"]
FORMS: tuple[Form, ...] = ("llama4", "mistral", "inkling", "beam")
PLACES = (0, 1, 255, 4095, 4096, 8191, 8192, 16384, 32768, 65536, 131071, 262144, 1048575)
"""Positions at which two temperatures are compared."""


@dataclass(frozen=True)
class QueryTemperature:
    """A form with its strength ``a`` and its length ``n``."""

    form: Form
    a: float
    n: float

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ValueError(f"a temperature is llama4, mistral, inkling or beam, got {self.form!r}")
        if not 0 < self.n < math.inf or not math.isfinite(self.a):
            raise ValueError(f"a temperature has a length above 0 and a finite strength, got n={self.n}, a={self.a}")

    def at(self, p: int) -> float:
        """What the query at position ``p`` is multiplied by."""
        if self.form == "llama4":
            return 1 + self.a * math.log(math.floor((p + 1) / self.n) + 1)
        if self.form == "mistral":
            return 1 + self.a * math.log(1 + math.floor(p / self.n))
        if self.form == "inkling":
            return 1 + self.a * math.log(max(1.0, (p + 1) / self.n))
        return float((1 + (p + 1) / self.n) ** self.a)
