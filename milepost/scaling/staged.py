"""Staged: dynamic NTK whose base depends on the stage of the query, so that a cache and a full pass agree.

    stage(m) = 0 for m < trained,   ceil(log2((m + 1) / trained)) beyond;     a query at m, and the keys it meets, turn
                                                                              as
    dynamic NTK does for a text of trained * 2^stage tokens

Ours. It is not the published dynamic NTK, has its own name in specs, and is never written as `dynamic` for another
engine.

Why it is exact: what a query sees depends on its own position, never on how far the text goes on. A full pass runs one
attention a stage; decoding turns the cached keys again only when a stage begins, log2(N / trained) times in all.

Departure: from dynamic NTK, as said: the base moves in powers of two, and a token's base does not change afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass

from milepost.scaling.dynamic import Dynamic
from milepost.scaling.scaling import Scaling


@dataclass(frozen=True, repr=False)
class Staged(Scaling):
    """Dynamic NTK by stages from ``trained`` on, with its ``factor``."""

    trained: int
    factor: float = 1.0
    length_dependent = True

    def __post_init__(self) -> None:
        self.check_length("trained", self.trained)
        self.check_factor("factor", self.factor)

    def stage(self, position: int) -> int:
        """The stage of a query at this index."""
        return max(0, (-(-(position + 1) // self.trained) - 1).bit_length())

    def start(self, stage: int) -> int:
        """The first index of a stage."""
        return 0 if stage == 0 else self.trained * 2 ** (stage - 1)

    def at_stage(self, stage: int) -> Dynamic:
        """The plain scaling of a stage."""
        return Dynamic(self.trained, self.factor, length=self.trained * 2**stage)

    def at(self, length: int) -> Dynamic:
        """The plain scaling of the last token of a text of this length."""
        return self.at_stage(self.stage(length - 1))
