"""Learned spectrum: RoPE whose frequencies were moved by training.

    pair i turns by p w_i exp(a_i),         w_i: the spectrum of a base and a scaling,   a_i: learned, 0 at first

LeRoPE of Mistral Large 4, 2026 (transformers' `MistralLarge4TextRotaryEmbedding`; no paper), over YaRN,
arXiv:2309.00071

One list of a_i serves all heads and layers that share this module. Give each layer its own module and each learns its
own. exp keeps every frequency above zero, so no pair can turn backwards or stop.

Departure: none in the formula. a is a parameter here and a stored buffer there: a list that was never loaded is a plain
RoPE, in both. It stays in float32 when the model is cast, as there: rounded to bfloat16, an a of 0.5 is off by 1e-3,
which at position 131071 is 128 radians of the fastest pair. Mistral Large 4 has yarn(factor=2048.0, trained=512,
attention_factor=1.0) below it, turns 64 of 128 channels (the last ones; ours are the first, a permutation of the head),
and leaves out positions in every fourth layer.

Mechanism: turns pairs of channels of q and k by an angle that grows with position
Information: relative, from two absolute rotations
Prior: that of the base at first; then what training made of it
Content: multiplies it, channel pair by channel pair
Storage: one number for each pair
Used by: Mistral Large 4
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from milepost.angles import cos_sin
from milepost.encoding import Encoding
from milepost.positions import not_halved
from milepost.rotation import PAIRINGS, Pairing, rotary_size, rotate, scaled
from milepost.scaling import Scaling
from milepost.scaling.scaling import check_fixed
from milepost.spectrum import geometric


class LearnedSpectrum(Encoding):
    """Rotations of the first ``rotary`` of ``head_dim`` channels (all, by default), with ``alpha`` for each pair."""

    rotation = True

    def __init__(
        self,
        head_dim: int,
        base: float = 10000.0,
        pairing: Pairing = "interleaved",
        rotary: int | None = None,
        scaling: Scaling | None = None,
    ):
        super().__init__()
        size = rotary_size(head_dim, rotary)
        self.check_choice("pairing", pairing, PAIRINGS)
        check_fixed(scaling)
        self.head_dim, self.base, self.pairing, self.rotary, self.scaling = head_dim, base, pairing, rotary, scaling
        plain = geometric(size, base)
        self.spectrum, self.size = plain if scaling is None else scaling(plain), size
        self.inv_freq = self.spectrum.tensor()
        self.alpha = nn.Parameter(torch.zeros(size // 2))
        self.rotation = self.spectrum.temperature == 1.0

    def frequencies(self) -> Tensor:
        """The frequencies as they are now, in float64."""
        return self.inv_freq.to(self.alpha.device) * self.alpha.double().exp()

    def turn(self, x: Tensor, pos: Tensor) -> Tensor:
        """Pure rotation of ``x`` (B H L D) by ``pos`` (L or B L)."""
        cos, sin = cos_sin(pos, self.frequencies(), x.dtype)
        return rotate(x, cos.unsqueeze(-3), sin.unsqueeze(-3), self.size, self.pairing)

    def query(self, q: Tensor, pos: Tensor) -> Tensor:
        return scaled(self.turn(q, pos), self.size, self.spectrum.temperature)

    def key(self, k: Tensor, pos: Tensor) -> Tensor:
        return self.turn(k, pos)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Moves and casts, but for casts to half precision: frequencies are multiplied by large positions."""
        return super()._apply(not_halved(fn), recurse)  # type: ignore[no-untyped-call]
