"""M-RoPE: one rotary spectrum, whose pairs are dealt out to frame, row and column.

    pair i turns by p_a(i) w_i,     w_i = base^(-2i/size),     a(i): the axis of pair i
    chunked:      the first sections[0] pairs are axis 0's, the next sections[1] axis 1's, ...
    interleaved:  pair i is axis (i mod axes)'s while that one has some left, else axis 0's
    tail:         the other axes take turns over the fast pairs; axis 0 has the slowest
    balanced:     the next pair is of the axis that has the smallest share of its own so far, never the one before's;
                  the last pair is axis 0's

Wang et al., "Qwen2-VL: Enhancing Vision-Language Model's Perception of the World at Any Resolution", 2024, section 2.1.
arXiv:2409.12191

A text token has equal numbers on all axes, so that text alone is RoPE to the last bit: positions of one axis are taken
as such. `milepost.positions.multimodal` makes the positions of text with images and videos: an image advances by
max(rows, columns).

Departure: none. order="chunked" is Qwen2-VL (16, 24, 24 of 64 pairs: a quarter for frames, our default), "interleaved"
is Qwen3-VL (24, 20, 20), where all axes get fast and slow pairs; our default there is equal parts. "tail" is Ernie 4.5
VL (20, 22, 22) and Bailing (Ling 3 VL: 8, 12, 12), both with pairing="interleaved"; Ernie's config writes row, column,
frame: (22, 22, 20). "balanced" is openPangu VL. XD (HunYuan VL) is "chunked" with four sections, one for each axis that
`milepost.positions.xd` gives. No two are permutations of each other. transformers 5.22.2 reads XD's sections another
way: a channel and its partner turn by different axes, which is no rotation where they differ; vLLM has it as here. A
temperature, where the scaling has one, multiplies queries only, as in rope.

Mechanism: turns pairs of channels of q and k, each pair by one of the axes
Information: relative on every axis, from absolute rotations
Prior: with chunks, frames have the fast pairs and columns the slow ones
Content: multiplies it, channel pair by channel pair
Storage: none
Used by: Qwen2-VL to Qwen3.5, GLM-4V; tail: Ernie 4.5 VL, Ling 3 VL; balanced: openPangu VL; XD: HunYuan VL
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from milepost.angles import cos_sin
from milepost.encoding import Encoding
from milepost.rotation import PAIRINGS, Pairing, rotary_size, rotate, scaled
from milepost.scaling import Scaling
from milepost.scaling.scaling import check_fixed
from milepost.spectrum import ORDERS, deal, geometric, usual_sections


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
        order: Literal["chunked", "interleaved", "tail", "balanced"] = "chunked",
        base: float = 10000.0,
        pairing: Pairing = "half",
        rotary: int | None = None,
        scaling: Scaling | None = None,
    ):
        super().__init__()
        size = rotary_size(head_dim, rotary)
        self.check_choice("order", order, ORDERS)
        self.check_choice("pairing", pairing, PAIRINGS)
        check_fixed(scaling)
        given = tuple(sections) if isinstance(sections, list | tuple) else sections
        whole = isinstance(given, tuple) and len(given) > 1 and all(type(n) is int and n >= 0 for n in given)
        if given is not None and not (whole and sum(given) == size // 2):
            raise ValueError(
                "sections must be whole numbers of pairs, one for each axis, which add up to "
                f"{size // 2} (half of {size} channels); got {sections!r}"
            )
        self.head_dim, self.sections, self.order, self.base = head_dim, given, order, base
        self.pairing, self.rotary, self.scaling = pairing, rotary, scaling
        self.axis_of_pair = deal(given or usual_sections(size // 2, order), order)
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
        return scaled(self.turn(q, pos), self.size, self.spectrum.temperature)

    def key(self, k: Tensor, pos: Tensor) -> Tensor:
        return self.turn(k, pos)
