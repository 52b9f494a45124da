"""From q at position p and at position 0 to the turn: which channels, in which pairs, by which angles.

    z = (x' + i y') / (x + i y) = m e^(i p w)          over all heads and tokens of one position

Pairs are found by trying: what is left over, |got - z given|, is zero only where these channels are pairs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from milepost.checkpoints.verification.frequencies import follow
from milepost.rotation import Pairing, pairs_of

UNEXPLAINED = 2e-3
"""The share of a result that may be left over: a wrong pairing leaves most of it."""
ALIKE = 1e-5
"""How far z of two layers may be apart that turn alike: the rounding of float32. Another rope is a whole turn apart."""


@dataclass(frozen=True)
class Turn:
    """``size`` channels from ``first`` on turn, of ``width``; ``z``: positions x pairs.

    ``reordered``: the code gives interleaved pairs back in halves. ``parts``: halves are of each of so many
    parts. ``left`` is the share that no turn explains.
    """

    z: Tensor
    first: int
    size: int
    width: int
    pairing: Pairing
    reordered: bool
    left: float
    parts: int = 1

    @property
    def turns(self) -> bool:
        return self.size > 0

    @property
    def m(self) -> float:
        """What the turned channels are multiplied by, at position 0."""
        return float(self.z[0].abs().median()) if self.size else 1.0

    def makes(self, got: Tensor, given: Tensor) -> bool:
        """Whether it is this turn that makes ``got`` of ``given``."""
        if self.parts > 1 or given.shape[-1] != self.width or len(given) != len(self.z):
            return False
        these, rest = (
            slice(self.first, self.first + self.size),
            [*range(self.first), *range(self.first + self.size, self.width)],
        )
        if rest and not _unchanged(given[..., rest], got[..., rest], given):
            return False
        z, left = _ratio(given[..., these], got[..., these], self.pairing, "half" if self.reordered else self.pairing)
        return left < UNEXPLAINED and float((z - self.z).abs().max()) < ALIKE


def by_position(x: Tensor, positions: int, alone: bool) -> Tensor:
    """q, k or v as positions x (texts, heads) x channels in float64.

    ``alone``: rows are positions x texts of one token each; else rows are texts, and one axis has the positions.
    """
    x = x.double()
    if alone:
        return x.reshape(positions, -1, x.shape[-1])
    axis = next((n for n in range(x.ndim - 1) if x.shape[n] == positions), None)
    if axis is None:
        raise ValueError(f"no axis of {tuple(x.shape)} has {positions} positions")
    return x.movedim(axis, 0).flatten(1, -2)


def _unchanged(given: Tensor, got: Tensor, among: Tensor) -> bool:
    return float((given - got).abs().max()) <= 1e-5 * float(among.abs().amax())


def find_turn(given: Tensor, got: Tensor, known: Iterable[Turn] = ()) -> Turn:
    """The turn that makes ``got`` of ``given``: both positions x heads x channels. One that is known is tried first."""
    for turn in known:
        if turn.makes(got, given):
            return turn
    width = given.shape[-1]
    moved = ((given - got).abs() > 1e-5 * given.abs().amax()).flatten(0, -2).any(0).nonzero()[:, 0]
    if not len(moved):
        return Turn(torch.ones(len(given), 0, dtype=torch.complex128), 0, 0, width, "half", False, 0.0)
    first, last = int(moved.min()), int(moved.max()) + 1
    last += (last - first) % 2
    ranges = [(first, last - first), (0, last), (first - first % 2, last - first + first % 2), (0, width)]
    ranges += [(first, width - first), (first, 2 * (width - first) // 2)]
    ways: list[tuple[Pairing, Pairing]] = [("half", "half"), ("interleaved", "interleaved"), ("interleaved", "half")]
    best: Turn | None = None
    for start, size in dict.fromkeys(r for r in ranges if r[1] >= 2 and r[1] % 2 == 0 and sum(r) <= width):
        for before, after in ways:
            z, left = _ratio(given[..., start : start + size], got[..., start : start + size], before, after)
            turn = Turn(z, start, size, width, before, before != after, left)
            if left < UNEXPLAINED:
                return turn
            best = turn if best is None or left < best.left else best
    for parts in (2, 3):  # axes that have a part of the channels each, in halves
        size = last - first if first else last
        if size % (2 * parts) == 0 and first + size <= width:
            order = torch.arange(first, first + size).reshape(parts, 2, -1).transpose(0, 1).flatten()
            z, left = _ratio(given[..., order], got[..., order], "half", "half")
            if left < UNEXPLAINED:
                return Turn(z, first, size, width, "half", False, left, parts)
    if best is None:  # one channel has no partner
        return Turn(torch.ones(len(given), 0, dtype=torch.complex128), first, len(moved), width, "half", False, 1.0)
    return best


def _ratio(given: Tensor, got: Tensor, before: Pairing, after: Pairing) -> tuple[Tensor, float]:
    size = given.shape[-1]
    g = torch.complex(*pairs_of(given, size // 2, size, before))
    o = torch.complex(*pairs_of(got, size // 2, size, after))
    z = (g.conj() * o).sum(1) / (g.abs() ** 2).sum(1).clamp_min(1e-300)
    left = (o - z[:, None] * g).abs().pow(2).sum((1, 2)) / (o.abs() ** 2).sum((1, 2)).clamp_min(1e-300)
    return z, float(left.max().sqrt())


def frequencies(turn: Turn, pos: Tensor) -> Tensor:
    """w of each pair, positive or negative, from positions that hold every power of two."""
    last = max(1, int(pos.max()))
    return follow(turn.z / turn.z[0], pos, 1 << (last.bit_length() - 1))
