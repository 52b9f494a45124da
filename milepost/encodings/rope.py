"""RoPE: rotary position embedding.

    q_m -> R(m) q_m,   k_n -> R(n) k_n,     R(p) turns pair i by p w_i,     w_i = base^(-2i/size)
    (R(m) q) · (R(n) k) = q · R(n - m) k:   a logit sees only the signed distance

Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, section 3.2. arXiv:2104.09864

Departure: the paper pairs neighbouring channels (pairing="interleaved"); Llama and most checkpoints pair channel i with
i + size/2 (pairing="half", our default). Partial rotation: partial="prefix" turns the first `rotary` channels with
exponents over `rotary` (GPT-NeoX); "proportional" turns the `rotary`/2 fastest pairs of the whole head, with exponents
over head_dim (p-RoPE, arXiv:2410.06205). A temperature, where the scaling has one, multiplies queries only (the
channels among which pairs are formed, as published code has it): keys are pure rotations, so they can be cached,
shifted and turned again.

Mechanism: turns pairs of channels of q and k by an angle that grows with position
Information: relative, from two absolute rotations
Prior: similarity falls slowly with distance for like vectors; none for others
Content: multiplies it, channel pair by channel pair
Storage: none
Used by: Llama, Mistral, Qwen, Gemma, GPT-NeoX, GPT-J, Falcon, Phi, ModernBERT
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from milepost.angles import cos_sin
from milepost.encoding import Encoding
from milepost.rotation import PAIRINGS, Pairing, rotary_size, rotate, scaled
from milepost.scaling import Scaling
from milepost.spectrum import geometric


class RoPE(Encoding):
    """Rotations of ``rotary`` of ``head_dim`` channels (all, by default), after an optional scaling of the
    frequencies.
    """

    rotation = True

    def __init__(
        self,
        head_dim: int,
        base: float = 10000.0,
        pairing: Pairing = "half",
        rotary: int | None = None,
        partial: Literal["prefix", "proportional"] = "prefix",
        scaling: Scaling | None = None,
    ):
        super().__init__()
        turned = rotary_size(head_dim, rotary)
        self.check_choice("pairing", pairing, PAIRINGS)
        self.check_choice("partial", partial, ("prefix", "proportional"))
        if scaling is not None and not isinstance(scaling, Scaling):
            raise ValueError(f"scaling must be one of milepost.scaling, such as dynamic(trained=4096), got {scaling!r}")
        self.head_dim, self.base, self.pairing = head_dim, base, pairing
        self.rotary, self.partial, self.scaling = rotary, partial, scaling
        self.size = turned if partial == "prefix" else head_dim  # the channels among which pairs are formed
        plain = geometric(self.size, base, pairs=turned // 2)
        self.length_dependent = scaling is not None and scaling.length_dependent
        self.spectrum = plain if scaling is None or self.length_dependent else scaling(plain)
        self.inv_freq = self.spectrum.tensor()
        self.live = turned // 2  # the pairs that turn at all
        self.rotation = self.spectrum.temperature == 1.0

    def turn(self, x: Tensor, pos: Tensor) -> Tensor:
        """Pure rotation of ``x`` (B H L D) by ``pos`` (L or B L)."""
        if self.length_dependent:
            raise ValueError(
                f"{self!r} depends on the length of the text: give q and k to attend() as they are, and it will turn "
                "them, or use enc.at(length) for one length"
            )
        turning = self.inv_freq if len(self.inv_freq) == self.live else self.inv_freq[: self.live]
        cos, sin = cos_sin(pos, turning, x.dtype)
        return rotate(x, cos.unsqueeze(-3), sin.unsqueeze(-3), self.size, self.pairing)

    def query(self, q: Tensor, pos: Tensor) -> Tensor:
        return scaled(self.turn(q, pos), self.size, self.spectrum.temperature)

    def key(self, k: Tensor, pos: Tensor) -> Tensor:
        return self.turn(k, pos)

    def rekey(self, k: Tensor, pos: Tensor, was: Encoding, was_pos: Tensor) -> Tensor:
        """One more turn, by the difference of the angles; temperature is the query's business."""
        if not isinstance(was, RoPE) or was.size != self.size or was.pairing != self.pairing:
            raise ValueError(f"{self!r} can't turn a key of {was!r} into one of its own; cache the keys again")
        now, before = self.inv_freq.to(pos.device), was.inv_freq.to(pos.device)
        angle = (pos.double()[..., None] * now - was_pos.double()[..., None] * before).unsqueeze(-3)
        work = torch.promote_types(k.dtype, torch.float32)
        return rotate(k, angle.cos().to(work), angle.sin().to(work), self.size, self.pairing)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *more: Any) -> None:
        """Checkpoints of old hold their frequencies as a buffer: one that agrees is passed over, another is an
        error.
        """
        stored = state_dict.pop(prefix + "inv_freq", None)
        own = self.inv_freq
        if stored is not None and not (
            stored.shape == own.shape and torch.allclose(stored.double().cpu(), own, rtol=2**-8, atol=0)
        ):
            raise ValueError(
                f"the checkpoint's {prefix}inv_freq is not the spectrum of {self!r}: build the encoding with the "
                "model's "
                "own base and scaling"
            )
        super()._load_from_state_dict(state_dict, prefix, *more)

    def at(self, length: int) -> Encoding:
        if self.scaling is None or not self.length_dependent:
            return self
        return RoPE(self.head_dim or 0, self.base, self.pairing, self.rotary, self.partial, self.scaling.at(length))
