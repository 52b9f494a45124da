"""Blocks: a layout cut into rectangles in which both queries and keys are neighbours of one text.

Inside a block the distance between query r and key c is `ahead + r - c`, so masks and Toeplitz biases need no tensors
of indices. Packed texts, padded rows and shards become a few blocks each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from milepost.layout import Layout, Run


@dataclass(frozen=True)
class Block:
    """Queries ``first .. stop-1`` and keys ``key_first .. key_stop-1`` of one text, in ``row`` of the batch (None: in
    every row).

    ``ahead`` is the index of the first query minus the index of the first key. (Numbers, not slices: a compiler keeps
    numbers symbolic.)
    """

    row: int | None
    first: int
    stop: int
    key_first: int
    key_stop: int
    ahead: int

    @property
    def shape(self) -> tuple[int, int]:
        """How many queries and keys it holds."""
        return self.stop - self.first, self.key_stop - self.key_first

    def queries(self, t: Tensor) -> Tensor:
        """Its queries of a tensor B H I D."""
        return self._rows(t)[:, :, self.first : self.stop]

    def keys(self, t: Tensor) -> Tensor:
        """Its keys or values of a tensor B G J D."""
        return self._rows(t)[:, :, self.key_first : self.key_stop]

    def _rows(self, t: Tensor) -> Tensor:
        return t if self.row is None else t[self.row : self.row + 1]

    def layouts(self, at: Layout, to: Layout) -> tuple[Layout, Layout]:
        """The layouts of its queries and of its keys."""
        return at.part(self.row, self.first, self.stop), to.part(self.row, self.key_first, self.key_stop)

    def cut(self, first: int, stop: int, causal: bool, window: int | None) -> Block:
        """Queries ``first .. stop-1`` of its own, with the keys that they can see."""
        low, high, ahead = 0, self.shape[1], self.ahead + first
        if window is not None:
            low = max(0, ahead - window + 1)
            high = min(high, self.ahead + stop - 1 + window)
        if causal:
            high = min(high, self.ahead + stop)
        high = max(low, high)
        return Block(
            self.row, self.first + first, self.first + stop, self.key_first + low, self.key_first + high, ahead - low
        )


def blocks(at: Layout, to: Layout, causal: bool) -> tuple[Block, ...] | str:
    """The blocks of a layout, each cut to the keys that its queries can see at all; or why there are none, as a
    sentence.
    """
    if torch.compiler.is_compiling():
        return _blocks(at, to, causal)
    known = _last[0] if _last else None
    if (
        known is None or known[0] is not at or known[1] is not to or known[2] != causal
    ):  # the choice of a backend asks twice
        known = (at, to, causal, _blocks(at, to, causal))
        _last[:] = [known]
    return known[3]  # never read back from the list: another thread may have written there


_last: list[tuple[Layout, Layout, bool, tuple[Block, ...] | str]] = []


def _blocks(at: Layout, to: Layout, causal: bool) -> tuple[Block, ...] | str:
    if at.rows is None or to.rows is None:
        return "the tokens are not known to be neighbours (a permutation, a shard by take(), or a step other than 1)"
    rows_at, rows_to = _alike(at.rows), _alike(to.rows)
    many = max(len(rows_at), len(rows_to))
    rectangles: list[Block] = []
    for row in range(many):
        these = None if many == 1 else row
        keys = rows_to[row if len(rows_to) > 1 else 0]
        for run in rows_at[row if len(rows_at) > 1 else 0]:
            mine = [key for key in keys if key.segment == run.segment]
            if len(mine) > 1:
                return f"the keys of text {run.segment} lie in {len(mine)} separate stretches of memory"
            if mine:
                block = _visible(run, mine[0], these, causal, at.window)
                if block is not None:
                    rectangles.append(block)
    return tuple(rectangles)


def assemble(q: Tensor, width: int, pieces: Sequence[tuple[Block, Tensor]]) -> Tensor:
    """The outputs of blocks in their places, B H I width; queries in no block see nothing, and give zeros."""
    if pieces and all(b.row is None for b, _ in pieces) and sum(b.stop - b.first for b, _ in pieces) == q.shape[2]:
        if len(pieces) == 1:
            return pieces[0][1]
        return torch.cat([done for _, done in sorted(pieces, key=lambda piece: piece[0].first)], dim=2)
    out = (pieces[0][1] if pieces else q).new_zeros(*q.shape[:3], width)  # of a piece: torch.func.vmap knows its batch
    for b, done in pieces:
        rows = out if b.row is None else out[b.row : b.row + 1]
        rows[:, :, b.first : b.stop] = done
    return out


def _alike(rows: tuple[tuple[Run, ...], ...]) -> tuple[tuple[Run, ...], ...]:
    return rows[:1] if all(row == rows[0] for row in rows[1:]) else rows


def _visible(query: Run, key: Run, row: int | None, causal: bool, window: int | None) -> Block | None:
    """The block of two runs, without queries before the first key and keys that nobody sees."""
    ahead, skipped = query.first - key.first, 0
    if causal and ahead < 0:  # the first queries stand before the first key
        skipped = min(-ahead, query.length)
    whole = Block(row, query.offset, query.offset + query.length, key.offset, key.offset + key.length, ahead)
    block = whole.cut(skipped, query.length, causal, window)
    return block if block.shape[0] > 0 and block.shape[1] > 0 else None
