"""Linear: a product of float32 numbers that training may round to bfloat16.

    y = x W^T + b,   x and W rounded to 8 bits of mantissa, sums in float32 inside of the processor's product

Processors with products of bfloat16 (AVX512-BF16, AMX, ARMv8.6) do them at two to three times the speed of float32.
Weights, their gradients, all other operations, and every measurement stay in float32: angles and positions never meet
bfloat16. On GPUs autocast does the same, so this class does nothing there.

`feed_forward` is the same for the two products of a layer's feed-forward part: what lies between them, four times as
wide as all else, is rounded once and never widened again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


class RoundedLinear(nn.Linear):
    """``nn.Linear``, whose products are of bfloat16 while ``rounded`` is set."""

    rounded = False

    def forward(self, x: Tensor) -> Tensor:
        """x (... inputs) times the weights: (... outputs)."""
        if not self.rounded:
            return F.linear(x, self.weight, self.bias)
        out: Tensor = _RoundedProduct.apply(x, self.weight)  # type: ignore[no-untyped-call]
        return out if self.bias is None else out + self.bias


class _RoundedProduct(torch.autograd.Function):
    """x W^T and its two gradients, each a product of bfloat16."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        rows, matrix = x.flatten(0, -2).bfloat16(), weight.bfloat16()
        ctx.save_for_backward(rows, matrix)
        return (rows @ matrix.T).float().view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        rows, matrix = ctx.saved_tensors
        wanted = grad.flatten(0, -2).bfloat16()
        return (wanted @ matrix).float().view(*grad.shape[:-1], -1), (wanted.T @ rows).float()


def feed_forward(x: Tensor, up: RoundedLinear, down: RoundedLinear) -> Tensor:
    """``down(gelu(up(x)))`` of x (... C), whose inner numbers stay bfloat16 where both layers are rounded."""
    out: Tensor
    if up.rounded and down.rounded:
        out = _RoundedFeedForward.apply(x, up.weight, up.bias, down.weight) + down.bias  # type: ignore[no-untyped-call]
    else:
        out = down(F.gelu(up(x)))
    return out


class _RoundedFeedForward(torch.autograd.Function):
    """gelu(x U^T + u) D^T: each operand of a product is rounded where the product would round it anyway."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, up: Tensor, bias: Tensor, down: Tensor) -> Tensor:
        rows, up, down = x.flatten(0, -2).bfloat16(), up.bfloat16(), down.bfloat16()
        inner = torch.addmm(bias.bfloat16(), rows, up.T)
        wide = F.gelu(inner)
        ctx.save_for_backward(rows, up, inner, wide, down)
        return (wide @ down.T).float().view(*x.shape[:-1], -1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        rows, up, inner, wide, down = ctx.saved_tensors
        wanted = grad.flatten(0, -2).bfloat16()
        to_inner = torch.ops.aten.gelu_backward(wanted @ down, inner)
        to_x = (to_inner @ up).float().view(*grad.shape[:-1], -1)
        return to_x, (to_inner.T @ rows).float(), to_inner.sum(0).float(), (wanted.T @ wide).float()


def bfloat16_pays() -> bool:
    """Whether this processor has products of bfloat16."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


@contextmanager
def rounded_products(model: nn.Module, rounded: bool) -> Iterator[None]:
    """Products of bfloat16 within, where ``rounded``; float32 again after."""
    layers = [module for module in model.modules() if isinstance(module, RoundedLinear)]
    try:
        for layer in layers:
            layer.rounded = rounded
        yield
    finally:
        for layer in layers:
            layer.rounded = False
