"""Reference: a body's logits in float64, from milepost's own parts, with any encoding. No code of transformers is run.

    x = tokens[ids] + table[p]
    x += out(attend(q, k, v, enc));    x += down(act(up(norm(x))))   for each layer
    logits = head(norm(x))

It is what a migrated model is held to. `FalconALiBi` is ALiBi as Falcon has it: slope x key, rounded to bfloat16 with
the slope, over sqrt(D).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from milepost.attention import attend
from milepost.checkpoints.migration.body import Body
from milepost.encoding import Encoding
from milepost.encodings.alibi import slopes
from milepost.layout import Layout

ACT: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
}


@torch.no_grad()
def logits(body: Body, ids: Tensor, enc: Encoding | None = None, table: Tensor | None = None) -> Tensor:
    """Logits (B L V) of tokens (B L).

    ``table`` (at least L, C) is added to the embedding; ``enc`` is what every layer does with q, k and logits.
    """
    weights = {name: value.double() for name, value in body.weights.items()}
    enc, at = Encoding() if enc is None else enc, Layout.dense(ids.shape[1], device=ids.device)
    x = F.embedding(ids, weights["tokens"])
    if table is not None:
        x = x + table[: ids.shape[1]].double()

    def linear(name: str, x: Tensor) -> Tensor:
        return F.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, (body.width,), weights[f"{name}.weight"], weights[f"{name}.bias"], body.eps)

    for n in range(body.layers):
        y = norm(f"{n}.norm_1", x)
        q, k, v = (linear(f"{n}.{name}", y).view(*ids.shape, body.heads, -1).transpose(1, 2) for name in "qkv")
        y = attend(q, k, v, enc, at=at)
        x = x + linear(f"{n}.out", y.transpose(1, 2).flatten(-2))
        x = x + linear(f"{n}.down", ACT[body.activation](linear(f"{n}.up", norm(f"{n}.norm_2", x))))
    out: Tensor = norm("norm", x) @ weights["head"].T
    return out


class FalconALiBi(Encoding):
    """logits[h, i, j] += bf16(bf16(m_h) j) / sqrt(D).

    A softmax can't tell m_h j from -m_h (i - j), but bfloat16 has 8 bits for the product.
    """

    causal_only = True
    toeplitz = False  # rounded products are not a function of i - j
    shift_invariant = False

    def __init__(self, heads: int, head_dim: int):
        super().__init__()
        self.heads, self.head_dim = heads, head_dim
        self.slopes = torch.tensor(slopes(heads), dtype=torch.float64).to(torch.bfloat16)
        self.scale = math.sqrt(head_dim)

    def bias(self, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        found: Tensor = (self.slopes.to(h.device)[h] * j.to(torch.bfloat16)).double() / self.scale
        return found + torch.zeros_like(i, dtype=found.dtype)


def flat_from(heads: int) -> int:
    """The first key that has the same bias as the one before it, in some head.

    From there on neighbours can't be told apart by position.
    """
    keys = torch.arange(1 << 12)
    row = FalconALiBi(heads, 1).bias(torch.arange(heads)[:, None], torch.zeros(1, 1), keys[None])
    same = (row[:, 1:] == row[:, :-1]).any(0).nonzero()
    return int(same[0]) + 1
