"""The plan of a diagnosis: what is read, at which lengths, made before anything is run; and a progress count."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from milepost.checkpoints.model.loaded import Loaded, Look
from milepost.measure.losses import buckets
from milepost.measure.results import plain_fields
from milepost.measure.retrieval import DEPTHS
from milepost.measure.shifted import choose_firsts

SHORTEST = 16
"""Tokens: below, there is no context to speak of."""
PIECES, FEW_PIECES, LEAST_TOKENS = 16, 4, 32
"""Buckets in the trained length: the most, and the fewest.

The fewest where each needs a pass of its own, or would have fewer than ``LEAST_TOKENS``.
"""
WATCHED, QUERIES = 2, 256
"""Windows, and queries of each, that statistics of attention are made of."""
STEPPED = 8
"""Tokens that come one by one through the cache."""
Tell = Callable[[str, float], None]
"""What is being done, and the share of all that is done."""


@dataclass(frozen=True)
class DiagnosisPlan:
    """``lengths`` grow. ``home`` is the length that counts as in range: the trained one, or the shortest if that is
    unknown.

    ``targets`` are the last tokens that are scored at every length, ``passage`` the tokens that are put at ``firsts``,
    ``trials`` the haystacks, ``watched_at`` the lengths at which attention is watched.
    """

    lengths: tuple[int, ...]
    windows: int
    home: int
    targets: int
    edges: tuple[tuple[int, int], ...]
    passage: int
    firsts: tuple[int, ...]
    depths: tuple[float, ...]
    trials: int
    watched_at: tuple[int, ...]
    length_dependent: bool

    @property
    def longest(self) -> int:
        return self.lengths[-1]

    @property
    def work(self) -> int:
        """About how many tokens are read in all."""
        n, all_lengths = self.windows, sum(self.lengths)
        by_position = sum(end for _, end in self.edges) if self.length_dependent else self.longest
        by_length = all_lengths - (0 if self.length_dependent else self.longest)
        disjoint = (len(self.lengths) - 1 + self.length_dependent) * self.longest * max(1, n // 2)
        again = 2 * max(0, self.longest - self.home) + min(self.home, self.longest)  # in texts of the trained length
        retrieval = self.trials * len(self.depths) * all_lengths
        drift, attention = 3 * all_lengths, WATCHED * sum(self.watched_at)
        a_window = by_position + by_length + again + self.passage * len(self.firsts)
        return n * a_window + disjoint + retrieval + drift + attention

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return plain_fields(self) | {"edges": [list(edge) for edge in self.edges]}


def make_plan(subject: Loaded, lengths: Sequence[int], windows: int, rows: int | None = None) -> DiagnosisPlan:
    """The plan for some lengths, or an error about them.

    ``rows`` of a table were really trained, where that is known.
    """
    wrong = [n for n in lengths if isinstance(n, bool) or not isinstance(n, int) or n < SHORTEST]
    if not lengths or wrong:
        raise ValueError(f"lengths are numbers of tokens, at least {SHORTEST}, such as 1024,2048; got {list(lengths)}")
    if windows < 2:
        raise ValueError(f"an interval needs at least 2 windows of text, got {windows}")
    chosen = tuple(sorted(set(lengths)))
    longest, end, trained = chosen[-1], subject.end, subject.trained if rows is None else rows
    if end is not None and longest > end:
        raise ValueError(
            f"{subject.name} has a table of {end} learned positions, so that a text of {longest} tokens can't be "
            "read: ask "
            f"for lengths up to {end}, such as --lengths {','.join(map(str, sorted({max(SHORTEST, end // 2), end})))}"
        )
    home = chosen[0] if trained is None else trained
    near = min(home, longest)
    pieces = FEW_PIECES if subject.length_dependent else min(PIECES, max(FEW_PIECES, near // LEAST_TOKENS))
    passage = max(2, min(home // 2, chosen[0], longest // 2))
    firsts = choose_firsts(passage, longest, trained) if subject.shifts else []
    inside = home if home < longest else chosen[0]
    return DiagnosisPlan(
        lengths=chosen, windows=windows, home=home, targets=chosen[0] // 2, edges=tuple(buckets(longest, near, pieces)),
        passage=passage, firsts=tuple(firsts), depths=DEPTHS, trials=max(2, windows // 2),
        watched_at=tuple(dict.fromkeys((inside, longest))), length_dependent=subject.length_dependent,
    )  # fmt: skip


class Reader:
    """A loaded checkpoint that tells how far a plan is."""

    def __init__(self, subject: Loaded, plan: DiagnosisPlan, tell: Tell):
        self.subject, self.plan, self._tell = subject, plan, tell
        self.doing, self.read = "", 0

    @property
    def device(self) -> torch.device:
        return self.subject.device

    def begin(self, what: str) -> None:
        """Tell what is being done from here on."""
        self.doing = what
        self._tell(what, min(1.0, self.read / self.plan.work))

    def _counted(self, ids: Tensor, out: Tensor) -> Tensor:
        self.read += ids.numel()
        self.begin(self.doing)
        return out

    def __call__(self, ids: Tensor) -> Tensor:
        return self._counted(ids, self.subject(ids))

    def losses(self, ids: Tensor, first: int = 0) -> Tensor:
        """See `Loaded`."""
        return self._counted(ids, self.subject.losses(ids, first))

    def last_losses(self, ids: Tensor, count: int) -> Tensor:
        """See `Loaded`."""
        return self._counted(ids, self.subject.last_losses(ids, count))

    def last(self, ids: Tensor) -> Tensor:
        """See `Loaded`."""
        return self._counted(ids, self.subject.last(ids))

    def continued(self, ids: Tensor, stepped: int) -> Tensor:
        """See `Loaded`."""
        return self._counted(ids, self.subject.continued(ids, stepped))

    def looks(self, ids: Tensor) -> Iterator[Look]:
        """See `Loaded`."""
        yield from self.subject.looks(ids)
        self._counted(ids, ids)
