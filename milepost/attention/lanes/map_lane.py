"""MapLane: a text that goes on one token at a time under a position map, with no key turned twice.

A map puts each key at one place for near queries and at another for far ones (`milepost.maps`). A lane keeps one copy
of the keys for each of these, turned when a key comes. A token then is one attention over each stretch of keys, merged
by their log-sum-exp: together no more keys than without positions.
"""

from __future__ import annotations

import torch
from torch import Tensor

from milepost.attention.backends.toeplitz import fold
from milepost.attention.distances import copied, numbers_of, same
from milepost.attention.kernel import flash, merged
from milepost.encoding import Encoding, Stretch, parts_of, transform


class MapLane:
    """Tokens up to ``stop`` - 1 of one text a row, encoded by ``enc``, like the token q, k, v (B H|G 1 D).

    ``keys`` (B G N D) is the cache's buffer, of which ``first`` keys are there.
    """

    def __init__(
        self, enc: Encoding, q: Tensor, k: Tensor, v: Tensor, keys: Tensor, first: int, stop: int, scale: float
    ):
        self.enc, self.map, self.stop, self.scale = enc, parts_of(enc)[0], stop, scale
        self.shapes, self.kind = (q.shape, k.shape, v.shape), (q.dtype, q.device)
        self.made_of = copied(numbers_of(enc) or [])
        self.count = first
        turned = self.map.copies(keys[:, :, :first], torch.arange(first, device=k.device))
        self.copies = [torch.empty_like(keys) for _ in turned]
        for copy, some in zip(self.copies, turned, strict=True):
            copy[:, :, :first] = some

    @staticmethod
    def serves(enc: Encoding, q: Tensor, k: Tensor, v: Tensor) -> bool:
        """Whether a lane gives what `attend` gives for tokens like these: one map, and nothing beside it but what the
        query's own place does to it. (Half precision is turned in float32, which a copy of the keys does not keep.)
        """
        first, *others = parts_of(enc)
        return (
            type(first).stretches is not Encoding.stretches
            and all(set(part.points) <= {"query", "embed"} for part in others)
            and numbers_of(enc) is not None
            and q.shape[2] == 1
            and q.shape[-1] == v.shape[-1]
            and q.dtype in (torch.float32, torch.float64)
            and q.device.type == "cpu"
        )

    def fits(self, q: Tensor, k: Tensor, v: Tensor, features: Tensor | None, first: int, scale: float) -> bool:
        """Whether these are the next token's. A map has no features."""
        if (
            features is not None
            or first != self.count
            or first >= self.stop
            or (q.shape, k.shape, v.shape) != self.shapes
            or scale != self.scale
        ):
            return False
        if any((t.dtype, t.device) != self.kind for t in (q, k, v)) or not same(
            self.made_of, numbers_of(self.enc) or []
        ):
            return False
        learned = (q, k, v, *self.enc.parameters())
        return not (torch.is_grad_enabled() and any(t.requires_grad for t in learned))

    def token(
        self, q: Tensor, k: Tensor, v: Tensor, features: Tensor | None, keys: Tensor, values: Tensor, n: int
    ) -> Tensor:
        """Write the token at index ``n`` into the buffers ``keys`` and ``values`` (B G N D), and attend: B H 1 D."""
        place = torch.tensor([n], device=q.device)
        keys[:, :, n : n + 1], values[:, :, n : n + 1] = k, v
        for copy, turned in zip(self.copies, self.map.copies(k, place), strict=True):
            copy[:, :, n : n + 1] = turned
        self.count = n + 1
        if "query" in self.enc.points:
            q = transform("query", self.enc, q, place)
        parts = [self._attend(part, k, values) for part in self.map.stretches(q, n)]
        out, lse = parts[0]  # the query's own key is always there
        for more, weight in parts[1:]:
            out, lse = merged(out, lse, more, weight)
        return out.reshape(q.shape)

    def _attend(self, part: Stretch, k: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        some = slice(part.first, part.stop)
        return flash(fold(part.q, k), self.copies[part.copy][:, :, some], values[:, :, some], scale=self.scale)
