"""shards: one text over several processes, each with its own tokens. Positions are data, so a shard is a slice of them.

    mine = places(N, rank, world, "zigzag")             # which tokens this process holds
    at = Layout.dense(N).take(mine)
    y = attend_shards(q, k, v, enc, at=at)              # q, k, v: this process's tokens, as they are; y: their outputs

Keys and values are gathered, put in the order of the text, and attended to by the local queries; gradients are summed
back. Zig-zag gives each process a chunk from the front and its mirror from the back, so that causal work is even.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from milepost.attention.attend import attend
from milepost.attention.call import Call
from milepost.attention.turning import Turned, turn, turns_by_length
from milepost.checks import check_choice
from milepost.encoding import Encoding
from milepost.layout import Layout


def places(length: int, rank: int, world: int, how: Literal["contiguous", "zigzag"] = "contiguous") -> Tensor:
    """The places of the tokens that process ``rank`` of ``world`` holds."""
    pieces = world if how == "contiguous" else 2 * world
    check_choice("how", how, ("contiguous", "zigzag"))
    if not 0 <= rank < world or length % pieces:
        raise ValueError(
            f"{length} tokens can't be cut into {pieces} equal pieces for rank {rank} of {world}; pad the text to a "
            f"multiple of {pieces}"
        )
    chunks = torch.arange(length).reshape(pieces, -1)
    return chunks[rank] if how == "contiguous" else torch.cat([chunks[rank], chunks[pieces - 1 - rank]])


def attend_shards(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    enc: Encoding,
    *,
    at: Layout,
    group: Any = None,
    turned: Turned = False,
    causal: bool = True,
    features: Tensor | None = None,
    **how: Any,
) -> Tensor:
    """Attention of this process's queries to everybody's keys: q (B H n D), k and v (B G n D*) of n tokens at ``at``.

    Every process of ``group`` must call it, with the same number of tokens. ``features`` (B n N) are those of this
    process's tokens, where ``enc`` asks for any. ``how`` goes to `attend`.
    """
    if not turns_by_length(enc):
        mine = turn(Call(q, k, v, enc, at, at, causal, 1.0), turned)  # before the keys travel
        q, k, v, turned = mine.q, mine.k, mine.v, True
    world = dist.get_world_size(group)
    counts = [torch.zeros(1, dtype=torch.long) for _ in range(world)]
    dist.all_gather(counts, torch.tensor([k.shape[2]]), group=group)
    if len({int(c) for c in counts}) > 1:
        raise ValueError(f"every process must hold the same number of tokens, got {[int(c) for c in counts]}")
    keys, values = _Gather.apply(k, group), _Gather.apply(v, group)  # type: ignore[no-untyped-call]
    everybodys = None
    if features is not None:
        everybodys = _Gather.apply(features[:, None], group)[:, 0]  # type: ignore[no-untyped-call]
    index, segment, pos = (_gathered(t, group) for t in (at.index, at.segment, at.pos))
    order = (segment.clamp(min=0) * (int(index.max()) + 1) + index).argsort(dim=-1, stable=True)
    if order.shape[0] == 1 or bool((order == order[:1]).all()):
        whole = order[0]
        to = Layout(index, segment, pos if at.remapped else index).take(whole).discovered()
        keys, values = keys[:, :, whole], values[:, :, whole]
        everybodys = None if everybodys is None else everybodys[:, whole]
    else:  # rows of different texts stay as they came
        to = Layout(index, segment, pos if at.remapped else index)
    both = None if features is None or everybodys is None else (features, everybodys)
    how |= {"turned": turned, "causal": causal, "features": both}
    out: Tensor = attend(q, keys, values, enc, at=at.discovered(), to=to, **how)
    return out


def _gathered(t: Tensor, group: Any) -> Tensor:
    parts = [torch.empty_like(t) for _ in range(dist.get_world_size(group))]
    dist.all_gather(parts, t.contiguous(), group=group)
    return torch.cat(parts, dim=-1)


class _Gather(torch.autograd.Function):
    """Everybody's tokens, side by side; the gradient is the sum of what everybody has for mine."""

    @staticmethod
    def forward(ctx: Any, mine: Tensor, group: Any) -> Tensor:
        ctx.group, ctx.count = group, mine.shape[2]
        parts = [
            torch.empty_like(mine, memory_format=torch.contiguous_format) for _ in range(dist.get_world_size(group))
        ]
        dist.all_gather(parts, mine.contiguous(), group=group)
        return torch.cat(parts, dim=2)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        total = grad.contiguous()
        dist.all_reduce(total, group=ctx.group)
        start = dist.get_rank(ctx.group) * ctx.count
        return total[:, :, start : start + ctx.count], None
