"""The same attention, written by us and by others: contestants for `bench attention`.

A contestant takes q, k, v (1 H N D) that need no positions yet, does all that its scheme needs, and returns the output.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from milepost.attention import attend
from milepost.encoding import Encoding
from milepost.layout import Layout
from milepost.positions import grid
from milepost.spec import build

Run = Callable[[Tensor, Tensor, Tensor], Tensor]

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


def transformers_eager(enc: Encoding, length: int, device: str) -> Run:
    """What transformers runs by default off GPUs: bias and mask as tensors, softmax in the open."""
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb, eager_attention_forward
    from transformers.models.t5.modeling_t5 import T5Attention

    module = torch.nn.Module()
    module.num_key_value_groups = 1  # type: ignore[assignment]
    module.training = False
    name = type(enc).spec_name()

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads, head_dim = q.shape[1], q.shape[-1]
        mask = torch.full((1, 1, length, length), float("-inf"), device=device).triu(1)
        scaling = head_dim**-0.5
        if name == "rope":
            angle = (torch.arange(length)[:, None] * (10000.0 ** (-torch.arange(0, head_dim, 2) / head_dim))).to(device)
            cos, sin = (torch.cat([t, t], dim=-1)[None] for t in (angle.cos(), angle.sin()))
            q, k = apply_rotary_pos_emb(q, k, cos, sin)
        elif name == "alibi":
            mask = mask + build_alibi_tensor(torch.ones(1, length, device=device), heads, q.dtype)[None]
        elif name == "t5":
            mask = mask + peer.compute_bias(length, length)
            scaling = 1.0
        return eager_attention_forward(module, q, k, v, mask, scaling)[0].transpose(1, 2)  # type: ignore[no-any-return]

    peer: Any = None
    if name == "t5":
        from transformers import T5Config

        config = T5Config(d_model=(enc.heads or 8) * 64, num_heads=enc.heads or 8, d_kv=64, is_decoder=True)
        peer = T5Attention(config, has_relative_attention_bias=True, layer_idx=0).to(device)
    return run


def x_transformers_own(enc: Encoding, length: int, device: str) -> Run:
    """x-transformers' attention with its own bias modules."""
    from x_transformers.attend import Attend
    from x_transformers.x_transformers import (
        AlibiPositionalBias,
        RelativePositionBias,
        RotaryEmbedding,
        apply_rotary_pos_emb,
    )

    name = type(enc).spec_name()
    heads = enc.heads or 8
    if name == "rope":
        core, rotary = Attend(causal=True, flash=True), RotaryEmbedding(enc.head_dim).to(device)

        def turned(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            freqs, scale = rotary(torch.arange(length, device=device))
            q, k = (apply_rotary_pos_emb(x, freqs, scale) for x in (q, k))
            return core(q, k, v)[0]  # type: ignore[no-any-return]

        return turned
    core = Attend(causal=True, flash=True)
    peer = (
        AlibiPositionalBias(heads, heads)
        if name == "alibi"
        else RelativePositionBias(scale=8.0, causal=True, heads=heads).to(device)
    )

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return core(q, k, v, attn_bias=peer(length, length))[0]  # type: ignore[no-any-return]

    return run


def flex_compiled(enc: Encoding, length: int, device: str) -> Run:
    """FlexAttention, compiled, with the bias looked up by distance (not every bias compiles as a formula)."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length, device=device)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads, distance = torch.arange(q.shape[1], device=device)[:, None], torch.arange(length, device=device)
        table = enc.bias(heads, distance, torch.zeros_like(distance)).to(q.dtype)

        def biased(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + table[h, (i - j).abs()]

        done: Tensor = compiled(q, k, v, score_mod=biased if "bias" in enc.points else None, block_mask=mask)
        return done

    return run


def contestants(enc: Encoding, length: int, training: bool, device: str = "cpu") -> dict[str, Run | str]:
    """Every implementation of a scheme, or the reason why it can't take part."""
    name = type(enc).spec_name()
    entries: dict[str, Run | str] = {"milepost": milepost(enc, length, device)}
    dense = (enc.heads or 8) * length**2 * 4 * (6 if enc.content_dependent else 2) * (2 if training else 1)
    too_large = f"its N x N tensors would take {dense / 2**30:.0f} GiB" if dense > LARGEST else None
    if enc.axes == 1 and ("bias" in enc.points or enc.content_dependent):
        entries["materialised"] = too_large or materialised(enc, length, device)
    if name in ("rope", "alibi", "t5"):
        entries["transformers eager"] = too_large or (
            transformers_eager(enc, length, device) if find_spec("transformers") else "not installed"
        )
        by_bias = too_large if name != "rope" else None
        entries["x-transformers"] = by_bias or (
            x_transformers_own(enc, length, device) if find_spec("x_transformers") else "not installed"
        )
    if name in TOEPLITZ:
        why_not = (
            "it has no backward on the CPU"
            if training
            else "not measured at this length on a CPU"
            if length > 8192
            else None
        )
        entries["FlexAttention compiled"] = (
            why_not if why_not and device == "cpu" else flex_compiled(enc, length, device)
        )
    return entries
