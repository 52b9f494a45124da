"""Decoder: a small pre-norm Transformer that takes any encoding, or one for each layer, and any backend.

    x = embed(tokens),   x += attention(norm(x)),   x += mlp(norm(x)) for each layer,   logits = head(norm(x))

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
from milepost.attention.lengths import waits
from milepost.encoding import Encoding, Sum
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
        """The encoding of a spec, for a model of this size that reads text: a position is one number."""
        made = build(spec, heads=self.heads, head_dim=self.head_dim, width=self.width, length=self.length)
        if made.axes > 1 and not made.flat:
            raise ValueError(
                f"{made!r} is for places of {made.axes} axes, such as patches of an image, and text has one: choose an encoding of text, such as rope"
            )
        return made


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
        elif waits(self.enc):  # turned by attend, once the length is known
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
        for number, enc in enumerate(encodings[1:], 1):
            if "embed" in enc.points and self.specs[number] != self.specs[0]:
                raise ValueError(f"{enc!r} of layer {number} mixes position into the embedding, which is done once, before layer 0: give it to layer 0")
            encodings[number] = _inside(enc)
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
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.head.weight.device

    @property
    def end(self) -> int | None:
        """The longest text that it can read, such as a table's length; None where there is no end."""
        return min((enc.end for enc in self.encodings if enc.end is not None), default=None)

    @property
    def length_dependent(self) -> bool:
        """Whether what the model says of a token depends on how long the text goes on."""
        return any(enc.length_dependent for enc in self.encodings)

    def start(self, seed: int) -> Decoder:
        """Initial weights, from the seed alone: the same for every encoding, but for those of the encoding itself."""
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            for name, parameter in self.named_parameters():
                if ".enc." in name:
                    continue
                torch.manual_seed(zlib.crc32(f"{seed} {name}".encode()))
                if name.endswith("bias"):
                    parameter.zero_()
                elif "norm" in name:
                    parameter.fill_(1.0)
                else:
                    deep = (2 * self.shape.layers) ** -0.5 if name.endswith(("out.weight", "down.weight")) else 1.0
                    columns = self.shape.width if name == "tokens.weight" else parameter.shape[1]  # some channels may be the encoding's: drawn all the same
                    parameter.copy_(torch.randn(parameter.shape[0], columns)[:, : parameter.shape[1]] * (0.02 * deep))
            for number, (spec, enc) in enumerate(zip(self.specs, self.encodings, strict=True)):
                torch.manual_seed(zlib.crc32(f"{seed} encoding {number}".encode()))
                made = self.shape.build(spec)
                enc.load_state_dict((made if number == 0 else _inside(made)).state_dict())
        return self

    def forward(self, ids: Tensor, at: Layout | None = None, *, caches: Sequence[KVCache] | None = None, backend: str = "auto") -> Tensor:
        """Logits (B L V) of tokens (B L); ``caches`` holds one for each layer where the text goes on."""
        if caches is not None and backend != "auto":
            raise ValueError(f"a cache chooses its own backend; leave it out, or read without caches, got backend={backend!r}")
        if at is None:
            going_on = caches is not None and len(caches[0]) > 0
            at = caches[0].next(ids.shape[1]) if caches is not None and going_on else Layout.dense(ids.shape[1], device=ids.device)
        x = self._embedded(ids, at, caches is not None)
        for number, block in enumerate(self.blocks):
            x = block(x, at, None if caches is None else caches[number], backend)
        logits: Tensor = self.head(self.norm(x))
        return logits

    def _embedded(self, ids: Tensor, at: Layout, goes_on: bool = False) -> Tensor:
        enc = self.encodings[0]
        if enc.length_dependent and "embed" in enc.points:
            if goes_on:
                raise ValueError(f"{enc!r} embeds by the length of the whole text, which a text that goes on has not; read it without caches")
            enc = enc.at(int(at.index.max()) + 1)
        return enc.embed(self.tokens(ids), at.pos)

    def looks(self, ids: Tensor, at: Layout | None = None) -> list[tuple[Tensor, Tensor, Encoding]]:
        """Transformed queries and keys of each layer (B H L D), with the plain encoding that scores them: for statistics of attention."""
        at = Layout.dense(ids.shape[1], device=ids.device) if at is None else at
        x, found = self._embedded(ids, at), []
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
        return other.to(self.device)

    def count(self) -> int:
        """Parameters."""
        return sum(p.numel() for p in self.parameters())


def _inside(enc: Encoding) -> Encoding:
    """What an encoding does inside the layers: all but the embedding, which is the first layer's."""
    if isinstance(enc, Sum):
        parts = [part for part in enc.parts if set(part.points) - {"embed"}]  # type: ignore[arg-type]
        return Sum(*parts) if len(parts) > 1 else parts[0] if parts else Encoding()  # type: ignore[arg-type, return-value]
    return enc if set(enc.points) - {"embed"} or not enc.points else Encoding()
