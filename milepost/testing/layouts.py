"""Laws of layout: where a token stands in memory, and beside whom, changes nothing."""

from __future__ import annotations

import itertools

import torch

from milepost.attention import attend
from milepost.encoding import Encoding
from milepost.layout import Layout
from milepost.testing.layer import (
    Broken,
    Layer,
    both,
    dense,
    fitted,
    only_fixed_length,
    placed,
    same,
    starts,
    tokens_of,
)


def cached(enc: Encoding) -> None:
    """Decoding token by token over cached keys equals one pass over the text."""
    only_fixed_length(enc)
    layer, n = Layer(enc), tokens_of(enc)
    for start in starts(enc, n):
        at, x = dense(enc, n, start), layer.text(n)
        whole = layer(x, at)
        parts = [layer.project(x[:, t : t + 1], at[t : t + 1]) for t in range(n)]
        numbers = [layer.features(x[:, t : t + 1], at[t : t + 1]) for t in range(n)]
        for t in range(n):
            k, v = (torch.cat([p[which] for p in parts[: t + 1]], dim=2) for which in (1, 2))
            so_far = torch.cat([f for f in numbers[: t + 1] if f is not None], dim=1) if enc.feature_count else None
            here, fg = at[t : t + 1], both(numbers[t], so_far)
            row = attend(parts[t][0], k, v, enc, at=here, to=at[: t + 1], turned=True, backend="reference", features=fg)
            same(row, whole[:, :, t : t + 1], start + n, f"token {start + t}")


def chunked_prefill(enc: Encoding) -> None:
    """A text read in chunks over cached keys equals one pass over it."""
    only_fixed_length(enc)
    layer, n = Layer(enc), tokens_of(enc)
    for start in starts(enc, n):
        at, x = dense(enc, n, start), layer.text(n)
        whole, edges = layer(x, at), [0, n // 3, n // 3 + 1, n]
        _, k, v = layer.project(x, at)
        for a, b in itertools.pairwise(edges):
            q, _, _ = layer.project(x[:, a:b], at[a:b])
            fg = both(layer.features(x[:, a:b], at[a:b]), layer.features(x[:, :b], at[:b]))
            how = {"at": at[a:b], "to": at[:b], "turned": True, "backend": "reference", "features": fg}
            rows = attend(q, k[:, :, :b], v[:, :, :b], enc, **how)  # type: ignore[call-overload]
            same(rows, whole[:, :, a:b], start + n, f"tokens {start + a} to {start + b - 1}")


def packed(enc: Encoding) -> None:
    """Texts packed into one row give what each gives alone."""
    enc, layer, n = fitted(enc)
    lengths = [n // 3, n - n // 3]
    texts = [layer.text(m, seed=m) for m in lengths]
    together = layer(torch.cat(texts, dim=1), placed(enc, Layout.packed(lengths)))
    offset = 0
    for text, m in zip(texts, lengths, strict=True):
        same(together[:, :, offset : offset + m], layer(text, dense(enc, m)), n, f"the text of {m} tokens")
        offset += m


def padded(enc: Encoding) -> None:
    """Padding on the left or on the right changes nothing for the text, and gives zeros for itself."""
    enc, layer, n = fitted(enc)
    pad, short = 3, n - 3
    x, long = layer.text(short), layer.text(n, seed=5)
    alone, junk = layer(x, dense(enc, short)), layer.text(pad, seed=7) * 10
    for side in ("left", "right"):
        row = torch.cat([junk, x] if side == "left" else [x, junk], dim=1)
        real = torch.arange(n) >= pad if side == "left" else torch.arange(n) < short
        mask = torch.stack([real, torch.ones(n, dtype=torch.bool)])
        out = layer(torch.cat([row, long]), placed(enc, Layout.padded(mask)))
        same(out[:1, :, real], alone, n, f"padded on the {side}")
        same(out[1:], layer(long, dense(enc, n)), n, "the unpadded row beside it")
        if out[:1, :, ~real].any():
            raise Broken(
                f"padding on the {side} attends to something: {out[:1, :, ~real].abs().max().item():.2e} instead of "
                "zeros"
            )


def sharded(enc: Encoding) -> None:
    """Tokens given in any order, with their layout, give the same outputs in that order."""
    enc, layer, n = fitted(enc)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(3))
    for start in starts(enc, n):
        at, x = dense(enc, n, start), layer.text(n)
        whole = layer(x, at)
        same(layer(x[:, order], at.take(order)), whole[:, :, order], start + n, "all tokens in another order")
        mine = order[: n // 2]
        q, _, _ = layer.project(x[:, mine], at.take(mine))
        _, k, v = layer.project(x[:, order], at.take(order))
        here, there = at.take(mine), at.take(order)
        fg = both(layer.features(x[:, mine], here), layer.features(x[:, order], there))
        half = attend(q, k, v, enc, at=here, to=there, turned=True, backend="reference", features=fg)
        same(half, whole[:, :, mine], start + n, "a shard of the queries")


def causal(enc: Encoding) -> None:
    """A later token changes nothing before it; an encoding for the past alone refuses to look ahead."""
    enc, layer, n = fitted(enc)
    at, x = dense(enc, n), layer.text(n)
    changed = x.clone()
    changed[:, -1] += 1
    same(layer(changed, at)[:, :, :-1], layer(x, at)[:, :, :-1], n, "after a change of the last token")
    if not enc.causal_only:
        if not layer(x, at, causal=False).isfinite().all():
            raise Broken("attention both ways is not finite")
        return
    try:
        layer(x, at, causal=False)
    except ValueError:
        return
    raise Broken("declared causal_only, yet attention both ways raised no error")
