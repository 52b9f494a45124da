"""Lane: a text that goes on one token at a time, with nothing looked up twice.

What `KVCache.decode` does for a token can be said in four lines (turn, write, slice the bias, attend). The checks,
layouts and choices around them cost more than the arithmetic, and give the same answer at every token of a stretch. A
lane asks them once, for a stretch of tokens, and then does the four lines.
"""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor

from milepost.angles import cos_sin
from milepost.attention.backends.toeplitz import FEWEST, fold
from milepost.attention.distances import falling
from milepost.attention.kernel import fused
from milepost.encoding import Encoding, parts_of
from milepost.encodings.fox import FoX
from milepost.encodings.rope import RoPE
from milepost.encodings.temperature import Temperature

STRETCH = 256
"""Tokens for which angles are made at a time."""
FRESH = 32
"""Tokens after which gates get a new origin."""


P = TypeVar("P", bound=Encoding)
_BEYOND = {"query", "key", "features", "value", "restore"}
"""What a part may not do, unless it is one of those that a lane knows."""


def _part(enc: Encoding, kind: type[P]) -> P | None:
    """The part that is of exactly this class (a subclass may turn otherwise, and goes through its own hooks)."""
    return next((part for part in parts_of(enc) if type(part) is kind), None)


def _numbers(sharpening: Temperature) -> tuple[Any, ...]:
    return sharpening.length, sharpening.form, sharpening.rate


class Lane:
    """The tokens ``first .. stop-1`` of one text a row, encoded by ``enc``, like the token q, k, v (B H|G 1
    D).
    """

    def __init__(
        self, enc: Encoding, q: Tensor, k: Tensor, v: Tensor, first: int, stop: int, scale: float,
        features: Tensor | None = None,
    ):  # fmt: skip
        self.enc, self.first, self.stop, self.scale = enc, first, min(stop, first + STRETCH), scale
        self.shapes, self.kind = (q.shape, k.shape, v.shape), (q.dtype, q.device)
        self.heads, self.group = q.shape[1], q.shape[1] // k.shape[1]
        self.work = (
            torch.promote_types(q.dtype, torch.float32) if "bias" in enc.points else None
        )  # the bias's precision
        self.temperature = 1.0
        self.turns: list[tuple[Tensor, Tensor]] = []
        self.rope, self.sharpening = _part(enc, RoPE), _part(enc, Temperature)
        pos = torch.arange(first, self.stop, device=q.device)
        if self.rope is not None:
            self.temperature, self.frequencies = self.rope.spectrum.temperature, self.rope.inv_freq.clone()
            cos, sin = cos_sin(pos, self.rope.inv_freq, q.dtype)
            self.turns = list(zip(torch.cat([cos, cos], -1).unbind(), torch.cat([-sin, sin], -1).unbind(), strict=True))
        self.sharper: tuple[Tensor, ...] = ()
        if self.sharpening is not None:
            factors = self.sharpening.factor(pos)
            self.sharper = factors.to(torch.promote_types(q.dtype, torch.float32)).to(q.dtype).unbind()
            self.sharpened_by = _numbers(self.sharpening)
        self.row: Tensor | None = None
        if features is not None:
            self.of_features = (features.shape[0], 1, features.shape[2]), features.dtype
            self.numbers = torch.arange(self.heads, device=q.device)
            sums = features.double().cumsum(dim=1)
            self.total = sums[:, -1:].clone()
            self.gates = sums.new_empty(q.shape[0], q.shape[1], self.stop)
            self.gates[..., :first] = self._gate(sums)
            self.row = torch.empty_like(self.gates, dtype=torch.promote_types(q.dtype, torch.float32))

    def _gate(self, f: Tensor) -> Tensor:
        return self.enc.gate(self.numbers, f)

    @staticmethod
    def serves(enc: Encoding, q: Tensor, k: Tensor, v: Tensor, first: int) -> bool:
        """Whether a lane gives what `attend` gives, for tokens like these from index ``first`` on."""
        if q.shape[2] != 1 or first < FEWEST or q.shape[-1] != v.shape[-1]:
            return False
        rope, sharpening, fox = _part(enc, RoPE), _part(enc, Temperature), _part(enc, FoX)
        others = [part for part in parts_of(enc) if not any(part is known for known in (rope, sharpening, fox))]
        if not enc.toeplitz or any(part.content_dependent or _BEYOND & set(part.points) for part in others):
            return False
        if rope is not None and (
            rope.pairing != "half" or 2 * rope.live != rope.head_dim or q.dtype not in (torch.float32, torch.float64)
        ):
            return False
        if fox is not None and "bias" in enc.points:  # one row of numbers is kept, of gates or of distances
            return False
        return q.device.type == "cpu" or (fox is None and "bias" not in enc.points)

    def fits(self, q: Tensor, k: Tensor, v: Tensor, features: Tensor | None, first: int, scale: float) -> bool:
        """Whether these are the next token's."""
        if (features is None) != (self.row is None):
            return False
        if features is not None and (
            (features.shape, features.dtype) != self.of_features or features.device != q.device
        ):
            return False
        if not (self.first <= first < self.stop and (q.shape, k.shape, v.shape) == self.shapes and scale == self.scale):
            return False
        if self.rope is not None and not torch.equal(self.rope.inv_freq, self.frequencies):
            return False
        if self.sharpening is not None and _numbers(self.sharpening) != self.sharpened_by:
            return False
        same = (q.dtype, q.device) == (k.dtype, k.device) == (v.dtype, v.device) == self.kind
        return same and not (
            torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad or self._learning())
        )

    def _learning(self) -> bool:
        return any(p.requires_grad for p in self.enc.parameters())

    def token(
        self, q: Tensor, k: Tensor, v: Tensor, features: Tensor | None, keys: Tensor, values: Tensor, n: int
    ) -> Tensor:
        """Write the token at index ``n`` into the buffers ``keys`` and ``values`` (B G N D), and attend: B H 1 D."""
        place = keys.narrow(2, n, 1)  # narrow, not a slice: indexing takes three times as long
        if self.turns:
            cos, sin = self.turns[n - self.first]
            half = q.shape[-1] // 2
            q = torch.addcmul(q * cos, q.roll(half, -1), sin)
            torch.addcmul(k * cos, k.roll(half, -1), sin, out=place)
            if self.temperature != 1.0:
                q = q * self.temperature
        else:
            place.copy_(k)
        if self.sharper:
            q = q * self.sharper[n - self.first]
        values.narrow(2, n, 1).copy_(v)
        keys, values = keys.narrow(2, 0, n + 1), values.narrow(2, 0, n + 1)
        mask: Tensor | None = None
        if self.work is not None:
            row = falling(
                self.enc, self.heads, 0, n, n + 1, causal=True, window=0, dtype=self.work, device=self.kind[1]
            )
            mask = row.reshape(1, -1, self.group, n + 1)
        if self.row is not None and features is not None:
            self.total += features
            self.gates[..., n : n + 1] = self._gate(self.total)
            if (n - self.first) % FRESH == 0:  # a new origin: a softmax sees none, and float32 holds what is near it
                self.origin = self.gates[..., n : n + 1].clone()
                self.row[..., :n] = self.origin - self.gates[..., :n]
            self.row[..., n : n + 1] = self.origin - self.gates[..., n : n + 1]
            mask = self.row.view(q.shape[0], -1, self.group, self.stop)[..., : n + 1]
        return fused(fold(q, keys), keys, values, mask=mask, scale=self.scale).reshape(q.shape)
