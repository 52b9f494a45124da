"""Strategies: what can be done to a trained RoPE model at test time, without training it again.

    none            nothing
    base            a larger base, such that as many pairs turn full circle as in training
    linear, ntk     the scalings of these names, by length / trained
    dynamic         dynamic NTK: the text's own length decides
    yarn            YaRN, by length / trained
    self-extend     near tokens as they are, far ones in groups, as large as the length needs
    rerope          distances that stop growing at a window

Each maps the model's rope and a length to the spec that serves it. Up to the trained length all of them leave the model
as it is.
"""

from __future__ import annotations

from milepost.encodings.rope import RoPE
from milepost.lab.model import Shape
from milepost.maps.rerope import ReRoPE
from milepost.maps.self_extend import SelfExtend
from milepost.scaling import NTK, Dynamic, LargerBase, Linear, Scaling, YaRN

NAMES = ("none", "base", "linear", "ntk", "dynamic", "yarn", "self-extend", "rerope")


def applies(spec: str, shape: Shape) -> bool:
    """Whether strategies are for this encoding: a RoPE without a scaling of its own."""
    enc = shape.build(spec)
    return isinstance(enc, RoPE) and enc.scaling is None


def served(spec: str, strategy: str, shape: Shape, length: int) -> str:
    """The spec that serves ``length`` tokens by a strategy."""
    rope, trained = shape.build(spec), shape.length
    if not isinstance(rope, RoPE) or rope.scaling is not None:
        raise ValueError(f"strategies are for a RoPE without a scaling, got {spec}")
    if strategy not in NAMES:
        raise ValueError(f"unknown strategy {strategy!r}; there are {', '.join(NAMES)}")
    if strategy == "none" or length <= trained:
        return repr(rope)
    if strategy == "rerope":
        return repr(ReRoPE(rope, window=trained // 2))
    if strategy == "self-extend":
        return repr(fit_self_extend(rope, trained // 2, trained, length))
    scaling = _scaling(strategy, rope, trained, length)
    return repr(RoPE(rope.head_dim or 0, rope.base, rope.pairing, rope.rotary, rope.partial, scaling))


def fit_self_extend(rope: RoPE, window: int, trained: int, length: int) -> SelfExtend:
    """SelfExtend with the smallest groups that keep every relative position below 2/3 of the trained length.

    That is its authors' advice. Where no groups do, because the window is too large for it, all far tokens share one.
    """
    maps = (SelfExtend(rope, group=group, window=window) for group in range(1, length + 1))
    return next(enc for enc in maps if enc.reach(length) < trained * 2 / 3 or enc.group == length)


def _scaling(strategy: str, rope: RoPE, trained: int, length: int) -> Scaling:
    if strategy == "base":
        return LargerBase(LargerBase.needed(length, trained=trained, base=rope.base))
    if strategy == "dynamic":
        return Dynamic(trained)
    factor = length / trained
    return {"linear": Linear(factor), "ntk": NTK(factor), "yarn": YaRN(factor, trained)}[strategy]


__all__ = ["NAMES", "applies", "fit_self_extend", "served"]
