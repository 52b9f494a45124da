"""ContentLane: a text that goes on one token at a time where content meets the distance, by the backend that was
chosen once.

Shaw, Transformer-XL, DeBERTa, FIRE and CoPE leave q, k and v as they are, and the encoding is asked anew at every
token. What a lane saves are the checks, the layouts and the choice of the backend, which take a tenth of the time of
attention to 16384 keys.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from milepost.attention.backends import by_row, counted, relative
from milepost.attention.blocks import Block
from milepost.attention.call import Call
from milepost.layout import Run, trusted

UNCHANGED = {"bias", "rescore", "output", "embed"}
"""Hooks that leave q, k and v as they are, and ask for no features."""


class ContentLane:
    """The tokens up to ``stop`` - 1 of one text a row, encoded by ``enc``, like the token of ``call``."""

    def __init__(self, call: Call, run: Callable[[Call, Block], Tensor], stop: int):
        self.run, self.enc, self.scale, self.stop = run, call.enc, call.scale, stop
        self.shapes = call.q.shape, (*call.k.shape[:2], 1, call.k.shape[3]), (*call.v.shape[:2], 1, call.v.shape[3])
        self.kind, self.zero = (call.q.dtype, call.q.device), torch.zeros(1, 1, dtype=torch.long, device=call.q.device)

    @staticmethod
    def serves(call: Call) -> Callable[[Call, Block], Tensor] | None:
        """How the backend of a token runs a block, if a lane gives what `attend` gives for tokens like it."""
        if call.q.shape[2] != 1 or not UNCHANGED.issuperset(call.enc.points):
            return None
        return next((way.run_block for way in (relative, counted, by_row) if way.obstacle(call) is None), None)

    def fits(self, q: Tensor, k: Tensor, v: Tensor, features: Tensor | None, first: int, scale: float) -> bool:
        """Whether these are the next token's, at index ``first``."""
        return (
            first < self.stop
            and features is None
            and scale == self.scale
            and (q.shape, k.shape, v.shape) == self.shapes
            and (q.dtype, q.device) == (k.dtype, k.device) == (v.dtype, v.device) == self.kind
            and not (torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v, *self.enc.parameters())))
        )

    def token(
        self, q: Tensor, k: Tensor, v: Tensor, features: Tensor | None, keys: Tensor, values: Tensor, n: int
    ) -> Tensor:
        """Write the token at index ``n`` into the buffers ``keys`` and ``values`` (B G N D), and attend: B H 1 D."""
        keys.narrow(2, n, 1).copy_(k)
        values.narrow(2, n, 1).copy_(v)
        keys, values = keys.narrow(2, 0, n + 1), values.narrow(2, 0, n + 1)
        at = trusted(torch.full_like(self.zero, n), self.zero, None, ((Run(0, 1, 0, n),),))
        return self.run(Call(q, keys, values, self.enc, at, at, True, self.scale), Block(None, 0, 1, 0, n + 1, n))
