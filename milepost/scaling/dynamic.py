"""Dynamic NTK: a larger base, by as much as the text has outgrown the trained length.

    base' = base * (factor N / trained - (factor - 1))^(d / (d - 2)),       N = max(length, trained)

emozilla, "Dynamically Scaled RoPE", 2023, after bloc97's NTK-aware scaling; as in transformers

The base depends on the length of the text, so keys that were cached at a shorter length are stale: see `KVCache` for
the policies, and `staged` for a scaling of this kind that is exact.

Departure: none from the formula. Published uses let `length` grow with each token and keep the stale keys; here a plain
scaling has one length, and nothing is kept that depends on what was asked before.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from milepost.scaling.ntk import ntk_stretch
from milepost.scaling.scaling import Scaling
from milepost.spectrum import Spectrum, retuned


@dataclass(frozen=True, repr=False)
class Dynamic(Scaling):
    """``trained`` is the trained length; ``length`` is None (it depends on the text), or the one length that it is
    for.
    """

    trained: int
    factor: float = 1.0
    length: int | None = None

    def __post_init__(self) -> None:
        self.check_length("trained", self.trained)
        self.check_factor("factor", self.factor)
        if self.length is not None:
            self.check_length("length", self.length)

    @property
    def length_dependent(self) -> bool:  # type: ignore[override]
        return self.length is None

    def at(self, length: int) -> Dynamic:
        return replace(self, length=length) if self.length is None else self

    def __call__(self, plain: Spectrum) -> Spectrum:
        if self.length is None:
            return super().__call__(plain)
        if self.length <= self.trained:
            return plain
        stretch = self.factor * self.length / self.trained - (self.factor - 1)
        return retuned(plain, plain.base * ntk_stretch(plain, stretch))
