"""What a model really does to q and k: every call of its rotary function is watched, and the turn of each pair
measured.

    given (x, y), got (x', y')        z = (x' + i y') / (x + i y) = m e^(i angle),       over all heads of a token

For a rotation, z is the same for all heads. What is left over, |got - z given|, is zero only when these channels are
pairs. Calls whose input is an earlier call's output are one chain: turned twice, the angle is doubled. Keys are
followed into the cache.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from milepost.checkpoints.model.patch import hooked, patched
from milepost.rope import LayerRope
from milepost.rotation import Pairing, pairs_of

Calls = list[tuple[Tensor, Tensor]]
OTHER: dict[str, Pairing] = {"half": "interleaved", "interleaved": "half"}
EXPLAINED = 0.05
"""A wrong pairing leaves most of a result unexplained, rounding to bfloat16 less than a hundredth."""


class RotaryWatch:
    """By call of the model: what each layer (None: layers have no numbers) gave to the rotary function, and got."""

    def __init__(self) -> None:
        self.steps: list[dict[int | None, Calls]] = []
        self.functions: list[str] = []
        self._layer: int | None = None
        self._depth = 0

    def begin(self) -> None:
        """A new call of the model."""
        self.steps.append({})
        self._layer = None

    def enter(self, layer: int) -> None:
        self._layer = layer

    def wrap(self, function: Any) -> Any:
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._depth += 1  # a rotary function may call another
            try:
                out = function(*args, **kwargs)
            finally:
                self._depth -= 1
            if self._depth == 0 and self.steps:
                results = out if isinstance(out, tuple) else (out,)
                calls = self.steps[-1].setdefault(self._layer, [])
                for given, got in zip([*args, *kwargs.values()], results, strict=False):
                    _chain(calls, given.detach(), got.detach())
            return out

        return watched

    def sides(self, step: int, turning: list[int]) -> dict[int, Calls]:
        """q and k of each layer, in one call of the model. Where layers have no numbers, in the order of calls."""
        by_layer = self.steps[step]
        if set(by_layer) == {None}:
            every = by_layer[None]
            return {n: every[2 * i : 2 * i + 2] for i, n in enumerate(turning)}
        return {n: calls[:2] for n, calls in by_layer.items() if n is not None}


def _chain(calls: Calls, given: Tensor, got: Tensor) -> None:
    for n, (first, last) in enumerate(calls):
        if last.shape == given.shape and torch.equal(last, given):
            calls[n] = first, got.clone()
            return
    calls.append((given.clone(), got.clone()))


@contextlib.contextmanager
def watched(model: Any) -> Iterator[RotaryWatch]:
    """Watch the functions named apply...rotary... of the model's own code."""
    watch = RotaryWatch()
    modules = [
        sys.modules[name] for name in sorted({type(part).__module__ for part in model.modules()}) if name in sys.modules
    ]
    rotary = [(module, name, f) for module in modules for name, f in vars(module).items() if _rotary(name, f)]
    watch.functions = [f"{module.__name__}.{name}" for module, name, _ in rotary]
    hooks = [model.register_forward_pre_hook(lambda *_: watch.begin())]
    for part in model.modules():
        number = getattr(part, "layer_idx", None)
        if isinstance(number, int):
            hooks.append(part.register_forward_pre_hook(lambda *_, number=number: watch.enter(number)))
    with hooked(*hooks), patched(*((module, name, watch.wrap(function)) for module, name, function in rotary)):
        yield watch


def _rotary(name: str, value: Any) -> bool:
    return name.startswith("apply") and "rotary" in name and "vision" not in name and inspect.isroutine(value)


def cached_keys(sides: dict[int, Calls], cache: Any) -> dict[int, Tensor]:
    """The keys that lie in the cache, where they have the shape of those that were turned: they are what later queries
    meet."""
    layers = getattr(cache, "layers", None) or []
    held = {n: getattr(layers[n], "keys", None) for n in sides if n < len(layers)}
    return {
        n: k.detach().clone()
        for n, k in held.items()
        if isinstance(k, Tensor) and len(sides[n]) == 2 and k.shape == sides[n][1][1].shape
    }


@dataclass(frozen=True)
class LayerTurn:
    """What one layer did to q (or k): B L pairs complex numbers.

    ``size`` channels were touched, of ``width`` that were given.

    ``way`` is how pairs lie in what was given and in what came out; ``left`` is the share of the result that no turn of
    these pairs explains; ``silent``: all zeros, so that nothing can be seen.
    """

    z: Tensor
    left: float
    way: tuple[Pairing, Pairing]
    size: int
    width: int
    silent: bool

    @property
    def pairing(self) -> Pairing:
        return self.way[0]


def measure(
    given: Tensor,
    got: Tensor,
    tokens: int,
    rope: LayerRope,
    *,
    alike: bool = True,
    way: tuple[Pairing, Pairing] | None = None,
) -> LayerTurn:
    """The turn of every pair at every token; pairs are formed as ``rope`` says unless only the other way fits.

    ``alike``: all rows of the batch have the same positions, and count as more heads. ``way``: known already, from more
    heads than these.
    """
    given, got = (_by_token(x, tokens) for x in (given, got))
    if alike:
        given, got = (x.permute(1, 0, 2, 3).flatten(1, 2)[None] for x in (given, got))
    width = given.shape[-1]
    moved = (given != got).flatten(0, -2).any(0).nonzero()
    touched = int(moved.max()) + 1 if len(moved) else 0
    expected = rope.rotary if width >= rope.rotary else width
    size = min(width, touched + touched % 2) if touched > expected else expected
    if touched < expected and width > rope.rotary:
        size = max(2, touched + touched % 2)
    own, other = rope.pairing, OTHER[rope.pairing]
    ways = [(own, own), (own, other), (other, other)]  # code may put the results in another order
    tried = [(*_ratio(given, got, size, *each), each) for each in (ways if way is None else [way])]
    good = next((t for t in tried if t[1] < EXPLAINED), tried[0])
    return LayerTurn(good[0], good[1], good[2], size, width, bool((given == 0).all()))


def _by_token(x: Tensor, tokens: int) -> Tensor:
    """B L H D in float64, from that or B H L D."""
    return (x if x.shape[1] == tokens and x.shape[2] != tokens else x.transpose(1, 2)).double().cpu()


def _ratio(given: Tensor, got: Tensor, size: int, pairing: Pairing, after: Pairing) -> tuple[Tensor, float]:
    """z of each token and pair, and the share of the result that z does not explain."""
    g = torch.complex(*pairs_of(given, size // 2, size, pairing))
    o = torch.complex(*pairs_of(got, size // 2, size, after))
    power = (g.abs() ** 2).sum(2)
    z = (g.conj() * o).sum(2) / power.clamp_min(1e-300)
    left = (o - z[:, :, None] * g).abs().pow(2).sum(2) / (o.abs() ** 2).sum(2).clamp_min(1e-300)
    return z, float(left.max().sqrt())
