"""Call: all that one attention is about, made once by `attend` and passed on to the backend that does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from milepost.attention.blocks import Block, assemble, blocks
from milepost.encoding import Encoding
from milepost.layout import Layout


@dataclass(frozen=True)
class Call:
    """Attention of q (B H I D) at ``at`` to k (B G J D) and v (B G J Dv) at ``to``, G dividing H, with ``enc``.

    A backend is given q, k and v turned. ``first_head`` is the global number of head 0 where q holds a shard of the
    heads. ``f`` (B I N) and ``g`` (B J N) are features of the queries' and of the keys' tokens, where ``enc`` has any.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    enc: Encoding
    at: Layout
    to: Layout
    causal: bool
    scale: float
    first_head: int | None = None
    f: Tensor | None = None
    g: Tensor | None = None

    @property
    def blocks(self) -> tuple[Block, ...] | str:
        """The rectangles of neighbouring tokens that it is made of; or why there are none, as a sentence."""
        return blocks(self.at, self.to, self.causal)

    def blocks_obstacle(self, *, places: bool = True) -> str | None:
        """Why the CPU's flash kernel can't do it by blocks, or None; ``places``: positions must be indices."""
        width, value_width = self.q.shape[-1], self.v.shape[-1]
        if width != value_width:
            return f"the flash kernel wants values as wide as keys, got {value_width} and {width}"
        if places and (self.at.remapped or self.to.remapped):
            return "the encoding is told other positions than the index"
        blocks = self.blocks
        return blocks if isinstance(blocks, str) else None

    def by_block(self, run: Callable[[Call, Block], Tensor]) -> Tensor:
        """The output, B H I Dv, of what runs one block."""
        blocks = self.blocks
        assert not isinstance(blocks, str)
        return assemble(self.q, self.v.shape[-1], [(block, run(self, block)) for block in blocks])

    @property
    def group(self) -> int:
        """How many query heads share a key head."""
        return self.q.shape[1] // self.k.shape[1]

    @property
    def work_dtype(self) -> torch.dtype:
        """The precision of logits and biases: float32, or float64 for float64."""
        return torch.promote_types(self.q.dtype, torch.float32)

    @property
    def learning(self) -> bool:
        """Whether a gradient will be asked for."""
        return torch.is_grad_enabled() and any(
            t.requires_grad for t in (self.q, self.k, self.v, *self.numbers, *self.enc.parameters())
        )

    @property
    def numbers(self) -> tuple[Tensor, ...]:
        """All features there are."""
        return () if self.f is None or self.g is None else (self.f, self.g)

    @property
    def features(self) -> tuple[Tensor, Tensor]:
        """The features of the queries' tokens and of the keys', of an encoding that has some."""
        assert self.f is not None and self.g is not None
        return self.f, self.g

    def head_numbers(self) -> Tensor:
        """The global number of each of its query heads."""
        first = self.first_head or 0
        return torch.arange(first, first + self.q.shape[1], device=self.q.device)

    def given(self, q: Tensor, k: Tensor, v: Tensor) -> Call:
        """The same attention of other q, k and v. Written out, since `dataclasses.replace` takes 1% of a short call."""
        return Call(q, k, v, self.enc, self.at, self.to, self.causal, self.scale, self.first_head, self.f, self.g)

    def part(self, block: Block) -> Call:
        """The same attention of a block's queries to its keys."""
        at, to = block.layouts(self.at, self.to)
        part = replace(self, q=block.queries(self.q), k=block.keys(self.k), v=block.keys(self.v), at=at, to=to)
        if self.f is None or self.g is None:
            return part
        f, g = block.queries(self.f[:, None])[:, 0], block.keys(self.g[:, None])[:, 0]
        return replace(part, f=f, g=g)
