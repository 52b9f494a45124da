"""Blocks: a layout cut into rectangles in which both queries and keys are neighbours of one text.

Inside a block the distance between query r and key c is `ahead + r - c`, so masks and Toeplitz biases need no tensors of
indices. Packed texts, padded rows and shards become a few blocks each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from milepost.layout import Layout, Run


@dataclass(frozen=True)
class Block:
    """Queries and keys of one text: ``rows`` of the batch, ``queries`` and ``keys`` in memory.

    ``ahead`` is the index of the first query minus the index of the first key.
    """

    rows: slice
    queries: slice
    keys: slice
    ahead: int

    @property
    def shape(self) -> tuple[int, int]:
        """How many queries and keys it holds."""
        return self.queries.stop - self.queries.start, self.keys.stop - self.keys.start


def blocks(at: Layout, to: Layout, causal: bool) -> tuple[Block, ...] | str:
    """The blocks of a layout, each cut to the keys that its queries can see at all; or why there are none, as a sentence."""
    if at.rows is None or to.rows is None:
        return "the tokens are not known to be neighbours (a permutation, a shard by take(), or a step other than 1)"
    rows_at, rows_to = _alike(at.rows), _alike(to.rows)
    many = max(len(rows_at), len(rows_to))
    found: list[Block] = []
    for row in range(many):
        these = slice(None) if many == 1 else slice(row, row + 1)
        keys = rows_to[row if len(rows_to) > 1 else 0]
        for run in rows_at[row if len(rows_at) > 1 else 0]:
            mine = [key for key in keys if key.segment == run.segment]
            if len(mine) > 1:
                return f"the keys of text {run.segment} lie in {len(mine)} separate stretches of memory"
            if mine:
                block = _visible(run, mine[0], these, causal, at.window)
                if block is not None:
                    found.append(block)
    return tuple(found)


def assemble(q: Tensor, width: int, pieces: Sequence[tuple[slice, slice, Tensor]]) -> Tensor:
    """The outputs of (rows, queries) in their places, B H I width; queries in no piece see nothing, and give zeros."""
    whole = all(rows == slice(None) for rows, _, _ in pieces)
    if whole and sum(queries.stop - queries.start for _, queries, _ in pieces) == q.shape[2]:
        ordered = [done for _, _, done in sorted(pieces, key=lambda piece: piece[1].start)]
        return ordered[0] if len(ordered) == 1 else torch.cat(ordered, dim=2)
    out = torch.zeros(*q.shape[:3], width, dtype=q.dtype, device=q.device)
    for rows, queries, done in pieces:
        out[rows, :, queries] = done
    return out


def _alike(rows: tuple[tuple[Run, ...], ...]) -> tuple[tuple[Run, ...], ...]:
    return rows[:1] if all(row == rows[0] for row in rows[1:]) else rows


def _visible(query: Run, key: Run, rows: slice, causal: bool, window: int | None) -> Block | None:
    """The block of two runs, without queries before the first key and keys that nobody sees."""
    first, keys, ahead, count = query.offset, key.length, query.first - key.first, query.length
    start = 0
    if causal and ahead < 0:  # the first queries stand before the first key
        first, count, ahead = first - ahead, count + ahead, 0
    if causal:
        keys = min(keys, ahead + count)
    if window is not None:
        start = max(0, ahead - window + 1)
        if not causal:
            keys = min(keys, ahead + count - 1 + window)
    if count <= 0 or keys - start <= 0:
        return None
    return Block(rows, slice(first, first + count), slice(key.offset + start, key.offset + keys), ahead - start)
