"""Axial: RoPE over several axes, each with channels of its own.

    pair i of axis a turns by p_a w_ai,         w_ai = base_a^(-2i/size_a),   size_a channels for axis a
    (R(m) q) · (R(n) k) = q · R(n - m) k:       a logit sees the signed offset on every axis

Heo et al., "Rotary Position Embedding for Vision Transformer", 2024, section 3. arXiv:2403.13298

With one axis it is RoPE. Coordinates are positions (milepost.positions): an index, centred, or normalised to the image.

Departure: the pairs of axis 0 come first, then those of axis 1, and so on: rows first, as Qwen2-VL, Pixtral and DINOv3
have it. rope-vit and Llama 4 put columns first: give them pos.flip(0). The published base for images is 100, ours the
10000 of most checkpoints; `base` may be one for each axis. pairing="half" pairs channel i with i + size/2 over all that
turn; "interleaved" neighbours (rope-vit, Llama 4). spectra="dealt" (Pixtral) makes one spectrum for the head and deals
its frequencies out to the axes in turn.

Mechanism: turns pairs of channels of q and k, each pair by one axis
Information: relative on every axis, from absolute rotations
Prior: similarity falls slowly along each axis; diagonals are the product of two
Content: multiplies it, channel pair by channel pair
Storage: none
Used by: Qwen2-VL's and Pixtral's eyes, DINOv3, Llama 4's eye, rope-vit, FLUX
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from milepost.angles import cos_sin
from milepost.encoding import Encoding
from milepost.rotation import PAIRINGS, Pairing, rotate
from milepost.spectrum import geometric


class Axial(Encoding):
    """Rotations by ``axes`` coordinates; ``split`` says how many channels each has (equal parts of ``head_dim``, by
    default).
    """

    rotation = True

    def __init__(
        self,
        head_dim: int,
        axes: int = 2,
        base: float | tuple[float, ...] = 10000.0,
        split: tuple[int, ...] | None = None,
        pairing: Pairing = "half",
        spectra: Literal["each", "dealt"] = "each",
    ):
        super().__init__()
        if axes < 1 or head_dim < 2:
            raise ValueError(f"axes must be at least 1 and head_dim at least 2, got axes={axes}, head_dim={head_dim}")
        if split is None and head_dim % (2 * axes):
            raise ValueError(
                f"head_dim={head_dim} is not {axes} equal even parts; say with split=(...) how many channels each "
                "axis has"
            )
        sizes = (head_dim // axes,) * axes if split is None else split
        bases = base if isinstance(base, tuple | list) else (base,) * axes
        if (
            not isinstance(sizes, tuple | list)
            or len(sizes) != axes
            or any(type(n) is not int or n < 2 or n % 2 for n in sizes)
            or sum(sizes) > head_dim
        ):
            raise ValueError(
                f"split must be {axes} even numbers of channels, one for each axis, together at most "
                f"head_dim={head_dim}; got {split!r}"
            )
        if len(bases) != axes or any(isinstance(b, bool) or not isinstance(b, int | float) for b in bases):
            raise ValueError(f"base must be one number, or {axes} of them, one for each axis; got {base!r}")
        self.check_choice("pairing", pairing, PAIRINGS)
        if spectra not in ("each", "dealt") or (spectra == "dealt" and (len(set(sizes)) > 1 or len(set(bases)) > 1)):
            raise ValueError(
                f'spectra must be "each", or "dealt" with one base and equal parts, got {spectra!r} with '
                f"base={base!r}, split={split!r}"
            )
        self.head_dim, self.axes, self.pairing, self.spectra = head_dim, axes, pairing, spectra
        self.base = tuple(base) if isinstance(base, tuple | list) else base
        self.split = None if split is None else tuple(split)
        self.size = sum(sizes)
        self.frequencies = torch.zeros(axes, self.size // 2, dtype=torch.float64, device="cpu")
        whole, first = geometric(self.size, bases[0]).tensor(), 0
        for axis, (size, axis_base) in enumerate(zip(sizes, bases, strict=True)):
            own = geometric(size, axis_base).tensor() if spectra == "each" else whole[axis::axes]
            self.frequencies[axis, first : first + size // 2] = own
            first += size // 2

    def turn(self, x: Tensor, pos: Tensor) -> Tensor:
        """Pure rotation of ``x`` (B H L D) by ``pos`` (axes B L)."""
        cos, sin = cos_sin(pos, self.frequencies, x.dtype)
        return rotate(x, cos.unsqueeze(-3), sin.unsqueeze(-3), self.size, self.pairing)

    def query(self, q: Tensor, pos: Tensor) -> Tensor:
        return self.turn(q, pos)

    def key(self, k: Tensor, pos: Tensor) -> Tensor:
        return self.turn(k, pos)
