"""Mapped: what all position maps share. A RoPE whose two places depend on the pair of query and key.

    s[m, n] = (R(a) q_m) · (R(b) k_n),      a, b = places that the map gives to the pair

A rotated key would hold one place for all queries, so q and k pass points 1 and 2 as they are, and `rescore` turns
them: once for each case of the map (near, far, ...), a whole chunk of queries at a time. Keys are therefore cached as
they came, and stay right for ever. A decode has one query: `cases` says which keys it meets in which case, so that a
cache turns each key once for each case, when it comes. In a sum a map stands first: it scores anew, and what an earlier
part made of the scores is lost, but for the -inf of the mask.
"""

from __future__ import annotations

import torch
from torch import Tensor

from milepost.encoding import Encoding, Stretch, transform
from milepost.encodings.rope import RoPE


class Mapped(Encoding):
    """A map over ``rope``: the pages override ``rescore`` and ``reach``."""

    causal_only = True

    def __init__(self, rope: RoPE):
        super().__init__()
        name = type(self).__name__
        if not isinstance(rope, RoPE):
            came = repr(rope) if isinstance(rope, Encoding) else type(rope).__name__
            raise ValueError(
                f"{name} maps the places of a RoPE, such as RoPE(head_dim=64), got {came}; other parts are added: "
                f"{name}(rope, ...) + ALiBi(heads=8)"
            )
        if rope.length_dependent:
            raise ValueError(
                f"{name} needs one rope for all lengths, and {rope!r} is another one for each; give {name} the plain "
                "one for your longest text: rope.at(length)"
            )
        self.rope, self.head_dim = rope, rope.head_dim

    def key_places(self, n: Tensor) -> tuple[Tensor, ...]:
        """Where each case puts keys at ``n``: one tensor for each copy of the keys."""
        return ()

    def cases(self, m: int) -> tuple[tuple[int, int, int, float], ...]:
        """The keys that a query at ``m`` meets: first, end, which copy, and the place of the query."""
        return ()

    def copies(self, k: Tensor, pos: Tensor) -> tuple[Tensor, ...]:
        return tuple(transform("key", self.rope, k, places) for places in self.key_places(pos))

    def stretches(self, q: Tensor, m: int) -> tuple[Stretch, ...]:
        def turned(place: float) -> Tensor:
            kind = torch.int64 if isinstance(place, int) else torch.float64
            return transform("query", self.rope, q, torch.tensor([place], dtype=kind, device=q.device))

        return tuple(
            Stretch(first, stop, copy, turned(place)) for first, stop, copy, place in self.cases(m) if stop > first
        )

    def reach(self, length: int) -> float:
        """The largest relative position that a text of ``length`` tokens (from position 0) meets: keep it below the
        trained length.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how far it reaches: a map overrides reach()")


def places(i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
    """The positions of queries (B I) and keys (B J), from i (B 1 I 1) and j (B 1 1 J) as `rescore` is given them."""
    return i[..., 0, :, 0], j[..., 0, 0, :]


def whole(name: str, value: int, least: int, what: str) -> int:
    """``value`` if it is a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least} ({what}), got {value!r}")
    return value


def unless_hidden(s: Tensor, new: Tensor) -> Tensor:
    """``new`` scores, with -inf wherever the mask has hidden a key."""
    return new.masked_fill(s.isneginf(), float("-inf"))
