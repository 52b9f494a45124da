"""M-RoPE: one rotary spectrum, whose pairs are dealt out to frame, row and column.

    pair i turns by p_a(i) w_i,     w_i = base^(-2i/size),     a(i): the axis of pair i
    chunked:      the first sections[0] pairs are axis 0's, the next sections[1] axis 1's, ...
    interleaved:  pair i is axis (i mod axes)'s while that one has some left, else axis 0's

Wang et al., "Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution", 2024, section 2.1.
arXiv:2409.12191

A text token has equal numbers on all axes, so that text alone is RoPE to the last bit: positions of one axis are taken
as such. `milepost.positions.multimodal` makes the positions of text with images and videos: an image advances by
max(rows, columns).

Departure: none. order="chunked" is Qwen2-VL (16, 24, 24 of 64 pairs: a quarter for frames, our default), "interleaved"
is Qwen3-VL (24, 20, 20), where all axes get fast and slow pairs; our default there is equal parts. The two are no
permutation of each other. A temperature, where the scaling has one, multiplies queries only, as in rope.

Mechanism: turns pairs of channels of q and k, each pair by one of the axes
Information: relative on every axis, from absolute rotations
Prior: with chunks, frames have the fast pairs and columns the slow ones
Content: multiplies it, channel pair by channel pair
Storage: none
Used by: Qwen2-VL, Qwen2.5-VL, Qwen3-VL, Qwen3.5, GLM-4V
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from milepost.angles import cos_sin
from milepost.encoding import Encoding
from milepost.rotation import PAIRINGS, Pairing, rotate
from milepost.scaling import Scaling
from milepost.spectrum import geometric


class MRoPE(Encoding):
    """Rotations of ``rotary`` of ``head_dim`` channels (all, by default); ``sections`` has the number of pairs of each
    axis.
    """

    rotation = True
    flat = True

    def __init__(
        self,
        head_dim: int,
        sections: tuple[int, ...] | None = None,
        order: Literal["chunked", "interleaved"] = "chunked",
        base: float = 10000.0,
        pairing: Pairing = "half",
        rotary: int | None = None,
        scaling: Scaling | None = None,
    ):
        super().__init__()
        size = head_dim if rotary is None else rotary
        if size < 2 or size % 2 or size > head_dim:
            raise ValueError(f"the rotary size must be even, from 2 to head_dim={head_dim}, got {size}")
        self.check_choice("order", order, ("chunked", "interleaved"))
        self.check_choice("pairing", pairing, PAIRINGS)
        if scaling is not None and (not isinstance(scaling, Scaling) or scaling.length_dependent):
            raise ValueError(
                "scaling must be one of milepost.scaling that does not depend on the length, such as yarn(...), "
                f"got {scaling!r}"
            )
        given = tuple(sections) if isinstance(sections, list | tuple) else sections
        whole = isinstance(given, tuple) and len(given) > 1 and all(type(n) is int and n >= 0 for n in given)
        if given is not None and not (whole and sum(given) == size // 2):
            raise ValueError(
                "sections must be whole numbers of pairs, one for each axis, which add up to "
                f"{size // 2} (half of {size} channels); got {sections!r}"
            )
        self.head_dim, self.sections, self.order, self.base = head_dim, given, order, base
        self.pairing, self.rotary, self.scaling = pairing, rotary, scaling
        self.axis_of_pair = dealt(given or usual(size // 2, order), order)
        self.axes, self.size = len(given or (0, 0, 0)), size
        plain = geometric(size, base)
        self.spectrum = plain if scaling is None else scaling(plain)
        self.frequencies = torch.zeros(self.axes, size // 2, dtype=torch.float64, device="cpu")
        for pair, axis in enumerate(self.axis_of_pair):
            self.frequencies[axis, pair] = self.spectrum.frequencies[pair]
        self.rotation = self.spectrum.temperature == 1.0

    def turn(self, x: Tensor, pos: Tensor) -> Tensor:
        """Pure rotation of ``x`` (B H L D) by ``pos`` (axes B L; L or B L for text)."""
        cos, sin = cos_sin(pos, self.frequencies, x.dtype)
        return rotate(x, cos.unsqueeze(-3), sin.unsqueeze(-3), self.size, self.pairing)

    def query(self, q: Tensor, pos: Tensor) -> Tensor:
        turned, temperature = self.turn(q, pos), self.spectrum.temperature
        if temperature == 1.0:
            return turned
        return torch.cat([turned[..., : self.size] * temperature, turned[..., self.size :]], dim=-1)

    def key(self, k: Tensor, pos: Tensor) -> Tensor:
        return self.turn(k, pos)


def usual(pairs: int, order: str) -> tuple[int, ...]:
    """Sections for frame, row, column where none are given: a quarter and the rest in halves; equal parts when
    interleaved.
    """
    frames = pairs // 4 if order == "chunked" else -(-pairs // 3)
    return frames, -(-(pairs - frames) // 2), (pairs - frames) // 2


def dealt(sections: tuple[int, ...], order: str) -> tuple[int, ...]:
    """The axis of each pair."""
    if order == "chunked":
        return tuple(axis for axis, count in enumerate(sections) for _ in range(count))
    axes = len(sections)
    dealt = tuple(i % axes if i < axes * sections[i % axes] else 0 for i in range(sum(sections)))
    counts = tuple(dealt.count(axis) for axis in range(axes))
    if counts != sections:
        raise ValueError(
            f"interleaved sections {sections} can't be dealt in turn: {sum(sections)} pairs would be {counts}; "
            "axis 0 must have no fewer than the others"
        )
    return dealt
