"""Laws of the engine: every backend gives the reference's numbers, and a cache gives the full pass's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from milepost.attention import BACKENDS, KVCache, attend
from milepost.encoding import Encoding
from milepost.layout import Layout
from milepost.testing.layer import Broken, Excused, Layer, dense, fitted, placed, same, starts, tokens_of


def layouts(n: int, start: int = 0) -> Iterator[tuple[str, Layout, Layout, int]]:
    """Where n tokens may be: a name, the queries' layout, the keys', and the rows of the batch."""
    dense = Layout.dense(n, start=start)
    yield "dense", dense, dense, 2
    yield "the last of a text", dense[n - n // 3 :], dense, 2
    yield "one query", dense[n - 1 :], dense, 2
    window = dense.windowed(max(2, n // 4))
    yield "sliding window", window, dense, 1
    scattered = dense.take(torch.randperm(n, generator=torch.Generator().manual_seed(n)))
    yield "scattered", scattered, scattered, 1
    yield "queries before the first key", dense, dense[n // 2 :], 1
    if start == 0:
        packed = Layout.packed([n // 4, n - n // 4 - 1, 1])
        yield "packed", packed, packed, 1
        mask = torch.ones(3, n, dtype=torch.bool)
        mask[0, : n // 3] = False
        mask[1, n - n // 4 :] = False
        padded = Layout.padded(mask)
        yield "padded", padded, padded, 3


def backends_agree(enc: Encoding) -> None:
    """Every backend gives the reference's output and gradients, in every layout that it takes."""
    enc, layer, n = fitted(enc)
    taken: set[str] = set()
    for start in starts(enc, n)[:2]:
        for name, queries, keys, batch in layouts(n, start):
            at, to = placed(enc, queries, start), placed(enc, keys, start)
            for causal in (True, False):
                if enc.causal_only and not causal:
                    continue
                wanted = _pass(layer, at, to, batch, causal, "reference")
                for backend in BACKENDS:
                    if backend == "flex" and (name not in ("dense", "padded") or not causal or start):
                        continue  # slow where it is not compiled
                    try:
                        got = _pass(layer, at, to, batch, causal, backend)
                    except ValueError as error:
                        if backend == "auto" or "can't do this for" not in str(error):
                            raise
                        continue
                    taken.add(backend)
                    for a, b in zip(wanted, got, strict=backend != "flex"):
                        same(a, b, start + n, f"{backend}, {name}, {'causal' if causal else 'both ways'}")
    missing = {"chunked", "auto"} - taken
    if missing:
        raise Broken(f"{', '.join(sorted(missing))} took no layout at all")


def _pass(layer: Layer, at: Layout, to: Layout, batch: int, causal: bool, backend: str) -> list[Tensor]:
    """Output and gradients (to q, k, v and all parameters) of one attention; flex has no gradients on the CPU."""
    generator = torch.Generator().manual_seed(9)
    shapes = [(batch, layer.heads, t.length, layer.head_dim) for t in (at, to, to)]
    q, k, v = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    if backend == "flex":
        with torch.no_grad():
            return [attend(q, k, v, layer.enc, at=at, to=to, causal=causal, backend=backend)]
    learn = [t.requires_grad_() for t in (q, k, v)] + list(layer.enc.parameters())
    out = attend(q, k, v, layer.enc, at=at, to=to, causal=causal, backend=backend)
    weight = torch.randn(out.shape, generator=generator, dtype=torch.float64)
    grads = torch.autograd.grad((out * weight).sum(), learn, allow_unused=True)
    return [out.detach(), *(torch.zeros_like(x) if g is None else g for x, g in zip(learn, grads, strict=True))]


STORAGES: dict[str, Callable[[Tensor], Tensor]] = {
    "strided": lambda t: torch.stack([t + 1, t], dim=-1)[..., 1],
    "expanded": lambda t: t[:, :, :1].expand_as(t),
    "transposed": lambda t: t.transpose(-1, -2).contiguous().transpose(-1, -2),
    "sliced": lambda t: torch.cat([t + 1, t, t + 1], dim=-1)[..., t.shape[-1] : 2 * t.shape[-1]],
    "offset": lambda t: torch.cat([t[:, :, :1] + 1, t], dim=2)[:, :, 1:],
    "empty": lambda t: t[:0],
}
"""Ways in which numbers may lie in memory."""


@torch.no_grad()
def any_storage(enc: Encoding) -> None:
    """However q, k and v lie in memory, every backend gives the reference's numbers."""
    enc, layer, n = fitted(enc)
    at = dense(enc, n)
    generator = torch.Generator().manual_seed(11)
    shape = (2, layer.heads, n, layer.head_dim)
    q, k, v = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3))
    for name, store in STORAGES.items():
        one, two, three = (store(t) for t in (q, k, v))
        wanted = attend(one.contiguous(), two.contiguous(), three.contiguous(), enc, at=at, backend="reference")
        for backend in ("auto", "sdpa", "toeplitz", "relative", "by_row", "chunked"):
            try:
                got = attend(one, two, three, enc, at=at, backend=backend)
            except ValueError as error:
                if backend in ("auto", "chunked") or "can't do this for" not in str(error):
                    raise
                continue
            same(got, wanted, n, f"{backend}, {name} q, k and v")


def cache_agrees(enc: Encoding) -> None:
    """A text read through a KVCache, in steps of any size, gives what one pass over it gives."""
    q, k, v, at = _raw(enc, dense(enc, tokens_of(enc)))
    cache, parts, t, n = KVCache(enc, capacity=2), [], 0, at.length
    whole = attend(q, k, v, cache.rule, at=at)
    for step in (1, n // 2, 1, n - n // 2 - 2):
        here = placed(enc, cache.next(step))
        keys, values, to = cache.append(k[:, :, t : t + step].detach(), v[:, :, t : t + step].detach(), here)
        parts.append(attend(q[:, :, t : t + step], keys, values, enc, at=here, to=to))
        t += step
    same(torch.cat(parts, dim=2), whole, n, "through a cache")


@torch.no_grad()
def decode_agrees(enc: Encoding) -> None:
    """Decoding one token after another, past the start of every shortcut, gives what one pass over the text gives."""
    if enc.axes > 1 and not enc.flat:
        raise Excused("a decode numbers its tokens along one axis")
    q, k, v, at = _raw(enc, Layout.dense(tokens_of(enc)))
    for first in (1, 10):
        cache = KVCache(enc, capacity=2)
        whole = attend(q, k, v, cache.rule, at=at)
        ends = [min(first, at.length), *range(first + 1, at.length + 1)]
        for a, b in itertools.pairwise([0, *ends]):
            row = cache.decode(q[:, :, a:b], k[:, :, a:b], v[:, :, a:b])
            same(row, whole[:, :, a:b], at.length, f"tokens {a} to {b - 1}, decoded after {first}")


def _raw(enc: Encoding, at: Layout) -> tuple[Tensor, Tensor, Tensor, Layout]:
    """q, k and v of a text at ``at``, as they are."""
    if enc.length_dependent and "embed" in enc.points:
        raise Excused("the embedding itself depends on the length")
    n, layer = at.length, Layer(enc)
    x = layer.text(n) if enc.length_dependent else enc.embed(layer.text(n), at.pos)
    q, k, v = ((x @ w).unflatten(-1, (layer.heads, layer.head_dim)).transpose(1, 2) for w in layer.weights)
    return q, k, v, at
