"""FoPE: each rotary pair turns by a mix of frequencies, and pairs that never close a circle stand still.

    (x, y)_d -> (x c_d - y s_d,  x s_d + y c_d),      c_d(p) = sum_k C_kd cos(p w_k),   s_d(p) = sum_k S_kd sin(p w_k)
    w_k = base^(-2k/D) for all k with w_k > 2 pi / length;    pairs past those: c = 1, s = 0

Hua et al., "Fourier Position Embedding: Enhancing Attention's Periodic Extension for Length Generalization", 2024,
section 4. arXiv:2412.17739

C and S are drawn once for each head, the identity plus Xavier noise times `gain`, and are not trained: a checkpoint
stores them. A mix of rotations is no rotation: norms change with p, and a logit depends on both positions.

Departure: the paper has a frequency of zero for the pairs that it cuts, which is c = 1 and s = 0 (clipped="still", our
default). The authors' code, vLLM and SGLang pad c and s with 1 both: such a pair becomes (x - y, x + y), and its part
of q·k is doubled. clipped="doubled" is that, for checkpoints that were trained with it (Intern-S1-Pro). There the
tables belong to key heads: `key_heads` of them, each for the query heads that share it.

Mechanism: multiplies pairs of channels of q and k by sums of cosines and sines of position
Information: near the diagonal of C and S relative; absolute in what they mix
Prior: that of rope; nothing from pairs that are slower than the text is long
Content: multiplies it, channel pair by channel pair
Storage: two tables of K x K numbers for each head, K the number of pairs that turn
Used by: Intern-S1-Pro
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from milepost.angles import cos_sin
from milepost.encoding import Encoding
from milepost.rotation import PAIRINGS, Pairing, rotate
from milepost.spectrum import geometric


class FoPE(Encoding):
    """Tables ``cos_mix`` and ``sin_mix`` of shape (key_heads, K, K): row k is a frequency, column d a pair."""

    shift_invariant = False

    def __init__(
        self,
        heads: int,
        head_dim: int,
        length: int,
        base: float = 10000.0,
        gain: float = 0.3,
        pairing: Pairing = "half",
        clipped: Literal["still", "doubled"] = "still",
        key_heads: int | None = None,
    ):
        super().__init__()
        self.check_at_least(1, heads=heads)
        self.check_at_least(1, length=length)
        self.check_choice("pairing", pairing, PAIRINGS)
        self.check_choice("clipped", clipped, ("still", "doubled"))
        tables = heads if key_heads is None else key_heads
        if tables < 1 or heads % tables:
            raise ValueError(f"key_heads must share {heads} query heads evenly, got {key_heads}")
        if not 0 <= gain <= 100:
            raise ValueError(f"gain must be from 0 to 100, got {gain}")
        fast = [w for w in geometric(head_dim, base).frequencies if w > 2 * math.pi / length]
        if not fast:
            raise ValueError(
                f"no pair of channels closes a circle within length={length} tokens: it must be at least 7, since the "
                "fastest needs 2 pi"
            )
        self.heads, self.head_dim, self.length, self.base = heads, head_dim, length, base
        self.gain, self.pairing, self.clipped, self.key_heads = gain, pairing, clipped, key_heads
        self.inv_freq = torch.tensor(fast, dtype=torch.float64, device="cpu")
        self.cos_mix, self.sin_mix = (
            nn.Parameter(torch.eye(len(fast)) + gain / math.sqrt(len(fast)) * torch.randn(tables, len(fast), len(fast)))
            for _ in range(2)
        )  # Xavier: the variance is 2 / (K + K)
        self.requires_grad_(False)

    def turn(self, x: Tensor, pos: Tensor) -> Tensor:
        """``x`` (B H L D) of query or key heads, multiplied by the mixes at ``pos`` (L or B L)."""
        tables = len(self.cos_mix)
        if x.shape[1] not in (tables, self.heads):
            raise ValueError(f"{self!r} has tables for {self.heads} heads that share {tables}, got {x.shape[1]} heads")
        mixed = [
            (wave.unsqueeze(-3) @ mix.to(wave.dtype)).repeat_interleave(x.shape[1] // tables, dim=-3)  # (B) H L K
            for wave, mix in zip(cos_sin(pos, self.inv_freq, x.dtype), (self.cos_mix, self.sin_mix), strict=True)
        ]
        if self.clipped == "doubled":
            mixed = [nn.functional.pad(wave, (0, x.shape[-1] // 2 - wave.shape[-1]), value=1.0) for wave in mixed]
        cos, sin = (wave if wave.dim() == 4 else wave[None] for wave in mixed)
        return rotate(x, cos, sin, x.shape[-1], self.pairing)

    def query(self, q: Tensor, pos: Tensor) -> Tensor:
        return self.turn(q, pos)

    def key(self, k: Tensor, pos: Tensor) -> Tensor:
        return self.turn(k, pos)
