"""Learned: one trained vector for each position.

    x_p -> x_p + table[p + offset],         p = 0 .. length-1

Gehring et al., "Convolutional Sequence to Sequence Learning", 2017, section 3.1, arXiv:1705.03122; BERT,
arXiv:1810.04805

Departure: `length` is what can be used. With an offset (OPT: 2; RoBERTa: padding id + 1 = 2) the table has length +
offset rows, of which the first `offset` never serve a token. Past the end there is nothing: an error, never a wrapped
or repeated row.

Mechanism: adds a row of a table to the embedding
Information: absolute
Prior: none; each place is learned by itself
Content: added to it, then mixed by the projections
Storage: (length + offset) x width parameters
Used by: GPT-2, GPT-3, BERT, RoBERTa, OPT, ViT
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost.encoding import Encoding


class Learned(Encoding):
    """A table of ``length + offset`` rows of ``width``; usable positions are ``0 .. length-1``."""

    shift_invariant = False
    negative = False
    fractional = False

    def __init__(self, length: int, width: int, offset: int = 0):
        super().__init__()
        if length < 1 or width < 1 or offset < 0:
            raise ValueError(
                f"length and width must be at least 1 and offset at least 0, got length={length}, width={width}, "
                f"offset={offset}"
            )
        self.length, self.width, self.offset = length, width, offset
        self.end = length
        self.table = nn.Parameter(torch.randn(length + offset, width) * 0.02)

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        return x + F.embedding(pos + self.offset, self.table).to(x.dtype)

    def past_end(self, position: float) -> str:
        return (
            f"position {position:.12g} is past the end of the learned table: {self.length + self.offset} rows, offset "
            f"{self.offset}, "
            f"{self.length} usable positions (0 to {self.length - 1}); cut the text, train a longer table, or migrate "
            "to rope or alibi"
        )
