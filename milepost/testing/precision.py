"""Laws of precision and gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from milepost.encoding import Encoding
from milepost.layout import Layout
from milepost.testing.layer import (
    TEXT,
    Broken,
    Layer,
    dense,
    fitted,
    plain_at,
    starts,
    tokens_of,
)


def half_precision(enc: Encoding) -> None:
    """In bfloat16 the output is off by no more than bfloat16's own rounding of q, k and v explains."""
    n = tokens_of(enc)
    enc = plain_at(enc, n)
    eps = 2.0**-8
    for start in starts(enc, n):
        wide, narrow = Layer(enc), Layer(copy.deepcopy(enc).bfloat16(), dtype=torch.bfloat16)
        rounded = copy.deepcopy(narrow.enc).double()
        wide.enc, wide.weights, x = rounded, narrow.weights.double(), narrow.text(n)
        at = dense(enc, n, start)
        _same_codes(narrow.enc, rounded, x, layer_shape=(1, narrow.heads, n, narrow.head_dim), at=at)
        exact, rough = wide(x.double(), at), narrow(x, at).double()
        size = max(1.0, rounded.embed(x.double(), at.pos).abs().max().item())  # a code may be larger than the text
        q, k, v = wide.project(x.double(), at)
        inner = (q.abs() @ k.abs().transpose(-1, -2)).max().item() * wide.head_dim**-0.5
        slack = 3 * size if "embed" in enc.points else 1  # embeddings are rounded before they are projected
        off = 4 * eps * slack * max(inner, 1.0)  # how far a logit may be off
        permitted = v.abs().max().item() * min(2.0, 2 * off + 2 * eps * slack)
        worst = (exact - rough).abs().max().item()
        if not worst <= permitted:
            raise Broken(f"at position {start}: off by {worst:.2e}, rounding explains {permitted:.2e}")


def _same_codes(narrow: Encoding, wide: Encoding, x: Tensor, layer_shape: tuple[int, ...], at: Layout) -> None:
    """What the hooks of points 1 and 2 give in bfloat16, against float64 from the same numbers: rounded once or twice,
    no more.
    """
    q = torch.randn(layer_shape, generator=torch.Generator().manual_seed(8)).bfloat16()
    for name, given in (("embed", x), ("query", q), ("key", q), ("value", q), ("restore", q)):
        if name in narrow.points:
            rough, exact = getattr(narrow, name)(given, at.pos).double(), getattr(wide, name)(given.double(), at.pos)
            permitted = 2 * 2.0**-8 * exact.abs().amax(-1, keepdim=True).clamp(min=1.0)
            off = (rough - exact).abs()
            if not bool((off <= permitted).all()):
                where, most = int(at.index[0, 0]), permitted.max().item()
                raise Broken(
                    f"{name}() at position {where} is off by {off.max().item():.2e}, rounding explains {most:.2e}"
                )


def refuses_half_positions(enc: Encoding) -> None:
    """Positions in half precision are refused, never used: bfloat16 can't tell 256 from 257."""
    enc = plain_at(enc, TEXT)
    x, q = torch.zeros(1, 4, enc.width or 16), torch.zeros(1, enc.heads or 2, 4, enc.head_dim or 8)
    tries: list[Callable[[Tensor], Any]] = [Layout.dense(4).with_positions]
    tries += [lambda pos: enc.embed(x, pos)] * ("embed" in enc.points)
    tries += [lambda pos: enc.query(q, pos)] * ("query" in enc.points)
    tries += [lambda pos: enc.key(q, pos)] * ("key" in enc.points)
    tries += [lambda pos: enc.value(q, pos)] * ("value" in enc.points)
    tries += [lambda pos: enc.restore(q, pos)] * ("restore" in enc.points)
    for dtype in (torch.bfloat16, torch.float16):
        for attempt in tries:
            try:
                attempt(dense(enc, 4).pos.to(dtype))
            except ValueError:
                continue
            raise Broken(f"positions in {str(dtype)[6:]} were taken")


def gradients(enc: Encoding) -> None:
    """Gradients to q, k, v, x and every parameter equal finite differences, and each parameter gets one."""
    enc, layer, n = fitted(enc, most=5)
    at = dense(enc, n)
    names = [name for name, _ in enc.named_parameters()]
    held = [p.detach().clone().requires_grad_() for p in enc.parameters()]

    def run(x: Tensor, *values: Tensor) -> Tensor:
        out: Tensor = torch.func.functional_call(layer_module, dict(zip(names, values, strict=True)), (x,))
        return out

    layer_module = _AsModule(layer, at)
    names = [f"enc.{name}" for name in names]
    x = layer.text(n).requires_grad_()
    if not torch.autograd.gradcheck(
        run, (x, *held), raise_exception=False, fast_mode=sum(p.numel() for p in held) > 200
    ):
        raise Broken("gradients differ from finite differences")
    if not held:
        return
    grads = torch.autograd.grad(run(x, *held).pow(2).sum(), held, allow_unused=True)
    silent = [name for name, g in zip(names, grads, strict=True) if g is None or not g.any()]
    if silent:
        raise Broken(f"no gradient reaches {', '.join(silent)}")


class _AsModule(torch.nn.Module):
    def __init__(self, layer: Layer, at: Layout):
        super().__init__()
        self.enc, self.layer, self.at = layer.enc, layer, at

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, self.at)
