"""YaRN: NTK-by-parts with a temperature on the logits.

    w_i' = (1 - γ_i) w_i / factor + γ_i w_i,        γ_i from 1 (beta_fast turns and more) to 0 (beta_slow turns and
                                                    fewer)
    logits * m^2,                                   m = 0.1 ln(factor) + 1

Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023, sections 3.2 to 3.4.
arXiv:2309.00071

Departure: the paper's ramp is linear in turns, every engine's is linear in the pair's number. The default is what the
released code and transformers do; a preset names the others:

    preset          ramp over    bounds                               no room between them
    transformers    pairs        floor and ceil, inside 0 .. d - 1    equal: a step (high + 0.001), crossed: an error
    gpt-oss         pairs        as they come, inside 0 .. d/2 - 1    an error
    paper           turns        none                                 -

`truncate` overrides whether bounds are whole numbers. m goes on cos and sin in published code; here rotations stay pure
and m^2 multiplies the turned channels of the query, which is the same logits. What sets m, first that is given:

    attention_factor          m itself
    mscale, mscale_all_dim    g(mscale) / g(mscale_all_dim),  g(k) = 0.1 k ln(factor) + 1     both, and neither zero
    neither                   attn_factor (by default 1) * (0.1 ln(factor) + 1)               as vLLM reads attn_factor
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from milepost.scaling.ramp import bounds, over_pairs, over_turns
from milepost.scaling.scaling import MOST, Scaling
from milepost.spectrum import Spectrum


@dataclass(frozen=True, repr=False)
class YaRN(Scaling):
    """``factor`` times ``trained`` tokens."""

    factor: float
    trained: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    preset: Literal["transformers", "gpt-oss", "paper"] = "transformers"
    truncate: bool | None = None
    attention_factor: float | None = None
    mscale: float | None = None
    mscale_all_dim: float | None = None
    attn_factor: float | None = None

    def __post_init__(self) -> None:
        self.check_factor("factor", self.factor)
        self.check_length("trained", self.trained)
        self.check_choice("preset", self.preset, ("transformers", "gpt-oss", "paper"))
        if not 0 < self.beta_slow <= self.beta_fast < float("inf"):
            raise ValueError(
                f"yarn wants 0 < beta_slow <= beta_fast, in turns over the trained length, got {self.beta_slow} and "
                f"{self.beta_fast}"
            )
        if self.attention_factor is not None and self.attn_factor is not None:
            raise ValueError(
                f"attention_factor={self.attention_factor} is m itself, attn_factor={self.attn_factor} multiplies the "
                "default m: give one of them"
            )
        if self.preset == "paper" and self.beta_slow == self.beta_fast:
            raise ValueError(
                f'preset="paper" has a ramp over turns, which wants beta_slow < beta_fast, got {self.beta_slow} for '
                "both"
            )
        if self.preset == "paper" and self.truncate is not None:
            raise ValueError('preset="paper" has a ramp over turns, which has no bounds to truncate')
        self.check_range(1 / MOST, "attention_factor", "attn_factor")
        self.check_range(0, "mscale", "mscale_all_dim")

    @property
    def m(self) -> float:
        """What published code multiplies cos and sin by."""
        if self.attention_factor is not None:
            return float(self.attention_factor)
        if self.mscale and self.mscale_all_dim:
            return mscale(self.factor, self.mscale) / mscale(self.factor, self.mscale_all_dim)
        return (1.0 if self.attn_factor is None else self.attn_factor) * mscale(self.factor)

    def kept(self, plain: Spectrum) -> list[float]:
        """γ: the share of each pair's frequency that is kept."""
        if self.preset == "paper":
            return over_turns(plain, self.trained, self.beta_fast, self.beta_slow)
        ours = self.preset == "transformers"
        truncate = ours if self.truncate is None else self.truncate
        most = plain.size - 1 if ours else plain.size / 2 - 1
        if not ours:
            low, high = bounds(
                plain, self.trained, self.beta_fast, self.beta_slow, truncate=truncate, most=float("inf")
            )
            if not 0 < low < high < most:
                raise ValueError(
                    f'preset="gpt-oss" wants bounds inside 0 .. {most:g} pairs, got {low:.4f} and {high:.4f}; use '
                    'preset="transformers"'
                )
        return over_pairs(plain, self.trained, self.beta_fast, self.beta_slow, truncate=truncate, most=most)

    def __call__(self, plain: Spectrum) -> Spectrum:
        temperature = plain.temperature * self.m**2
        if self.factor == 1:
            return replace(plain, temperature=temperature)
        both = zip(self.kept(plain), plain.frequencies, strict=True)
        return replace(
            plain, frequencies=tuple((1 - y) * w / self.factor + y * w for y, w in both), temperature=temperature
        )


def mscale(factor: float, k: float = 1.0) -> float:
    """g(k) = 0.1 k ln(factor) + 1; DeepSeek multiplies its softmax scale by g(mscale_all_dim)^2 besides."""
    return 0.1 * k * math.log(factor) + 1.0 if factor > 1 else 1.0
