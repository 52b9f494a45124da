"""Layouts of memory: `attend` on strided, expanded, transposed, sliced and offset tensors equals the reference.

In float64, with numbers of about 1 and at most some hundred of them in a sum: rounding stays far below 1e-9.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from milepost import Layout
from milepost.attention import attend
from milepost.spec import build

SPECS = (
    "rope", "alibi", "nope", "t5", "kerple", "sandwich", "rope + alibi", "xpos", "shaw", "fire", "cope", "temperature",
    "deberta", "transformer_xl", "rope(pairing='interleaved')", "rope(scaling=yarn(factor=4.0, trained=16))",
    "self_extend(rope=rope)", "streaming(rope=rope)", "fox", "relative_logits", "selective_rope", "path", "dape",
    "stick_breaking", "vo_rope", "ssmax", "pope", "fope", "learned_spectrum", "rope + fox", "alibi + vo_rope",
    "grape", "grape_additive", "rope_id", "mrope",
)  # fmt: skip
CLOSE = 1e-9


def prepare(folder: Path) -> Any:
    """Every encoding, built once."""
    return [build(spec, heads=4, head_dim=8, width=32, length=64).double() for spec in SPECS]


def attack(state: Any, rng: random.Random) -> None:
    """One call."""
    enc = rng.choice(state)
    torch.manual_seed(rng.randrange(2**31))
    batch, heads, groups = rng.choice((1, 2)), 4, rng.choice((1, 2, 4))
    keys = rng.choice((1, 2, 7, 16, 33))
    queries = rng.choice((1, keys, max(1, keys // 2)))
    window = rng.choice((None, None, 3))
    to = Layout.dense(keys, window=window)
    at = Layout.dense(queries, start=keys - queries, window=window)
    q, k, v = (
        stored(b, n, rng) for b, n in (((batch, heads), queries), ((batch, groups), keys), ((batch, groups), keys))
    )
    f = None
    if enc.feature_count:
        x = stored((batch, 1), keys, rng, 32)[:, 0]
        f = (enc.features(x[:, keys - queries :], at.pos), enc.features(x, to.pos))
    want = attend(q.contiguous(), k.contiguous(), v.contiguous(), enc, at=at, to=to, features=f, backend="reference")
    got = attend(q, k, v, enc, at=at, to=to, features=f)
    off = float((got - want).abs().max().detach()) if got.numel() else 0.0
    assert off <= CLOSE, f"{enc!r}: {off:.3g} from the reference; strides {q.stride()}, {k.stride()}, {v.stride()}"


def stored(outer: tuple[int, int], length: int, rng: random.Random, width: int = 8) -> Tensor:
    """Numbers (B, H, L, width) that lie in memory in one of several ways."""
    shape = (*outer, length, width)
    way = rng.randrange(8)
    if way == 0:
        return torch.randn(*shape, 3, dtype=torch.float64).unbind(-1)[rng.randrange(3)]
    if way == 1:
        return torch.randn(outer[0], length, outer[1], width, dtype=torch.float64).transpose(1, 2)
    if way == 2:
        return torch.randn(outer[0], 1, length, width, dtype=torch.float64).expand(shape)
    if way == 3:
        return torch.randn(*outer, 2 * length, width + 8, dtype=torch.float64)[:, :, ::2, 4:-4]
    if way == 4:
        return torch.randn(*outer, width, length, dtype=torch.float64).transpose(-1, -2)
    if way == 5:
        return torch.randn(outer[0] * outer[1] * length * width + 3, dtype=torch.float64)[3:].view(shape)
    if way == 6:
        return torch.randn(*outer, length, 1, dtype=torch.float64).expand(shape)
    return torch.randn(shape, dtype=torch.float64)
