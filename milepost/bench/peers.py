"""The same attention written by others: what transformers, x-transformers and FlexAttention have of each scheme.

A peer has parameters of its own, so that its output is another one; the work is the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from milepost.encoding import Encoding

Run = Callable[[Tensor, Tensor, Tensor], Tensor]


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


def transformers_xlnet(enc: Encoding, length: int, device: str) -> Run:
    """XLNet's relative attention, its core alone: keys of distances come ready-made."""
    from transformers import XLNetConfig
    from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

    heads, head_dim = enc.heads or 8, enc.head_dim or 64
    config = XLNetConfig(d_model=heads * head_dim, n_head=heads, dropout=0.0)
    made: Any = XLNetRelativeAttention
    peer = made(config).to(device).eval()
    for p in peer.parameters():
        torch.nn.init.normal_(p, std=0.02)
    of_distances = torch.randn(2 * length, 1, heads, head_dim, device=device)
    hidden = torch.ones(length, length, 1, 1, device=device).triu(1)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.permute(2, 0, 1, 3) for t in (q, k, v))
        done: Tensor = peer.rel_attn_core(q, k, v, of_distances, attn_mask=hidden)
        return done

    return run


def transformers_deberta(enc: Encoding, length: int, device: str) -> Run:
    """DeBERTa-v2's disentangled attention without its projections of hidden states."""
    from transformers import DebertaV2Config
    from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention

    heads, head_dim = enc.heads or 8, enc.head_dim or 64
    config: Any = DebertaV2Config(hidden_size=heads * head_dim, num_attention_heads=heads, relative_attention=True)
    config.pos_att_type, config.share_att_key = ["c2p", "p2c"], True
    config.position_buckets, config.max_relative_positions = 256, 512
    made: Any = DisentangledSelfAttention
    peer = made(config).to(device).eval()
    table = torch.randn(512, heads * head_dim, device=device)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (t.flatten(0, 1) for t in (q, k, v))
        scores = torch.bmm(q, k.mT) / (3 * head_dim) ** 0.5
        scores = scores + peer.disentangled_attention_bias(q, k, None, table, 3)
        return torch.bmm(torch.softmax(scores, dim=-1), v)

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


def x_transformers_cope(enc: Encoding, length: int, device: str) -> Run:
    """x-transformers' attention with its CoPE."""
    from x_transformers.attend import Attend
    from x_transformers.x_transformers import CoPE

    core = Attend(causal=True, flash=False, cope=CoPE(enc.head_dim or 64, enc.heads or 8, 64)).to(device)

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return core(q, k, v)[0]  # type: ignore[no-any-return]

    return run


def flex_by_distance(enc: Encoding, length: int, device: str, causal: bool) -> Run:
    """FlexAttention, compiled, with the bias looked up by distance (not every bias compiles as a formula)."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length, device=device) if causal else None

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        heads, distance = torch.arange(q.shape[1], device=device)[:, None], torch.arange(length, device=device)
        table = enc.bias(heads, distance, torch.zeros_like(distance)).to(q.dtype)

        def biased(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            return score + table[h, (i - j).abs()]

        done: Tensor = compiled(q, k, v, score_mod=biased if "bias" in enc.points else None, block_mask=mask)
        return done

    return run


def flex_by_content(enc: Encoding, length: int, device: str, causal: bool) -> Run:
    """FlexAttention, compiled: the product of each query with the vectors of all distances, and of each key, are made
    first and looked up for each pair.
    """
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    compiled = torch.compile(flex_attention, dynamic=False)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length, device=device) if causal else None
    far = min(enc.alike_from or length - 1, length - 1)
    near = 0 if causal else -far

    def run(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        relative = enc.relative(torch.arange(far, near - 1, -1, device=device))
        assert relative is not None and relative.a is not None
        p = q if relative.v is None else q + relative.v[:, None]
        q = q if relative.u is None else q + relative.u[:, None]
        of_queries, scale = p @ relative.a.mT, q.shape[-1] ** -0.5 * relative.share
        of_keys = None if relative.b is None else k @ relative.b.mT

        def scored(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
            number = far - torch.clamp(i - j, near, far)
            score = score + scale * of_queries[b, h, i, number]
            return score if of_keys is None else score + scale * of_keys[b, h, j, number]

        done: Tensor = compiled(q, k, v, score_mod=scored, block_mask=mask, scale=scale)
        return done

    return run


TRANSFORMERS: dict[str, Callable[[Encoding, int, str], Run]] = {
    **dict.fromkeys(("rope", "alibi", "t5"), transformers_eager),
    "transformer_xl": transformers_xlnet,
    "deberta": transformers_deberta,
}
X_TRANSFORMERS: dict[str, Callable[[Encoding, int, str], Run]] = {
    **dict.fromkeys(("rope", "alibi", "t5"), x_transformers_own),
    "cope": x_transformers_cope,
}
FLEX: dict[str, Callable[[Encoding, int, str, bool], Run]] = {
    **dict.fromkeys(("alibi", "t5", "kerple", "sandwich"), flex_by_distance),
    **dict.fromkeys(("shaw", "transformer_xl", "deberta"), flex_by_content),
}
