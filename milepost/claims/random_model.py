"""A small random Transformer in float64, with or without a mask, for what attention does before any training.

    x += attention(norm(x)) W,     x += mlp(norm(x)),     for each layer

Weights have the size at which attention is neither uniform nor a single peak, so that a change of order is visible.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from milepost.attention import attend
from milepost.encoding import Encoding
from milepost.layout import Layout

WIDTH, HEADS = 32, 4
FAR = 1048575
"""The last position that is tested."""


def gaussian(*shape: int, seed: int) -> Tensor:
    """Normal numbers in float64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def permutation(n: int, seed: int) -> Tensor:
    """A random order of n."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


class RandomModel:
    """``layers`` random layers of attention under one encoding."""

    def __init__(self, layers: int, enc: Encoding | None = None, seed: int = 1):
        self.enc = Encoding() if enc is None else enc
        shapes = {"qkv": (3, WIDTH, WIDTH), "out": (WIDTH, WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
        self.weights = [
            {
                name: gaussian(*shape, seed=seed + 100 * layer + number) / shape[-2] ** 0.5
                for number, (name, shape) in enumerate(shapes.items())
            }
            for layer in range(layers)
        ]

    def project(self, x: Tensor, layer: int, at: Layout) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v (B H L D) of one layer, with positions."""
        q, k, v = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in F.layer_norm(x, (WIDTH,)) @ self.weights[layer]["qkv"][:, None]
        )
        return self.enc.query(q, at.pos), self.enc.key(k, at.pos), self.enc.value(v, at.pos)

    def states(self, x: Tensor, at: Layout | None = None, *, causal: bool) -> list[Tensor]:
        """The states before the first layer and after each layer, B L C."""
        at = Layout.dense(x.shape[1]) if at is None else at
        states = [self.enc.embed(x, at.pos)]
        for layer, weights in enumerate(self.weights):
            x = states[-1]
            y = attend(*self.project(x, layer, at), self.enc, at=at, turned=True, causal=causal, backend="reference")
            x = x + y.transpose(1, 2).flatten(-2) @ weights["out"]
            states.append(x + F.gelu(F.layer_norm(x, (WIDTH,)) @ weights["up"]) @ weights["down"])
        return states

    def __call__(self, x: Tensor, at: Layout | None = None, *, causal: bool) -> Tensor:
        return self.states(x, at, causal=causal)[-1]


def max_abs(a: Tensor) -> float:
    """The largest absolute value."""
    return float(a.detach().abs().max())
