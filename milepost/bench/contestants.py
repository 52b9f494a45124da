"""The same attention, written by us and by others: contestants for `bench attention`.

A contestant takes q, k, v (1 H N D) that need no positions yet, does all that its scheme needs, and returns the output.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch
from torch import Tensor
from torch.nn import functional as F

from milepost.attention import attend
from milepost.bench.peers import FLEX, TRANSFORMERS, X_TRANSFORMERS, Run
from milepost.encoding import Encoding
from milepost.layout import Layout
from milepost.positions import grid
from milepost.spec import build

TOEPLITZ = ("alibi", "t5", "kerple", "sandwich")
CONTENT = ("fire", "shaw", "transformer_xl", "deberta", "cope")
STATES = ("fox", "relative_logits", "selective_rope", "grape_additive")
OTHERS = ("vo_rope", "dape", "stick_breaking", "pope")
TURNED = ("temperature", "ssmax", "learned_spectrum", "fope", "grape", "rope_id")
EMBEDDED = ("sinusoidal", "learned", "integer", "binary")
GRID = ("axial", "mixed", "alibi_2d")
USUAL = ("rope", *TOEPLITZ, *CONTENT, *TURNED, *STATES, *OTHERS, *EMBEDDED, *GRID)
"""All that are timed by default: path takes O(N^3), and is timed where it is asked for."""
SCHEMES = ("nope", *USUAL, "path")
MAPS = ("self_extend(rope=rope)", "rerope(rope=rope)", "dual_chunk(rope=rope, chunk=3072, local=512)")
TWO_SIDED = ("deberta",)
"""Schemes of encoders: they are measured without the causal mask, against attention without it."""
LARGEST = 6 * 2**30
"""Bytes of N x N tensors that a dense contestant may take; beyond, it is said that it can't."""


def encoding(scheme: str, heads: int, head_dim: int, length: int = 4096) -> Encoding:
    """The scheme's encoding at its defaults."""
    return build(scheme, heads=heads, head_dim=head_dim, width=heads * head_dim, length=max(4096, length))


def is_causal(enc: Encoding) -> bool:
    """Whether a scheme is measured with the causal mask."""
    return type(enc).spec_name() not in TWO_SIDED


def baseline(q: Tensor, k: Tensor, v: Tensor, causal: bool = True) -> Tensor:
    """Torch's fused attention, no position: what ratios are to."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def milepost(enc: Encoding, length: int, device: str) -> Run:
    """Ours, with the backend that `auto` takes. Several axes are a grid of 64 columns; q is what is embedded."""
    at, causal = Layout.dense(length, device=device), is_causal(enc)
    if enc.axes > 1:
        at = at.with_positions(grid(-(-length // 64), 64)[..., :length].to(device))

    x = hidden(enc, length, device)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if "embed" in enc.points:
            width = q.shape[1] * q.shape[3]
            embedded = enc.embed(q.transpose(1, 2).flatten(2), at.pos)[..., :width]
            q = embedded.reshape(q.shape[0], length, q.shape[1], -1).transpose(1, 2)
        features = enc.features(x, at.pos) if enc.feature_count else None
        return attend(q, k, v, enc, at=at, causal=causal, features=features)

    return run


def hidden(enc: Encoding, length: int, device: str) -> Tensor:
    """Hidden states (1 L C) for encodings that make features of them: making those is a part of their cost."""
    return torch.randn(1, length, enc.width or 1, device=device)


def materialised(enc: Encoding, length: int, device: str) -> Run:
    """A bias of N x N numbers a head, given to torch's fused attention; the reference where it needs content."""
    at, causal = Layout.dense(length, device=device), is_causal(enc)
    if enc.content_dependent:
        x = hidden(enc, length, device)
        f = enc.features(x, at.pos).detach() if enc.feature_count else None
        return lambda q, k, v: attend(q, k, v, enc, at=at, causal=causal, backend="reference", features=f)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        i = torch.arange(length, device=device)
        h = torch.arange(q.shape[1], device=device)[:, None, None]
        bias = enc.bias(h, i[:, None], i[None, :]).to(q.dtype).expand(q.shape[1], -1, -1)
        bias = bias.masked_fill(i[None, :] > i[:, None], float("-inf"))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias[None])

    return run


def contestants(enc: Encoding, length: int, training: bool, device: str = "cpu") -> dict[str, Run | str]:
    """Every implementation of a scheme, or the reason why it can't take part."""
    name = type(enc).spec_name()
    entries: dict[str, Run | str] = {"milepost": milepost(enc, length, device)}
    dense = (enc.heads or 8) * length**2 * 4 * (6 if enc.content_dependent else 2) * (2 if training else 1)
    too_large = f"its N x N tensors would take {dense / 2**30:.0f} GiB" if dense > LARGEST else None
    if enc.axes == 1 and ("bias" in enc.points or enc.content_dependent):
        entries["materialised"] = too_large or materialised(enc, length, device)
    for word, package, known in (
        ("transformers eager", "transformers", TRANSFORMERS), ("x-transformers", "x_transformers", X_TRANSFORMERS)
    ):  # fmt: skip
        if name in known:
            by_flash = word == "x-transformers" and name == "rope"
            entries[word] = (None if by_flash else too_large) or (
                known[name](enc, length, device) if find_spec(package) else "not installed"
            )
    if name in FLEX:
        why_not = (
            "it has no backward on the CPU"
            if training
            else "not measured at this length on a CPU"
            if length > 8192
            else None
        )
        entries["FlexAttention compiled"] = (
            why_not if why_not and device == "cpu" else FLEX[name](enc, length, device, is_causal(enc))
        )
    return entries
