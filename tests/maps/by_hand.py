"""The maps another way: distances found by walking and counting, and every score in plain Python numbers, pair by pair.

No page's formula is used here: groups are counted at their edges, rectified distances are summed step by step, chunks
are walked, and a rolling cache is played through, token by token.
"""

import functools
import math
from fractions import Fraction

import torch
from torch import Tensor

from milepost import DualChunk, Encoding, Layout, ReRoPE, RoPE, SelfExtend, Streaming, attend

EPS = torch.finfo(torch.float64).eps


def distance(enc: Encoding, m: int, n: int) -> float | None:
    """The relative place of key n for query m >= n, or None where the map hides it."""
    if isinstance(enc, RoPE):
        return m - n
    if isinstance(enc, SelfExtend):
        if m - n < enc.window:
            return m - n
        edges = [t for t in range(n + 1, m + 1) if t % enc.group == 0]  # groups entered on the way from n to m
        inside = [t for t in range(1, enc.window + 1) if t % enc.group == 0]
        return enc.window + len(edges) - len(inside)
    if isinstance(enc, ReRoPE):
        slow = Fraction(0) if enc.leak is None else 1 / Fraction(enc.leak)
        return float(sum(Fraction(1) if step <= enc.window else slow for step in range(1, m - n + 1)))
    if isinstance(enc, DualChunk):
        every = enc.chunk - enc.local
        mine, its = (
            max(edge for edge in range(0, t + 1, every) if edge <= t) for t in (m, n)
        )  # where the chunks of m and n start
        if mine == its:
            return m - n
        if mine - its == every:  # neighbouring chunks: true distances, until the query is `local` past the edge
            return mine + min(m - mine, enc.local) - n
        return every + min(every - 1, enc.local) - (n - its)  # as from the last query of a chunk to the chunk before
    assert isinstance(enc, Streaming)
    held = rolling(enc.sinks, enc.window, m)
    return held.index(m) - held.index(n) if n in held else None


@functools.cache
def rolling(sinks: int, window: int, m: int) -> tuple[int, ...]:
    """What a rolling cache holds when token m has come: it makes room after every token."""
    held: list[int] = []
    for token in range(m):
        held.append(token)
        if len(held) > sinks + window:
            del held[sinks : len(held) - window]
    return (*held, m)


def score(rope: RoPE, q: list[float], k: list[float], apart: float) -> float:
    """q turned by ``apart`` more than k, times k: one pair of channels after another."""
    D = len(q)
    size = D if rope.rotary is None or rope.partial == "proportional" else rope.rotary
    live = (D if rope.rotary is None else rope.rotary) // 2
    total = 0.0
    for pair in range(size // 2):
        a, b = (pair, pair + size // 2) if rope.pairing == "half" else (2 * pair, 2 * pair + 1)
        w = (
            rope.spectrum.frequencies[pair]
            if rope.scaling is not None
            else rope.base ** (-2 * pair / size)
            if pair < live
            else 0.0
        )
        c, s = math.cos(apart * w), math.sin(apart * w)
        total += (q[a] * c - q[b] * s) * k[a] + (q[a] * s + q[b] * c) * k[b]
    return rope.spectrum.temperature * total + sum(q[c] * k[c] for c in range(size, D))


def logits(enc: Encoding, q: Tensor, k: Tensor, at: Layout, to: Layout) -> Tensor:
    """All logits, by loops: who is seen is decided by index, segment and window, and then by the map."""
    B, H, queries, D = q.shape
    group = H // k.shape[1]
    rope = enc if isinstance(enc, RoPE) else enc.rope
    out = torch.full((B, H, queries, k.shape[2]), -math.inf, dtype=torch.float64)
    for b in range(B):
        rows = [t[b % len(t)].tolist() for t in (at.index, at.segment, at.pos, to.index, to.segment, to.pos)]
        for i, (index, text, m) in enumerate(zip(*rows[:3], strict=True)):
            for j, (its, other, n) in enumerate(zip(*rows[3:], strict=True)):
                if text != other or text < 0 or its > index or (at.window is not None and index - its >= at.window):
                    continue
                apart = distance(enc, m, n)
                if apart is None:
                    continue
                for h in range(H):
                    out[b, h, i, j] = score(rope, q[b, h, i].tolist(), k[b, h // group, j].tolist(), apart) / math.sqrt(
                        D
                    )
    return out


def room(q: Tensor, k: Tensor, farthest: float, temperature: float = 1.0) -> float:
    """What float64 permits: two angles off by eps of the place each, their cosines and sines rounded, D products
    added up.
    """
    D = q.shape[-1]
    return (
        EPS
        * (4 * (farthest + 4) + 2 * D)
        * 2
        * D
        * q.abs().max().item()
        * k.abs().max().item()
        * temperature
        / math.sqrt(D)
    )


def agree(
    enc: Encoding, at: Layout, to: Layout | None = None, *, batch: int = 1, heads: int = 2, shared: int = 1
) -> None:
    """The reference's logits are those found by hand, for random q and k with ``shared`` query heads to a key head."""
    to = at if to is None else to
    D = enc.head_dim
    q = torch.randn(batch, heads, at.length, D, dtype=torch.float64)
    k, v = (torch.randn(batch, heads // shared, to.length, D, dtype=torch.float64) for _ in range(2))
    want = logits(enc, q, k, at, to)
    found = attend(q, k, v, enc, at=at, to=to, backend="reference", details=True).logits
    assert torch.equal(found.isinf(), want.isinf()), "the wrong keys are hidden"
    seen = ~want.isinf()
    rope = enc if isinstance(enc, RoPE) else enc.rope
    worst = (found[seen] - want[seen]).abs().max().item()
    permitted = room(q, k, at.pos.max().item() + 64, rope.spectrum.temperature)
    assert worst <= permitted, f"off by {worst:.2e}, float64 permits {permitted:.2e}"
