"""Decoder: a small pre-norm Transformer that takes any encoding, or one for each layer, and any backend.

    x = embed(tokens),   x += attention(norm(x)),   x += mlp(norm(x)) for each layer,   logits = norm(x) @ embedding.T

Each layer has an encoding of its own, made from one spec; the first of them also embeds. Weights outside of the encoding are
drawn for each name apart, so that models with different encodings start from the very same numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost.attention import KVCache, attend
from milepost.encoding import Encoding
from milepost.layout import Layout
from milepost.spec import build


@dataclass(frozen=True)
class Shape:
    """The size of a model: ``length`` is the trained length, which tables are made for."""

    vocabulary: int = 256
    layers: int = 3
    width: int = 96
    heads: int = 4
    length: int = 64

    def __post_init__(self) -> None:
        if min(asdict(self).values()) < 1 or self.width % (2 * self.heads):
            raise ValueError(f"a model's sizes are at least 1, and its width a multiple of twice its heads, got {self}")

    @property
    def head_dim(self) -> int:
        """Channels of a head."""
        return self.width // self.heads

    def build(self, spec: str) -> Encoding:
        """The encoding of a spec, for a model of this size."""
        return build(spec, heads=self.heads, head_dim=self.head_dim, width=self.width, length=self.length)


class Block(nn.Module):
    """One layer: attention, then a feed-forward part four times as wide."""

    def __init__(self, shape: Shape, enc: Encoding):
        super().__init__()
        self.heads, self.enc = shape.heads, enc
        self.norm_1, self.norm_2 = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)
        self.up = nn.Linear(shape.width, 4 * shape.width)
        self.down = nn.Linear(4 * shape.width, shape.width)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v as they are, each B H L D."""
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return q, k, v

    def forward(self, x: Tensor, at: Layout, cache: KVCache | None = None, backend: str = "auto") -> Tensor:
        """x (B L C) after this layer."""
        q, k, v = self.project(x)
        if cache is not None:
            y = cache.decode(q, k, v)
        elif self.enc.length_dependent:
            y = attend(q, k, v, self.enc, at=at, backend=backend)
        else:
            y = attend(self.enc.query(q, at.pos), self.enc.key(k, at.pos), v, self.enc, at=at, backend=backend)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        out: Tensor = x + self.down(F.gelu(self.up(self.norm_2(x))))
        return out


class Decoder(nn.Module):
    """A decoder of a shape. ``encoding`` is a spec for all layers, or a list with one for each."""

    def __init__(self, shape: Shape, encoding: str | Sequence[str]):
        super().__init__()
        self.shape = shape
        self.specs = [encoding] * shape.layers if isinstance(encoding, str) else list(encoding)
        if len(self.specs) != shape.layers:
            raise ValueError(f"a model of {shape.layers} layers wants one encoding, or {shape.layers}; got {len(self.specs)}")
        encodings = [shape.build(spec) for spec in self.specs]
        encodings[1:] = [enc if set(enc.points) - {"embed"} else Encoding() for enc in encodings[1:]]  # embedding is the first layer's
        added = encodings[0].added_width
        if added >= shape.width:
            raise ValueError(f"{encodings[0]!r} takes {added} of the {shape.width} channels of the embedding, and leaves none")
        self.tokens = nn.Embedding(shape.vocabulary, shape.width - added)
        self.blocks = nn.ModuleList([Block(shape, enc) for enc in encodings])
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    @property
    def encodings(self) -> list[Encoding]:
        """The encoding of each layer."""
        return [block.enc for block in self.blocks]  # type: ignore[misc]

    @property
    def length_dependent(self) -> bool:
        """Whether what the model says of a token depends on how long the text goes on."""
        return any(enc.length_dependent for enc in self.encodings)

    def start(self, seed: int) -> Decoder:
        """Initial weights: the same for every encoding, but for those of the encoding itself."""
        for name, parameter in self.named_parameters():
            if ".enc." in name:
                continue
            generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
            with torch.no_grad():
                if name.endswith("bias"):
                    parameter.zero_()
                elif "norm" in name:
                    parameter.fill_(1.0)
                else:
                    deep = (2 * self.shape.layers) ** -0.5 if name.endswith(("out.weight", "down.weight")) else 1.0
                    parameter.copy_(torch.randn(parameter.shape, generator=generator) * (0.02 * deep))
        return self

    def forward(self, ids: Tensor, at: Layout | None = None, *, caches: Sequence[KVCache] | None = None, backend: str = "auto") -> Tensor:
        """Logits (B L V) of tokens (B L); ``caches`` holds one for each layer where the text goes on."""
        if at is None:
            at = Layout.dense(ids.shape[1], device=ids.device) if caches is None else caches[0].next(ids.shape[1])
        x = self.encodings[0].embed(self.tokens(ids), at.pos)
        for number, block in enumerate(self.blocks):
            x = block(x, at, None if caches is None else caches[number], backend)
        logits: Tensor = self.head(self.norm(x))
        return logits

    def looks(self, ids: Tensor) -> list[tuple[Tensor, Tensor, Encoding]]:
        """Transformed queries and keys of each layer (B H L D), with the plain encoding that scores them: for statistics of attention."""
        at = Layout.dense(ids.shape[1], device=ids.device)
        x, found = self.encodings[0].embed(self.tokens(ids), at.pos), []
        for block in self.blocks:
            enc: Encoding = block.enc.at(ids.shape[1])  # type: ignore[union-attr,operator]
            q, k, _ = block.project(x)  # type: ignore[operator]
            found.append((enc.query(q, at.pos), enc.key(k, at.pos), enc))
            x = block(x, at)
        return found

    def caches(self, **how: Any) -> list[KVCache]:
        """Empty caches, one for each layer."""
        return [KVCache(enc, **how) for enc in self.encodings]

    def with_encoding(self, encoding: str | Sequence[str]) -> Decoder:
        """The same weights under another encoding that has none of its own: a scaling or a position map, at test time."""
        other = Decoder(self.shape, encoding)
        learned = [name for name, _ in other.named_parameters() if ".enc." in name]
        if learned:
            raise ValueError(f"{other.specs[0]} has parameters of its own ({learned[0]}), which this model has not trained")
        other.load_state_dict({name: value for name, value in self.state_dict().items() if ".enc." not in name})
        return other.to(self.head.weight.device)

    def count(self) -> int:
        """Parameters."""
        return sum(p.numel() for p in self.parameters())
