"""Rotation: turn pairs of channels by an angle. The one kernel behind RoPE and its family.

    (x, y) -> (x cos a - y sin a,  x sin a + y cos a)

Which channels are a pair:   half         (i, i + size/2)        Llama, GPT-NeoX, Qwen, Gemma
                             interleaved  (2i, 2i + 1)           GPT-J, the RoFormer paper, x-transformers
The two differ by a fixed permutation of channels (`permutation`); mixing them up keeps shapes and norms, and is wrong.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

Pairing = Literal["half", "interleaved"]
PAIRINGS = {"half": "i with i + size/2", "interleaved": "2i with 2i + 1"}

CACHED = 1 << 18
"""Numbers to turn at a time, at least two heads of them."""


def pairs_of(x: Tensor, pairs: int, size: int, pairing: Pairing) -> tuple[Tensor, Tensor]:
    """Views of the first ``pairs`` pairs among the first ``size`` channels of the last dimension."""
    if pairing == "half":
        return x[..., :pairs], x[..., size // 2 : size // 2 + pairs]
    return x[..., 0 : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]


def rotate(x: Tensor, cos: Tensor, sin: Tensor, size: int, pairing: Pairing) -> Tensor:
    """Turn the pairs of ``x`` (B H L D) by the angles of ``cos``, ``sin`` (B|1 H|1 L pairs); other channels stay
    bit-equal.
    """
    if (
        torch.compiler.is_compiling()
        or type(x) is not Tensor
        or torch._C._functorch.peek_interpreter_stack() is not None
    ):
        return _formula(x, cos, sin, size, pairing)
    if torch.autograd.forward_ad._current_level >= 0:  # writing in place loses a derivative in forward mode
        return _formula(x, cos, sin, size, pairing)
    if not (torch.is_grad_enabled() and (x.requires_grad or cos.requires_grad or sin.requires_grad)):
        if x.shape[2] == 1 and pairing == "half" and 2 * cos.shape[-1] == x.shape[-1] and x.dtype == cos.dtype:
            return torch.addcmul(
                x * torch.cat([cos, cos], dim=-1), x.roll(size // 2, -1), torch.cat([-sin, sin], dim=-1)
            )  # fewest steps: a decode
        return _in_place(x, cos, sin, size, pairing)
    turned: Tensor = _Rotate.apply(x, cos, sin, size, pairing)  # type: ignore[no-untyped-call]
    return turned


def _formula(x: Tensor, cos: Tensor, sin: Tensor, size: int, pairing: Pairing) -> Tensor:
    """The definition, for compilers and function transforms."""
    pairs = cos.shape[-1]
    a, b = (part.to(cos.dtype) for part in pairs_of(x, pairs, size, pairing))
    a, b = (a * cos - b * sin).to(x.dtype), (a * sin + b * cos).to(x.dtype)
    if pairing == "interleaved":
        return torch.cat([torch.stack([a, b], dim=-1).flatten(-2), x[..., 2 * pairs :]], dim=-1)
    return torch.cat([a, x[..., pairs : size // 2], b, x[..., size // 2 + pairs :]], dim=-1)


def _in_place(x: Tensor, cos: Tensor, sin: Tensor, size: int, pairing: Pairing) -> Tensor:
    """The same in four passes over a few heads at a time, so that the work stays in the cache.

    Heads that are strided, as those of one projection of q, k and v, are copied first: passes over short pieces of rows
    take up to six times as long as the copy and passes over whole ones.
    """
    pairs = cos.shape[-1]
    if x.stride()[2:] != (x.shape[-1], 1):
        x = x.contiguous()
    out = torch.empty_like(x) if 2 * pairs == x.shape[-1] else x.clone()
    heads = max(2, CACHED // max(1, x.shape[0] * x.shape[2] * x.shape[3]))
    for h in range(0, x.shape[1], heads):
        a, b = (part.to(cos.dtype) for part in pairs_of(x[:, h : h + heads], pairs, size, pairing))
        to_a, to_b = pairs_of(out[:, h : h + heads], pairs, size, pairing)
        c, s = (
            t[:, h : h + heads] if t.dim() == 4 and t.shape[1] > 1 else t for t in (cos, sin)
        )  # a head may have angles of its own
        if x.dtype == cos.dtype:
            torch.mul(a, c, out=to_a).addcmul_(b, s, value=-1)
            torch.mul(b, c, out=to_b).addcmul_(a, s)
        else:  # half precision is widened, turned, and rounded once
            to_a.copy_(torch.mul(a, c).addcmul_(b, s, value=-1))
            to_b.copy_(torch.mul(b, c).addcmul_(a, s))
    return out


class _Rotate(torch.autograd.Function):
    """The same with a gradient, which turns back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, size: int, pairing: Pairing) -> Tensor:
        learns = ctx.needs_input_grad[1] or ctx.needs_input_grad[2]  # otherwise x is not needed again
        ctx.save_for_backward(x if learns else None, cos, sin)
        ctx.how = size, pairing
        return _in_place(x, cos, sin, size, pairing)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, cos, sin = ctx.saved_tensors
        size, pairing = ctx.how
        to_x = rotate(grad, cos, -sin, size, pairing)
        if x is None:  # the usual case: angles do not learn
            return to_x, None, None, None, None
        pairs = cos.shape[-1]
        (a, b), (ga, gb) = (pairs_of(t.to(cos.dtype), pairs, size, pairing) for t in (x, grad))
        return to_x, (ga * a + gb * b).sum_to_size(cos.shape), (gb * a - ga * b).sum_to_size(sin.shape), None, None


def permutation(size: int, *, to: Pairing) -> Tensor:
    """Channels of a vector paired the other way, in the order that pairing ``to`` wants: ``x[...,
    permutation(...)]``.
    """
    if size % 2:
        raise ValueError(f"pairs need an even number of channels, got {size}")
    order = torch.arange(size)
    return order.reshape(2, -1).T.reshape(-1) if to == "interleaved" else order.reshape(-1, 2).T.reshape(-1)


def rotary_size(head_dim: int, rotary: int | None) -> int:
    """How many channels turn: ``rotary`` of them, or all; an even number, or an error."""
    size = head_dim if rotary is None else rotary
    if size < 2 or size % 2 or size > head_dim:
        raise ValueError(f"the rotary size must be even, from 2 to head_dim={head_dim}, got {size}")
    return size


def scaled(x: Tensor, size: int, temperature: float) -> Tensor:
    """The first ``size`` channels of ``x`` (B H L D) times the temperature of logits, the others as they are."""
    if temperature == 1.0:
        return x
    if size == x.shape[-1]:
        return x * temperature
    return torch.cat([x[..., :size] * temperature, x[..., size:]], dim=-1)
