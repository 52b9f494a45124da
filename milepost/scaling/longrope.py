"""LongRoPE: a factor for each pair, found by search; one list for short texts, one for long ones.

    w_i' = w_i / short_i   for a text of at most `trained` tokens,      w_i / long_i beyond
    logits * m^2,           m = sqrt(1 + ln(factor) / ln(trained))

Ding et al., "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens", 2024, section 3. arXiv:2402.13753
m and the lists as in Microsoft's Phi-3 code

The switch is the catch: the lists change at trained + 1 tokens, so keys cached before are stale after. Who decides
differs: transformers looks at the text's length at each call (SGLang at a batch's), vLLM and llama.cpp at the length
that they serve, once. Here `length` is None (the text decides: the encoding is length-dependent, see `KVCache` for the
policies) or the length served.

Departure: none. m may be given (`attention_factor`), for each list apart if need be (`short_m`, `long_m`: vLLM's
short_mscale, long_mscale).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from milepost.scaling.scaling import MOST, Scaling
from milepost.spectrum import Spectrum


@dataclass(frozen=True, repr=False)
class LongRoPE(Scaling):
    """``short`` and ``long`` hold a factor for each pair; ``factor`` is the served length over ``trained``."""

    short: tuple[float, ...]
    long: tuple[float, ...]
    trained: int
    factor: float = 1.0
    attention_factor: float | None = None
    short_m: float | None = None
    long_m: float | None = None
    length: int | None = None

    def __post_init__(self) -> None:
        self.check_factor("factor", self.factor)
        self.check_length("trained", self.trained)
        if self.length is not None:
            self.check_length("length", self.length)
        if self.factor > 1 and self.trained < 2:
            raise ValueError(f"longrope divides by ln(trained): trained must be at least 2, got {self.trained}")
        for name in ("short", "long"):
            factors = getattr(self, name)
            if (
                not isinstance(factors, tuple)
                or not factors
                or not all(isinstance(f, int | float) and 0 < f < float("inf") for f in factors)
            ):
                raise ValueError(
                    f"{name} of longrope is a tuple of factors above 0, one for each pair, got {str(factors)[:80]}"
                )
        if len(self.short) != len(self.long):
            raise ValueError(
                f"longrope wants as many short factors as long ones, got {len(self.short)} and {len(self.long)}"
            )
        self.check_range(1 / MOST, "attention_factor", "short_m", "long_m")
        if self.attention_factor is not None and (self.short_m is not None or self.long_m is not None):
            raise ValueError(
                "longrope: attention_factor is m for both lists; short_m and long_m are for one each: give one or the "
                "other"
            )

    @property
    def length_dependent(self) -> bool:  # type: ignore[override]
        return self.length is None and (self.short, self.short_m) != (self.long, self.long_m)

    def at(self, length: int) -> LongRoPE:
        return replace(self, length=length) if self.length_dependent else self

    @property
    def m(self) -> float:
        """What published code multiplies cos and sin by."""
        own = self.long_m if self._long() else self.short_m
        if own is not None or self.attention_factor is not None:
            return float(own if own is not None else self.attention_factor or 1.0)
        return math.sqrt(1 + math.log(self.factor) / math.log(self.trained)) if self.factor > 1 else 1.0

    def _long(self) -> bool:
        return self.length is not None and self.length > self.trained

    def __call__(self, plain: Spectrum) -> Spectrum:
        if self.length_dependent:
            return super().__call__(plain)
        factors = self.long if self._long() else self.short
        if len(factors) != len(plain.frequencies):
            raise ValueError(
                f"longrope has {len(factors)} factors for {len(plain.frequencies)} pairs (rotary size {plain.size}); "
                "it needs one for each pair"
            )
        turned = tuple(w / f for w, f in zip(plain.frequencies, factors, strict=True))
        return replace(plain, frequencies=turned, temperature=plain.temperature * self.m**2)
