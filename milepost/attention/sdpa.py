"""sdpa: no bias, so torch's fused kernel alone. Positions came in through embeddings, queries and keys."""

from __future__ import annotations

from torch import Tensor

from milepost.attention.blocks import blocks
from milepost.attention.kernel import fused
from milepost.attention.toeplitz import FEWEST, toeplitz
from milepost.encoding import Encoding
from milepost.layout import Layout


def obstacle(q: Tensor, k: Tensor, v: Tensor, enc: Encoding, at: Layout, to: Layout, causal: bool) -> str | None:
    """Why this backend can't do it, or None."""
    if "bias" in enc.points or enc.content_dependent:
        return "the encoding changes logits, and the fused kernel alone does not"
    found = blocks(at, to, causal)
    if isinstance(found, str):
        return found
    if q.shape[-1] == v.shape[-1] and q.device.type == "cpu":
        return None
    if q.shape[-1] != v.shape[-1] and not _plain(q, k, at, to, causal):
        return f"values of another width than keys ({v.shape[-1]} and {q.shape[-1]}) go with one plain text only"
    if q.device.type != "cpu" and not _plain(q, k, at, to, causal):
        return f"packed, padded or windowed texts have no exact mask-free call on {q.device.type}"
    return None


def sdpa(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    enc: Encoding,
    at: Layout,
    to: Layout,
    *,
    causal: bool,
    scale: float,
    first_head: int = 0,
) -> Tensor:
    """Attention of q (B H I D) to k, v (B G J Dv); see `milepost.attend`."""
    if _plain(q, k, at, to, causal):
        return fused(q, k, v, causal=causal, scale=scale)
    return toeplitz(q, k, v, enc, at, to, causal=causal, scale=scale, first_head=first_head)


def _plain(q: Tensor, k: Tensor, at: Layout, to: Layout, causal: bool) -> bool:
    """One text in each row, all of it seen: torch's own causal flag is exact."""
    found = blocks(at, to, causal)
    if (
        isinstance(found, str)
        or len(found) != 1
        or at.window is not None
        or found[0].row is not None
        or k.shape[2] < FEWEST
    ):
        return False
    queries, keys = found[0].shape
    if queries != q.shape[2] or keys != k.shape[2] or (queries == 1 and q.shape[1] != k.shape[1]):
        return False
    return not causal or queries == 1 or (found[0].ahead == 0 and queries == keys)
