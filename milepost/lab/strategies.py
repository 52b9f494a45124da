"""Strategies: what can be done to a trained RoPE model at test time, without training it again.

Each maps the model's rope and a length to the spec that serves it. Up to the trained length the scalings leave it as it is.
"""

from __future__ import annotations

from milepost.encodings.rope import RoPE
from milepost.lab.model import Shape
from milepost.scaling import Scaling
from milepost.scaling.dynamic import Dynamic
from milepost.scaling.larger_base import LargerBase
from milepost.scaling.linear import Linear
from milepost.scaling.ntk import NTK
from milepost.scaling.yarn import YaRN

NAMES = ("none", "base", "linear", "ntk", "dynamic", "yarn", "self-extend", "rerope")


def applies(spec: str, shape: Shape) -> bool:
    """Whether strategies are for this encoding: a RoPE without a scaling of its own."""
    enc = shape.build(spec)
    return isinstance(enc, RoPE) and enc.scaling is None


def served(spec: str, strategy: str, shape: Shape, length: int) -> str:
    """The spec that serves ``length`` tokens by a strategy."""
    rope = shape.build(spec)
    if not isinstance(rope, RoPE) or rope.scaling is not None:
        raise ValueError(f"strategies are for a RoPE without a scaling, got {spec}")
    trained = shape.length
    if strategy not in NAMES:
        raise ValueError(f"unknown strategy {strategy!r}; there are {', '.join(NAMES)}")
    if strategy == "none" or (length <= trained and strategy not in ("self-extend", "rerope")):
        return repr(rope)
    if strategy in ("self-extend", "rerope"):
        return _mapped(rope, strategy, trained, length)
    factor = length / trained
    made: dict[str, Scaling] = {
        "base": LargerBase(LargerBase.needed(max(length, trained), trained=trained, base=rope.base)) if trained > 6 else NTK(factor),
        "linear": Linear(factor),
        "ntk": NTK(factor),
        "dynamic": Dynamic(trained),
        "yarn": YaRN(factor, trained),
    }
    return repr(_with(rope, made[strategy]))


def _with(rope: RoPE, scaling: Scaling) -> RoPE:
    return RoPE(rope.head_dim or 0, rope.base, rope.pairing, rope.rotary, rope.partial, scaling)


def _mapped(rope: RoPE, strategy: str, trained: int, length: int) -> str:
    """Position maps with windows that keep every relative position inside the trained length."""
    window = max(2, trained // 2)
    if strategy == "rerope":
        return f"rerope(rope={rope!r}, window={window})"
    room = trained - window
    group = max(1, -(-max(0, length - window) // max(1, room - 1)))
    return f"self_extend(rope={rope!r}, group={group}, window={window})"


__all__ = ["NAMES", "applies", "served"]
