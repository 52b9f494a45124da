"""The plan of a diagnosis: what is read, at which lengths, made before anything is run; and a count of the tokens read so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from milepost.checkpoints.model.loaded import Loaded, Look
from milepost.measure.losses import buckets
from milepost.measure.retrieval import DEPTHS
from milepost.measure.shifted import choose_firsts

SHORTEST = 16
"""Tokens: below, there is no context to speak of."""
PIECES, FEW_PIECES, LEAST = 16, 4, 32
"""Buckets in the trained length: the most, and the fewest, where each needs a pass of its own or would have fewer than so many tokens."""
LOOKED_AT, QUERIES = 2, 256
"""Windows, and queries of each, that statistics of attention are made of."""
SAID = 8
"""Tokens that come one by one through the cache."""
Tell = Callable[[str, float], None]
"""What is being done, and the share of all that is done."""


@dataclass(frozen=True)
class Plan:
    """``lengths`` grow. ``home`` is the length that counts as in range: the trained one; where it is not known, the shortest.

    ``targets`` are the last tokens that are scored at every length, ``passage`` the tokens that are put at ``firsts``, ``trials`` the haystacks.
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
    looked_at: tuple[int, ...]
    length_dependent: bool

    @property
    def longest(self) -> int:
        return self.lengths[-1]

    @property
    def work(self) -> int:
        """About how many tokens are read in all."""
        n, all_lengths = self.windows, sum(self.lengths)
        ends = sum(e for _, e in self.edges) if self.length_dependent else self.longest
        pieces = (len(self.lengths) - 1 + self.length_dependent) * self.longest * max(1, n // 2)
        reading = (
            n * (ends + all_lengths - (0 if self.length_dependent else self.longest))
            + pieces
            + n * self.passage * len(self.firsts)
        )
        reading += n * 2 * max(0, self.longest - self.home)  # again, in texts of the trained length
        return (
            reading
            + self.trials * len(self.depths) * all_lengths
            + LOOKED_AT * sum(self.looked_at)
            + 3 * all_lengths
            + n * min(self.home, self.longest)
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        lists = {name: list(value) for name, value in asdict(self).items() if isinstance(value, tuple)}
        return asdict(self) | lists | {"edges": [list(edge) for edge in self.edges]}


def make(subject: Loaded, lengths: Sequence[int], windows: int, rows: int | None = None) -> Plan:
    """The plan for some lengths; all that can be wrong with them is said here. ``rows`` of a table were really trained, where that is known."""
    wrong = [n for n in lengths if isinstance(n, bool) or not isinstance(n, int) or n < SHORTEST]
    if not lengths or wrong:
        raise ValueError(f"lengths are numbers of tokens, at least {SHORTEST}, such as 1024,2048; got {list(lengths)}")
    if windows < 2:
        raise ValueError(f"an interval needs at least 2 windows of text, got {windows}")
    chosen = tuple(sorted(set(lengths)))
    longest, end, trained = chosen[-1], subject.end, subject.trained if rows is None else rows
    if end is not None and longest > end:
        raise ValueError(
            f"{subject.name} has a table of {end} learned positions, so that a text of {longest} tokens can't be read: ask for lengths up to {end}, "
            f"such as --lengths {','.join(str(n) for n in dict.fromkeys((max(SHORTEST, end // 2), end)))}"
        )
    home = chosen[0] if trained is None else trained
    near = min(home, longest)
    edges = buckets(
        longest, near, FEW_PIECES if subject.length_dependent else min(PIECES, max(FEW_PIECES, near // LEAST))
    )
    passage = max(2, min(home // 2, chosen[0], longest // 2))
    firsts = choose_firsts(passage, longest, trained) if subject.shifts else []
    inside = home if home < longest else chosen[0]
    return Plan(
        chosen, windows, home, chosen[0] // 2, tuple(edges), passage, tuple(firsts), DEPTHS, max(2, windows // 2), tuple(dict.fromkeys((inside, longest))),
        subject.length_dependent,
    )  # fmt: skip


class Reader:
    """A loaded checkpoint that tells how far a plan is."""

    def __init__(self, subject: Loaded, plan: Plan, tell: Tell):
        self.subject, self.plan, self._tell = subject, plan, tell
        self.doing, self.read = "", 0

    @property
    def device(self) -> torch.device:
        return self.subject.device

    def now(self, what: str) -> None:
        """What is being done from here on."""
        self.doing = what
        self._tell(what, min(1.0, self.read / self.plan.work))

    def _count(self, ids: Tensor) -> None:
        self.read += ids.numel()
        self._tell(self.doing, min(1.0, self.read / self.plan.work))

    def __call__(self, ids: Tensor) -> Tensor:
        out = self.subject(ids)
        self._count(ids)
        return out

    def losses(self, ids: Tensor, first: int = 0) -> Tensor:
        """See `Loaded`."""
        out = self.subject.losses(ids, first)
        self._count(ids)
        return out

    def last_losses(self, ids: Tensor, count: int) -> Tensor:
        """See `Loaded`."""
        out = self.subject.last_losses(ids, count)
        self._count(ids)
        return out

    def last(self, ids: Tensor) -> Tensor:
        """See `Loaded`."""
        out = self.subject.last(ids)
        self._count(ids)
        return out

    def continued(self, ids: Tensor, said: int) -> Tensor:
        """See `Loaded`."""
        out = self.subject.continued(ids, said)
        self._count(ids)
        return out

    def looks(self, ids: Tensor) -> Iterator[Look]:
        """See `Loaded`."""
        yield from self.subject.looks(ids)
        self._count(ids)
