"""kernel: the one door to torch's CPU flash kernel, which believes what it is given.

The operator reads memory by strides that it never checks: rows of q, k and v must be contiguous and must not overlap, a
mask must be contiguous along the keys, and there must be something to attend to. `flash` and `flash_backward` make that
so, by a copy where it is not. `torch.nn.functional.scaled_dot_product_attention` checks strides itself, but then leaves
its fast path; `fused` keeps it there. Nothing else in milepost calls these operators, and a test holds that.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

_flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_flash_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def rows(t: Tensor) -> Tensor:
    """``t`` (B H L D) itself where each row is contiguous and rows do not overlap, else a copy that is so."""
    if t.stride(-1) == 1 and t.stride(-2) >= t.shape[-1]:
        return t
    return t.clone(memory_format=torch.contiguous_format)


def flash(
    q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None = None, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """Output (B H I D) and log-sum-exp (B H I) of q (B H I D), k and v (B H J D), all three of one dtype and width.

    ``mask`` (B|1 H|1 I J) is added to the logits: contiguous along the keys, other strides as they like.
    """
    out, lse = _flash(rows(q), rows(k), rows(v), 0.0, causal, attn_mask=_along_keys(mask), scale=scale)
    return out, lse


def flash_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
    *, scale: float, mask: Tensor | None = None, causal: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients to q, k and v of `flash`, from its output and log-sum-exp."""
    given = (rows(t) for t in (grad, q, k, v, out))
    parts = _flash_backward(*given, lse.contiguous(), 0.0, causal, attn_mask=_along_keys(mask), scale=scale)
    return parts[0], parts[1], parts[2]


def fused(q: Tensor, k: Tensor, v: Tensor, *, scale: float, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Torch's own attention of q (B H I D) to k and v (B G J D*), by its fast path whatever the strides."""
    is_causal = grouped = False  # set in the open: a symbolic flag would stop a compiler
    if causal and q.shape[2] > 1:
        is_causal = True
    if q.shape[1] != k.shape[1]:
        grouped = True
    q, k, v = rows(q), rows(k), rows(v)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=_along_keys(mask), is_causal=is_causal, scale=scale, enable_gqa=grouped
    )


def merged(out: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor) -> tuple[Tensor, Tensor]:
    """The output and log-sum-exp over the keys of two calls of `flash` for the same queries."""
    share = torch.sigmoid(more_lse - lse)[..., None]
    both = torch.lerp(out.to(share.dtype), more.to(share.dtype), share)
    return both.to(out.dtype), torch.logaddexp(lse, more_lse)


def merge(out: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor) -> None:
    """Take the keys of a second call of `flash` for the same queries into the output and log-sum-exp of the first."""
    share = torch.sigmoid(more_lse.to(lse.dtype) - lse)[..., None]
    if out.dtype == share.dtype:
        out.lerp_(more, share)
    else:  # half precision is widened, merged, and rounded once
        out.copy_(torch.lerp(out.to(share.dtype), more.to(share.dtype), share))
    lse.copy_(torch.logaddexp(lse, more_lse))


def gradients_of(
    out: Tensor, inputs: Sequence[Tensor], wanted: Sequence[bool], grad: Tensor
) -> tuple[Tensor | None, ...]:
    """Gradients of ``out``, differentiable again, to those of its inputs that are ``wanted``; None for the others."""
    chosen = [t for t, is_wanted in zip(inputs, wanted, strict=True) if is_wanted]
    grads = iter(torch.autograd.grad(out, chosen, grad, create_graph=True))
    return tuple(next(grads) if is_wanted else None for is_wanted in wanted)


def _along_keys(mask: Tensor | None) -> Tensor | None:
    return mask if mask is None or mask.stride(-1) == 1 else mask.contiguous()
