"""Layout: where each token is.

    index    the token's place in its own text: 0, 1, 2, ...       order; masks come from it
    segment  which text it belongs to; -1 is padding               texts never see each other
    pos      what an encoding is told: the index, or a remap       one number a token, or one for each axis

Order is not position: a mask made from remapped positions would leak the future, so `pos` plays no part in it.
`index` and `segment` have shape B L (B = 1 where all rows are alike); `pos` B L, or axes B L.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from milepost.positions import check_dtype, check_finite, extent

MOST_RUNS = 64
"""With more runs than this in a row, a layout counts as scattered."""


@dataclass(frozen=True)
class Run:
    """Neighbours in memory that are neighbours in one text: tokens ``offset .. offset+length-1`` have index ``first
    ...``.
    """

    offset: int
    length: int
    segment: int
    first: int


@dataclass(frozen=True, eq=False)
class Layout:
    """Where each token is. Make one with `dense`, `packed`, `padded` or `decode`; slice and `take` give others.

    ``window`` lets a query see itself and the ``window - 1`` tokens before it (and after it, when not causal).
    ``rows`` is what is known of contiguity, one tuple of runs for each row of the batch, or None where nothing is.
    ``keys`` is what a cache has done to the keys that lie here (see `milepost.attention.cache`).
    """

    index: Tensor
    segment: Tensor
    pos: Tensor
    window: int | None = None
    rows: tuple[tuple[Run, ...], ...] | None = None
    keys: Any = None

    # -- ways to make one ---------------------------------------------------------------------------------------

    @staticmethod
    def dense(
        length: int, *, start: int = 0, window: int | None = None, device: torch.device | str | None = None
    ) -> Layout:
        """One text of ``length`` tokens in each row, the first at index ``start``."""
        if length < 0 or start < 0:
            raise ValueError(f"length and start must not be negative, got length={length}, start={start}")
        _check_window(window)
        index = torch.arange(start, start + length, device=device)[None]
        return Layout(index, torch.zeros_like(index), index, window, ((Run(0, length, 0, start),),))

    @staticmethod
    def decode(
        past: int | Tensor, length: int = 1, *, window: int | None = None, device: torch.device | str | None = None
    ) -> Layout:
        """The next ``length`` tokens after ``past`` ones. A tensor of shape B gives each row its own past."""
        if isinstance(past, int):
            return Layout.dense(length, start=past, window=window, device=device)
        if length < 0 or past.dtype not in (torch.int64, torch.int32) or past.dim() != 1 or bool((past < 0).any()):
            came = f"{past.dtype} of shape {tuple(past.shape)}, length={length}"
            raise ValueError(
                f"past must be an integer, or integers of shape (B,), and neither past nor length negative; got {came}"
            )
        _check_window(window)
        index = past.to(device)[:, None].long() + torch.arange(length, device=device or past.device)
        rows = tuple((Run(0, length, 0, first),) for first in past.tolist())
        return Layout(index, torch.zeros_like(index), index, window, rows)

    @staticmethod
    def packed(
        lengths: Sequence[int] | None = None,
        *,
        cu_seqlens: Tensor | None = None,
        window: int | None = None,
        device: torch.device | str | None = None,
    ) -> Layout:
        """Several texts one after another in one row, given by their lengths, or by ``cu_seqlens`` = 0, n1, n1+n2,
        ...
        """
        if (lengths is None) == (cu_seqlens is None):
            raise ValueError(
                "give either lengths, such as [1000, 3096], or cu_seqlens, such as tensor([0, 1000, 4096])"
            )
        if cu_seqlens is not None:
            edges = cu_seqlens.tolist()
            if cu_seqlens.dim() != 1 or cu_seqlens.is_floating_point() or not edges or edges[0] != 0:
                raise ValueError(f"cu_seqlens must be one row of integers that starts with 0, got {edges}")
            lengths = [b - a for a, b in itertools.pairwise(edges)]
            device = device or cu_seqlens.device
        assert lengths is not None
        if any(n < 0 for n in lengths):
            raise ValueError(f"lengths must not be negative, got {list(lengths)}")
        _check_window(window)
        index = torch.cat([torch.arange(n, device=device) for n in lengths] or [torch.arange(0, device=device)])[None]
        segment = torch.repeat_interleave(torch.tensor(list(lengths), dtype=torch.long)).to(index.device)[None]
        runs, offset = [], 0
        for s, n in enumerate(lengths):
            runs.append(Run(offset, n, s, 0))
            offset += n
        return Layout(index, segment, index, window, (tuple(runs),))

    @staticmethod
    def padded(mask: Tensor, *, window: int | None = None) -> Layout:
        """From a padding mask of shape B L (true or 1: a token), padded on the left, on the right, or in between."""
        if mask.dim() != 2:
            raise ValueError(f"a padding mask has shape (B, L), got {tuple(mask.shape)}")
        if mask.dtype != torch.bool and not bool(((mask == 0) | (mask == 1)).all()):
            raise ValueError(
                "a padding mask holds 1 (a token) and 0 (padding) only; an additive mask (0 and -inf) is another thing"
            )
        _check_window(window)
        real = mask.bool()
        index = (real.long().cumsum(-1) - 1).clamp(min=0)
        index = torch.where(real, index, torch.zeros_like(index))
        segment = torch.where(real, torch.zeros_like(index), torch.full_like(index, -1))
        return Layout(index, segment, index, window, tuple(_runs(row) for row in real.tolist()))

    def __post_init__(self) -> None:
        check_dtype(self.pos)
        check_dtype(self.index)
        if self.index.is_floating_point():
            raise ValueError(
                f"index counts tokens and must be an integer tensor, got {self.index.dtype}; fractional places go "
                "into pos"
            )
        if self.segment.is_floating_point() or self.segment.dtype == torch.bool:
            raise ValueError(
                f"segment numbers the texts (-1: padding) and must be an integer tensor, got {self.segment.dtype}"
            )
        if self.index.shape != self.segment.shape or self.index.dim() != 2:
            raise ValueError(
                f"index and segment must both have shape (B, L), got {tuple(self.index.shape)} and "
                f"{tuple(self.segment.shape)}"
            )
        if self.pos.shape[-1] != self.index.shape[-1] or self.pos.dim() not in (2, 3):
            raise ValueError(
                f"pos must have shape (B, L) or (axes, B, L) with L = {self.index.shape[-1]}, got "
                f"{tuple(self.pos.shape)}"
            )
        if not {self.pos.shape[-2], self.index.shape[0]} <= {1, max(self.pos.shape[-2], self.index.shape[0])}:
            raise ValueError(f"pos is for a batch of {self.pos.shape[-2]}, index for one of {self.index.shape[0]}")
        if self.pos.is_floating_point() and not torch.compiler.is_compiling():
            check_finite(self.pos)

    # -- what it answers ----------------------------------------------------------------------------------------

    @property
    def length(self) -> int:
        """How many tokens a row holds, padding included."""
        return self.index.shape[-1]

    @property
    def batch(self) -> int:
        """How many rows there are; 1 also stands for "all rows alike"."""
        rows = self.index.shape[0]
        return rows if self.pos is self.index else max(rows, self.pos.shape[-2])

    @property
    def remapped(self) -> bool:
        """Whether the encoding is told something else than the index."""
        return self.pos is not self.index

    def mask(self, to: Layout | None = None, *, causal: bool = True) -> Tensor:
        """What each of these tokens (queries) may see of ``to`` (keys): bool, shape B 1 I J.

        Same text, no padding, not the future when ``causal``, and inside the window of the queries' layout.
        """
        to = self if to is None else to
        i, j = self.index[:, None, :, None], to.index[:, None, None, :]
        a, b = self.segment[:, None, :, None], to.segment[:, None, None, :]
        seen = (a == b) & (a >= 0)
        if causal:
            seen = seen & (j <= i)
        if self.window is not None:
            seen = seen & ((i - j).abs() < self.window)
        return seen

    # -- others made from it ------------------------------------------------------------------------------------

    def with_positions(self, pos: Tensor) -> Layout:
        """The same tokens in the same order, at positions ``pos`` for the encoding: shape L, B L or axes B L."""
        check_dtype(pos)
        if pos.dim() == 0:
            raise ValueError(
                f"positions are one number a token, shape (L,), (B, L) or (axes, B, L) with L = {self.length}; got "
                "shape ()"
            )
        return replace(self, pos=pos[None] if pos.dim() == 1 else pos)

    def __getattr__(self, name: str) -> Any:
        if name == "told":
            raise AttributeError("Layout.told was renamed: use Layout.with_positions(pos)")
        raise AttributeError(f"a Layout has no attribute {name!r}")

    def windowed(self, window: int | None) -> Layout:
        """The same tokens under another sliding window."""
        _check_window(window)
        return replace(self, window=window)

    def to(self, device: torch.device | str) -> Layout:
        """The same layout on another device."""
        index = self.index.to(device)
        return replace(
            self, index=index, segment=self.segment.to(device), pos=index if not self.remapped else self.pos.to(device)
        )

    def __getitem__(self, tokens: slice) -> Layout:
        """A slice of the tokens, the same for every row: ``at[:1024]``."""
        if not isinstance(tokens, slice):
            raise ValueError(
                f"a layout is cut with a slice, such as at[:128]; for picked tokens use at.take(tensor), got {tokens!r}"
            )
        start, stop, step = tokens.indices(self.length)
        if step == 1:
            return self.part(None, start, max(start, stop))
        return self._picked(tokens)

    def part(self, row: int | None, first: int, stop: int) -> Layout:
        """Tokens ``first .. stop-1`` of one row of the batch (None: of every row), contiguity kept."""
        known = (
            None if self.rows is None else self.rows if row is None or len(self.rows) == 1 else self.rows[row : row + 1]
        )
        runs = (
            None
            if known is None
            else tuple(tuple(c for run in line if (c := _cut(run, first, stop))) for line in known)
        )
        index, segment, pos = self.index[:, first:stop], self.segment[:, first:stop], self.pos[..., first:stop]
        if row is not None:
            index, segment, pos = (t[..., row : row + 1, :] if t.shape[-2] > 1 else t for t in (index, segment, pos))
        return replace(self, index=index, segment=segment, pos=pos if self.remapped else index, rows=runs)

    def take(self, which: Tensor) -> Layout:
        """Any shard or permutation of the tokens, the same for every row: ``which`` holds places in this layout."""
        if which.dim() != 1 or which.is_floating_point() or which.dtype == torch.bool:
            raise ValueError(f"take() wants one row of integer places, got {which.dtype} of shape {tuple(which.shape)}")
        if (
            not torch.compiler.is_compiling()
            and which.numel()
            and not -self.length <= extent(which)[0] <= extent(which)[1] < self.length
        ):
            raise ValueError(
                f"take() wants places from 0 to {self.length - 1}, got {extent(which)[0]:g} to {extent(which)[1]:g}"
            )
        return self._picked(which)

    def _picked(self, tokens: slice | Tensor) -> Layout:
        """Some tokens of every row, of which nothing is known about neighbours."""
        index = self.index[:, tokens]
        pos = self.pos[..., tokens] if self.remapped else index
        return replace(self, index=index, segment=self.segment[:, tokens], pos=pos, rows=None)

    def discovered(self) -> Layout:
        """The same layout with ``rows`` read off its tensors (one synchronisation): for shards that are made of a few
        runs.
        """
        rows = tuple(_stretches(i, s) for i, s in zip(self.index.tolist(), self.segment.tolist(), strict=True))
        return replace(self, rows=rows if all(len(row) <= MOST_RUNS for row in rows) else None)

    def then(self, more: Layout) -> Layout:
        """These tokens, and after them ``more``: what a cache holds after an append."""
        if self.pos.dim() != more.pos.dim():
            raise ValueError(
                f"one layout has positions of shape {tuple(self.pos.shape)}, the other of {tuple(more.pos.shape)}: "
                "both must have as many axes"
            )
        batch = max(self.batch, more.batch)
        if not {self.batch, more.batch} <= {1, batch}:
            raise ValueError(f"a batch of {self.batch} rows can't go on as one of {more.batch}")
        both = [(self.index, more.index), (self.segment, more.segment), (self.pos, more.pos)]
        index, segment, pos = (torch.cat([_spread(a, batch), _spread(b, batch)], dim=-1) for a, b in both)
        rows = None
        if self.rows is not None and more.rows is not None:
            rows = tuple(
                _join(mine, theirs, self.length)
                for mine, theirs in zip(_widen(self.rows, batch), _widen(more.rows, batch), strict=True)
            )
        return replace(
            self, index=index, segment=segment, pos=pos if self.remapped or more.remapped else index, rows=rows
        )


def trusted(
    index: Tensor, segment: Tensor, window: int | None, rows: tuple[tuple[Run, ...], ...], keys: Any = None
) -> Layout:
    """A layout whose parts come from another and are known to fit, told its own index: no checks, for every token of a
    decode.
    """
    made = object.__new__(Layout)
    made.__dict__.update(index=index, segment=segment, pos=index, window=window, rows=rows, keys=keys)
    return made


def _stretches(index: list[int], segment: list[int]) -> tuple[Run, ...]:
    """The runs of one row: neighbours in memory, in one text, with index growing by one."""
    runs: list[Run] = []
    for place, (i, s) in enumerate(zip(index, segment, strict=True)):
        last = runs[-1] if runs else None
        if last and (last.segment, last.offset + last.length, last.first + last.length) == (s, place, i):
            runs[-1] = replace(last, length=last.length + 1)
        elif s >= 0:
            runs.append(Run(place, 1, s, i))
    return tuple(runs)


def _check_window(window: int | None) -> None:
    if window is not None and window < 1:
        raise ValueError(f"a window of {window} tokens sees nothing; it must be at least 1 (the token itself), or None")


def _runs(real: list[bool]) -> tuple[Run, ...]:
    """The stretches of real tokens in one row of a padding mask; their index goes on across the gaps."""
    runs: list[Run] = []
    seen = 0
    for place, token in enumerate(real):
        if not token:
            continue
        if runs and runs[-1].offset + runs[-1].length == place:
            runs[-1] = replace(runs[-1], length=runs[-1].length + 1)
        else:
            runs.append(Run(place, 1, 0, seen))
        seen += 1
    return tuple(runs)


def _cut(run: Run, start: int, stop: int) -> Run | None:
    low, high = max(run.offset, start), min(run.offset + run.length, stop)
    return Run(low - start, high - low, run.segment, run.first + low - run.offset) if high > low else None


def _join(mine: tuple[Run, ...], theirs: tuple[Run, ...], length: int) -> tuple[Run, ...]:
    joined = [run for run in mine if run.length]
    for run in theirs:
        moved = replace(run, offset=run.offset + length)
        last = joined[-1] if joined else None
        touching = last and (last.segment, last.offset + last.length, last.first + last.length) == (
            run.segment,
            moved.offset,
            run.first,
        )
        if last and touching:
            joined[-1] = replace(last, length=last.length + run.length)
        else:
            joined.append(moved)
    return tuple(joined)


def _spread(x: Tensor, batch: int) -> Tensor:
    return x.expand(*x.shape[:-2], batch, x.shape[-1])


def _widen(rows: tuple[tuple[Run, ...], ...], batch: int) -> tuple[tuple[Run, ...], ...]:
    return rows * batch if len(rows) == 1 else rows
