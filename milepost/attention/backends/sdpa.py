"""sdpa: no bias, so torch's fused kernel alone. Positions came in through embeddings, queries and keys."""

from __future__ import annotations

from torch import Tensor

from milepost.attention.backends import toeplitz
from milepost.attention.call import Call
from milepost.attention.kernel import fused


def obstacle(call: Call) -> str | None:
    """Why this backend can't do it, or None."""
    width, value_width, device = call.q.shape[-1], call.v.shape[-1], call.q.device.type
    if "bias" in call.enc.points or call.enc.content_dependent:
        return "the encoding changes logits, and the fused kernel alone does not"
    blocks = call.blocks
    if isinstance(blocks, str):
        return blocks
    if (width == value_width and device == "cpu") or _plain(call):
        return None
    if width != value_width:
        return f"values of another width than keys ({value_width} and {width}) go with one plain text only"
    return f"packed, padded or windowed texts have no exact mask-free call on {device}"


def run(call: Call) -> Tensor:
    """The output, B H I Dv."""
    if _plain(call):
        return fused(call.q, call.k, call.v, causal=call.causal, scale=call.scale)
    return toeplitz.run(call)


def _plain(call: Call) -> bool:
    """One text in each row, all of it seen: torch's own causal flag is exact."""
    blocks, q, k = call.blocks, call.q, call.k
    if isinstance(blocks, str) or len(blocks) != 1 or blocks[0].row is not None or call.at.window is not None:
        return False
    queries, keys = blocks[0].shape
    if queries != q.shape[2] or keys != k.shape[2] or keys < toeplitz.FEWEST or (queries == 1 and call.group > 1):
        return False
    return not call.causal or queries == 1 or (blocks[0].ahead == 0 and queries == keys)
