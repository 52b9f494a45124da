"""The laws' small world: one layer of attention around an encoding, the texts and places they use, and what float64
permits.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from milepost.attention import attend
from milepost.encoding import Encoding
from milepost.layout import Layout

TEXT = 24
"""Tokens in the text that most laws use."""
STARTS = (0, 250, 131071 - TEXT // 2, 1048576 - TEXT)
"""Where it starts: the beginning, around 255 to 257, around 131071, and up to 1048575."""


class Broken(AssertionError):  # noqa: N818
    """A law does not hold: the message has the numbers."""


class Excused(Exception):  # noqa: N818
    """A law does not apply: the message has the reason."""


def randomised_copy(enc: Encoding, seed: int = 0) -> Encoding:
    """A float64 copy whose parameters are neither zero nor at their start: moved by a tenth where they are set, drawn
    where zero.
    """
    enc = copy.deepcopy(enc).double()
    generator = torch.Generator().manual_seed(seed)
    for p in enc.parameters():
        noise = torch.randn(p.shape, generator=generator, dtype=p.dtype)
        p.data = torch.where(p == 0, 0.3 * noise, p * (1 + 0.1 * noise)).detach()
    return enc


class Layer:
    """Random projections around an encoding: text in, attention output out. ``size`` is the text's length for
    `enc.at`.
    """

    def __init__(self, enc: Encoding, *, dtype: torch.dtype = torch.float64, seed: int = 1):
        generator = torch.Generator().manual_seed(seed)
        self.enc, self.dtype = enc, dtype
        self.heads, self.head_dim = enc.heads or 2, enc.head_dim or 8
        self.width = (enc.width if enc.width and not enc.added_width else None) or 16
        shape = (3, self.width + enc.added_width, self.heads * self.head_dim)
        self.weights = (torch.randn(shape, generator=generator, dtype=torch.float64) / self.width**0.5).to(dtype)

    def text(self, tokens: int, seed: int = 2) -> Tensor:
        """Random embeddings: 1 L C."""
        return torch.randn(
            1, tokens, self.width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        ).to(self.dtype)

    def project(self, x: Tensor, at: Layout) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v (B H L D) of a text, positions put in."""
        x = self.enc.embed(x, at.pos)
        q, k, v = ((x @ w).unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2) for w in self.weights)
        return self.enc.query(q, at.pos), self.enc.key(k, at.pos), self.enc.value(v, at.pos)

    def features(self, x: Tensor, at: Layout) -> Tensor | None:
        """The encoding's features (B L N) of a text, where it asks for any."""
        return self.enc.features(self.enc.embed(x, at.pos), at.pos) if self.enc.feature_count else None

    def __call__(self, x: Tensor, at: Layout, *, causal: bool = True) -> Tensor:
        f = self.features(x, at)
        return attend(
            *self.project(x, at), self.enc, at=at, turned=True, causal=causal, backend="reference", features=f
        )


def draw_features(
    enc: Encoding, batch: int, at: Layout, *, dtype: torch.dtype = torch.float64, seed: int = 13
) -> tuple[Tensor | None, Tensor | None]:
    """Hidden states (B L C) of tokens at ``at``, drawn, and what ``enc`` makes of them (B L N); None where it asks for
    no features.
    """
    if not enc.feature_count:
        return None, None
    shape = batch, at.length, (enc.width or 16)
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)
    return x, enc.features(x.requires_grad_(), at.pos)


def both(f: Tensor | None, g: Tensor | None) -> Tensor | tuple[Tensor, Tensor] | None:
    """Features of queries and of keys as `attend` takes them, where there are any."""
    return f if f is None or g is None else (f, g)


def starts(enc: Encoding, tokens: int = TEXT) -> list[int]:
    """The starts that leave room for a text before the encoding's end."""
    return [s for s in STARTS if s == 0 or (enc.sides is None and (enc.end is None or s + tokens <= enc.end))]


def tokens_of(enc: Encoding) -> int:
    """The length of the laws' text: 24, or the whole of a shorter table."""
    return min(TEXT, enc.end or TEXT, math.prod(enc.sides or (TEXT,)))


def places(enc: Encoding, index: Tensor, start: int = 0) -> Tensor:
    """What ``enc`` is told of tokens at ``index`` (B L): the index, or places on a small grid that begins at ``start``
    on every axis (axes B L).
    """
    if enc.axes == 1:
        return index
    short = max(2, int(TEXT ** (1 / enc.axes)))
    left, axes = index - start, []
    for side in reversed((enc.sides or (short,) * enc.axes)[1:]):
        axes.append(left % side)
        left = left.div(side, rounding_mode="floor")
    return start + torch.stack([left, *reversed(axes)])


def placed(enc: Encoding, at: Layout, start: int = 0) -> Layout:
    """A layout that tells ``enc`` positions of as many axes as it has."""
    return at if enc.axes == 1 else at.with_positions(places(enc, at.index, start))


def dense(enc: Encoding, tokens: int, start: int = 0) -> Layout:
    """One text, the first token at ``start`` (on every axis, where there are several)."""
    return placed(enc, Layout.dense(tokens, start=start), start)


def budget(reach: float) -> float:
    """What float64 permits at positions up to ``reach``: an angle p w is off by eps p, 64 of such add up."""
    return 64 * 2.0**-52 * (1 + reach)


def same(a: Tensor, b: Tensor, reach: float, what: str) -> None:
    """Raise `Broken` unless ``a`` and ``b`` are equal within the budget."""
    if a.shape != b.shape:
        raise Broken(f"{what}: shapes {tuple(a.shape)} and {tuple(b.shape)}")
    worst = (a - b).abs().max().item() if a.numel() else 0.0
    if not worst <= budget(reach):
        raise Broken(f"{what}: differs by {worst:.2e}, float64 permits {budget(reach):.1e}")


def plain_at(enc: Encoding, tokens: int) -> Encoding:
    """The plain encoding for a text of this length."""
    return enc.at(tokens) if enc.length_dependent else enc


def fitted(enc: Encoding, most: int = TEXT) -> tuple[Encoding, Layer, int]:
    """The plain encoding for the laws' text, a layer around it, and the text's length: at most ``most`` tokens."""
    n = min(most, tokens_of(enc))
    plain = plain_at(enc, n)
    return plain, Layer(plain), n


def only_fixed_length(enc: Encoding) -> None:
    if enc.length_dependent:
        raise Excused("the encoding depends on the length; a cache decides by its policy")


def outputs(enc: Encoding) -> list[Tensor]:
    enc, layer, n = fitted(enc)
    return [layer(layer.text(n), dense(enc, n, start)) for start in starts(enc, n)]


def codes(enc: Encoding) -> list[Tensor]:
    """What the hooks of points 1 and 2 do to ones, without any matrix product that autocast might narrow."""
    n = tokens_of(enc)
    plain, coded = plain_at(enc, n), []
    for start in starts(enc, n):
        pos = dense(plain, n, start).pos
        ones = torch.ones(1, plain.heads or 2, n, plain.head_dim or 8, dtype=torch.float64)
        coded += [
            plain.embed(torch.ones(1, n, plain.width or 16, dtype=torch.float64), pos),
            plain.query(ones, pos),
            plain.key(ones, pos),
            plain.value(ones, pos),
            plain.restore(ones, pos),
        ]
    return coded


def bit_equal(a: Encoding, b: Encoding, when: str) -> None:
    same_bits(outputs(a), outputs(b), when)


def same_bits(a: Sequence[Tensor], b: Sequence[Tensor], when: str) -> None:
    for x, y in zip(a, b, strict=True):
        if not torch.equal(x, y):
            raise Broken(f"{when} outputs differ by {(x - y).abs().max().item():.2e}")
