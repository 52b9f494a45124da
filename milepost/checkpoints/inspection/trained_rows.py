"""How far a table of learned positions was really trained, read off the table alone.

A row that no text ever reached is as it was initialised: independent noise. So, with d channels,

    cosine of neighbours     normal, mean 0, standard deviation 1/sqrt(d)
    logarithm of its norm    normal, standard deviation 1/sqrt(2d), around one number for all such rows (weight decay
                             shrinks them alike)

A trained row may have any cosine and any norm: both are taken as uniform, over -1..1 and over a factor of ten. The
answer is the k for which "rows before k are trained, rows from k on are noise" is likeliest: a change point, with
nothing to tune. Rows must speak against noise before they count: without an untrained end that is `SURE` times likelier
than none, all rows are said to be trained.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

SURE = math.log(1000.0)
"""How much likelier (as a logarithm) an untrained end must be, besides the number of places where it could begin."""
SPAN = math.log(10.0)
"""Norms of trained rows: uniform over a factor of ten, as a logarithm."""


@dataclass(frozen=True)
class TrainedRows:
    """``trained`` rows of ``usable``.

    Norms are medians; cosines those of neighbouring rows, as means; None where there are no such rows.
    """

    usable: int
    trained: int
    norm_trained: float | None
    norm_rest: float | None
    cosine_trained: float | None
    cosine_rest: float | None
    initial_norm: float | None
    zero_rows: int

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"sentence": self.sentence}

    @property
    def sentence(self) -> str:
        """The answer in words."""
        if self.trained == self.usable:
            return (
                f"all {self.usable} rows of the table look trained (cosine of neighbours {self.cosine_trained:.2f})"
                if self.cosine_trained is not None
                else ""
            )
        rest = f"rows {self.trained} to {self.usable - 1}"
        if self.zero_rows == self.usable - self.trained:
            why = f"{rest} are zero"
        else:
            begun = "" if self.initial_norm is None else f", where initialisation gives {self.initial_norm:.3g}"
            why = (
                f"{rest} are as initialised: norm {self.norm_rest:.3g}{begun}, cosine of neighbours "
                f"{self.cosine_rest or 0.0:.2f}"
            )
        if not self.trained:
            return f"no row of the table can be told from its initialisation: {why}"
        return f"the table declares {self.usable} positions, and about {self.trained} were trained: {why}"


def trained_rows(table: Tensor, init: float | None = None) -> TrainedRows:
    """The usable rows of a table (rows, width); ``init`` is the standard deviation that it was initialised with, for
    the words only."""
    import torch

    rows, width = table.shape
    table = table.double()
    norms = table.norm(dim=1)
    living = int(norms.nonzero().max()) + 1 if bool(norms.any()) else 0
    cosines = torch.nn.functional.cosine_similarity(table[:-1], table[1:], dim=1, eps=1e-30)
    trained = min(_change(norms[:living], cosines[: max(living - 1, 0)], width), living)

    def middle(some: Tensor) -> float | None:
        return float(some.median()) if len(some) else None

    def mean(some: Tensor) -> float | None:
        return float(some.mean()) if len(some) else None

    initial = None if init is None else init * math.sqrt(width)
    parts = (
        middle(norms[:trained]),
        middle(norms[trained:]),
        mean(cosines[: max(trained - 1, 0)]),
        mean(cosines[trained:]),
    )
    return TrainedRows(rows, trained, *parts, initial, rows - living)


def _change(norms: Tensor, cosines: Tensor, width: int) -> int:
    """The first row of the untrained end; the number of rows, where there is none."""
    import torch

    rows = len(norms)
    if rows < 2:
        return rows
    # How much likelier each cosine is under noise than under training; a pair counts from its first row's neighbour on
    pairs = 0.5 * math.log(width / (2 * math.pi)) - 0.5 * width * cosines**2 - math.log(0.5)
    by_pair = torch.cat([pairs.flip(0).cumsum(0).flip(0), pairs.new_zeros(1)])  # by_pair[k]: of pairs k, k+1, ...
    logs = norms.clamp_min(1e-30).log()
    back = torch.arange(1, rows + 1, dtype=torch.float64).flip(0)  # how many rows from k to the end
    total, squares = (t.flip(0).cumsum(0).flip(0) for t in (logs - logs[-1], (logs - logs[-1]) ** 2))
    spread = squares - total**2 / back  # around their own mean
    by_norm = back * (0.5 * math.log(width / math.pi) + math.log(SPAN)) - width * spread
    gain = by_norm + by_pair[(torch.arange(rows) - 1).clamp_min(0)]
    best = int(gain.argmax())
    return best if float(gain[best]) > SURE + math.log(rows) else rows
