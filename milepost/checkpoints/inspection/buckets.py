"""T5 buckets that are out of line with the rest.

Near buckets hold one distance each, and heads that look at the token before have good reason to lift one of them. The
far half holds ranges that grow, and goes smoothly in a trained model. A far bucket is out of line when it lies outside
of what the other far buckets of its head span, by more than `TIMES` that span or that of most heads, and by more than
one unit of logit (a factor e in attention).

The bucket for distance 0 of keys after the query serves nobody, and is near.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

TIMES = 2.0
"""Seven normal numbers span 2.7 of their deviations: 2 spans beyond their edge are more than 6 deviations off the
middle."""
LEAST = 1.0
FEWEST = 4
"""Far buckets on a side, below which there is no rest to be out of line with."""


@dataclass(frozen=True)
class Outlier:
    """A bucket that stands alone: ``first`` is its shortest distance, ``last`` its longest (None: it goes on without
    end)."""

    stack: str
    head: int
    bucket: int
    side: str
    first: int
    last: int | None
    value: float
    low: float
    high: float

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"sentence": self.sentence}

    @property
    def sentence(self) -> str:
        """What it means."""
        reach = f"distances of {self.first} and more" if self.last is None else f"distances {self.first} to {self.last}"
        pull = "attends to all of them at once" if self.value > self.high else "does not see them"
        stack = f"{self.stack}, " if self.stack else ""
        return (
            f"{stack}head {self.head}: bucket {self.bucket} ({reach}, keys {self.side} the query) stands at "
            f"{self.value:+.3g}, "
            f"where the other far buckets are {self.low:+.3g} to {self.high:+.3g}: this head {pull}"
        )


def outliers(table: Tensor, *, both_sides: bool, max_distance: int, stack: str = "") -> tuple[list[Outlier], str]:
    """The buckets of a table (buckets, heads) that are out of line; and a word where that can't be told."""
    import torch

    from milepost.encodings.t5 import edges

    buckets = len(table)
    sided = buckets // 2 if both_sides else buckets
    near = sided // 2
    if sided - near < FEWEST or max_distance <= near:
        return [], f"{buckets} buckets are too few to say whether one is out of line"
    starts = (0, *edges(sided, max_distance))
    outlying = []
    for start, side in ((0, "before"), (sided, "after")) if both_sides else ((0, "before"),):
        far = table[start + near : start + sided]
        for row in range(len(far)):
            rest = torch.cat([far[:row], far[row + 1 :]])
            low, high = rest.min(0).values, rest.max(0).values
            span = (high - low).clamp_min(float((high - low).median()))
            outside = torch.maximum(low - far[row], far[row] - high)
            for head in ((outside > TIMES * span) & (outside > LEAST)).nonzero().flatten().tolist():
                place = near + row
                last = starts[place + 1] - 1 if place + 1 < sided else None
                outlying.append(
                    Outlier(
                        stack,
                        head,
                        start + place,
                        side,
                        starts[place],
                        last,
                        *(float(t[head]) for t in (far[row], low, high)),
                    )
                )
    return outlying, ""
