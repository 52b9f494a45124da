"""Laws of the engine: every backend gives the reference's numbers, and a cache gives the full pass's."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from milepost.attention import BACKENDS, KVCache, attend
from milepost.encoding import Encoding
from milepost.layout import Layout
from milepost.testing.layer import (
    Broken,
    Excused,
    Layer,
    both,
    dense,
    draw_features,
    fitted,
    placed,
    same,
    starts,
    tokens_of,
)


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
    generator, enc = torch.Generator().manual_seed(9), layer.enc
    shapes = [(batch, layer.heads, t.length, layer.head_dim) for t in (at, to, to)]
    q, k, v = (torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)
    if backend == "flex":
        with torch.no_grad():
            numbers = both(draw_features(enc, batch, at)[1], draw_features(enc, batch, to, seed=14)[1])
            return [attend(q, k, v, enc, at=at, to=to, causal=causal, backend=backend, features=numbers)]
    (x, f), (y, g) = draw_features(enc, batch, at), draw_features(enc, batch, to, seed=14)
    learn = [t.requires_grad_() for t in (q, k, v)] + [p for p in enc.parameters() if p.requires_grad]
    learn += [t for t in (x, y) if t is not None]
    out = attend(q, k, v, enc, at=at, to=to, causal=causal, backend=backend, features=both(f, g))
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
    f = draw_features(enc, 2, at)[1]
    for name, store in STORAGES.items():
        one, two, three = (store(t) for t in (q, k, v))
        stored = None if f is None else store(f[:, None])[:, 0]
        tidy, numbers = [t.contiguous() for t in (one, two, three)], None if stored is None else stored.contiguous()
        wanted = attend(tidy[0], tidy[1], tidy[2], enc, at=at, backend="reference", features=numbers)
        for backend in ("auto", "sdpa", "toeplitz", "keyed", "relative", "by_row", "counted", "chunked"):
            try:
                got = attend(one, two, three, enc, at=at, backend=backend, features=stored)
            except ValueError as error:
                if backend in ("auto", "chunked") or "can't do this for" not in str(error):
                    raise
                continue
            same(got, wanted, n, f"{backend}, {name} q, k and v")


def cache_agrees(enc: Encoding) -> None:
    """A text read through a KVCache, in steps of any size, gives what one pass over it gives."""
    text = _raw(enc, dense(enc, tokens_of(enc)))
    cache, parts, t, n = KVCache(enc, capacity=2), [], 0, text.at.length
    whole = text.attended(cache.rule)
    for step in (1, n // 2, 1, n - n // 2 - 2):
        here, some = placed(enc, cache.next(step)), text.cut(t, t + step)
        keys, values, to = cache.append(some.k.detach(), some.v.detach(), here, features=some.kept())
        parts.append(attend(some.q, keys, values, enc, at=here, to=to, features=both(some.f, cache.features)))
        t += step
    same(torch.cat(parts, dim=2), whole, n, "through a cache")


@torch.no_grad()
def decode_agrees(enc: Encoding) -> None:
    """Decoding one token after another, past the start of every shortcut, gives what one pass over the text gives."""
    _one_axis(enc)
    text = _raw(enc, Layout.dense(tokens_of(enc)))
    for first in (1, 10):
        cache = KVCache(enc, capacity=2)
        whole = text.attended(cache.rule)
        ends = [min(first, text.at.length), *range(first + 1, text.at.length + 1)]
        for a, b in itertools.pairwise([0, *ends]):
            row = text.cut(a, b).decoded(cache)
            same(row, whole[:, :, a:b], text.at.length, f"tokens {a} to {b - 1}, decoded after {first}")


@torch.no_grad()
def beams_agree(enc: Encoding) -> None:
    """Rows of a cache that are put in another order go on as the texts that they are."""
    _one_axis(enc)
    n, at = tokens_of(enc), Layout.dense(tokens_of(enc))
    text, half = _raw(enc, at, rows=3), tokens_of(enc) // 2
    cache, beams = KVCache(enc, capacity=2), torch.tensor([2, 0, 0])
    text.cut(0, half).decoded(cache)
    cache.reorder(beams)
    mixed = text.rows(beams)
    whole = mixed.attended(cache.rule)
    for t in range(half, n):  # the first half is that of the chosen rows: each row is one text
        row = mixed.cut(t, t + 1).decoded(cache)
        same(row, whole[:, :, t : t + 1], n, f"token {t} after the rows were put in another order")


@torch.no_grad()
def eviction_agrees(enc: Encoding) -> None:
    """After an eviction, a cache gives what one pass over the tokens that are left gives; or it refuses."""
    _one_axis(enc)
    n = tokens_of(enc)
    if n < 8:
        raise Excused("its texts are too short to evict anything")
    text, cache = _raw(enc, Layout.dense(n)), KVCache(enc, capacity=2)
    text.cut(0, n - 3).decoded(cache)
    try:
        dropped = cache.evict(sinks=2, window=n // 3)
    except ValueError as refusal:
        raise Excused(str(refusal)) from None
    left = torch.cat([torch.arange(2), torch.arange(2 + dropped, n)])
    short = _raw(enc, Layout.dense(len(left)), tokens=left)
    whole = short.attended(cache.rule)
    for t in range(len(left) - 3, len(left)):
        row = short.cut(t, t + 1).decoded(cache)
        same(row, whole[:, :, t : t + 1], n, f"token {t} after {dropped} tokens were evicted")


def _one_axis(enc: Encoding) -> None:
    if enc.axes > 1 and not enc.flat:
        raise Excused("a decode numbers its tokens along one axis")


@dataclass(frozen=True)
class _Text:
    """q, k and v (B H L D) of a text as they are, its features (B L N) where there are any, and where it is."""

    q: Tensor
    k: Tensor
    v: Tensor
    f: Tensor | None
    at: Layout

    def attended(self, enc: Encoding) -> Tensor:
        """One pass over it."""
        return attend(self.q, self.k, self.v, enc, at=self.at, features=self.f)

    def decoded(self, cache: KVCache) -> Tensor:
        """The same through a cache."""
        return cache.decode(self.q, self.k, self.v, features=self.kept())

    def kept(self) -> Tensor | None:
        """Its features as a cache takes them."""
        return None if self.f is None else self.f.detach()

    def cut(self, a: int, b: int) -> _Text:
        """Tokens ``a`` to ``b - 1``."""
        q, k, v = (t[:, :, a:b] for t in (self.q, self.k, self.v))
        return _Text(q, k, v, None if self.f is None else self.f[:, a:b], self.at[a:b])

    def rows(self, which: Tensor) -> _Text:
        """Chosen rows of the batch."""
        q, k, v = (t[which] for t in (self.q, self.k, self.v))
        return _Text(q, k, v, None if self.f is None else self.f[which], self.at)


def _raw(enc: Encoding, at: Layout, rows: int = 1, tokens: Tensor | None = None) -> _Text:
    """The laws' text at ``at``, or some of its ``tokens``; more rows are other texts."""
    if enc.length_dependent and "embed" in enc.points:
        raise Excused("the embedding itself depends on the length")
    layer = Layer(enc)
    x = torch.cat([layer.text(tokens_of(enc), seed=2 + row) for row in range(rows)])
    x = x[:, : at.length] if tokens is None else x[:, tokens]
    x = x if enc.length_dependent else enc.embed(x, at.pos)
    q, k, v = ((x @ w).unflatten(-1, (layer.heads, layer.head_dim)).transpose(1, 2) for w in layer.weights)
    return _Text(q, k, v, enc.features(x, at.pos) if enc.feature_count else None, at)
