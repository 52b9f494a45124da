"""Decoder: a small pre-norm Transformer that takes any encoding, or one for each layer, and any backend.

    x = embed(tokens),   x = block(x) for each layer,   logits = head(norm(x))

Each layer has an encoding of its own, made from one spec; the first of them also embeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost.attention import KVCache
from milepost.encoding import Encoding
from milepost.lab.block import DecoderBlock, Stacked, build_by_layer, start
from milepost.lab.training.linear import RoundedLinear
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
                f"{made!r} is for places of {made.axes} axes, such as patches of an image, and text has one: "
                "choose an encoding of text, such as rope"
            )
        return made

    def weights(self) -> int:
        """About how many numbers a model has."""
        return 12 * self.layers * self.width**2 + (2 * self.vocabulary + self.length) * self.width


class Decoder(Stacked):
    """A decoder of a shape. ``encoding`` is a spec for all layers, or a list with one for each."""

    def __init__(self, shape: Shape, encoding: str | Sequence[str]):
        super().__init__()
        self.shape = shape
        self.specs, encodings, self.windows = build_by_layer(encoding, shape.layers, shape.width, shape.build)
        self.tokens = nn.Embedding(shape.vocabulary, shape.width - encodings[0].added_width)
        self.blocks = nn.ModuleList(
            [
                DecoderBlock(shape.width, shape.heads, enc, window=window)
                for enc, window in zip(encodings, self.windows, strict=True)
            ]
        )
        self.norm = nn.LayerNorm(shape.width)
        self.head = RoundedLinear(shape.width, shape.vocabulary, bias=False)

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
        whole = (self.shape.vocabulary, self.shape.width)
        start(self, seed, self.specs, self.shape.build, tokens=whole, spread=1.0)
        return self

    def code(self, enc: Encoding) -> Tensor:
        """What an encoding adds to the tokens of a text of the trained length (L C)."""
        nothing = torch.zeros(1, self.shape.length, self.shape.width - enc.added_width, device=self.device)
        at = Layout.dense(self.shape.length, device=self.device)
        return enc.at(self.shape.length).embed(nothing, at.pos)[0, :, -enc.added_width :]

    def forward(
        self, ids: Tensor, at: Layout | None = None, *, caches: Sequence[KVCache] | None = None, backend: str = "auto"
    ) -> Tensor:
        """Logits (B L V) of tokens (B L); ``caches`` holds one for each layer where the text goes on."""
        if caches is not None and backend != "auto":
            raise ValueError(
                f"a cache chooses its own backend; leave it out, or read without caches, got backend={backend!r}"
            )
        if at is None and caches is not None and len(caches[0]) > 0:
            at = caches[0].next(ids.shape[1])
        logits: Tensor = self.head(self._hidden(ids, at, caches, backend))
        return logits

    def last_losses(self, ids: Tensor, count: int) -> Tensor:
        """Nats of the last ``count`` next tokens (B count) of tokens (B L + 1): no other is scored."""
        logits = self.head(self._hidden(ids[:, :-1])[:, -count:]).float()
        return F.cross_entropy(logits.flatten(0, 1), ids[:, -count:].flatten(), reduction="none").view(len(ids), -1)

    def _hidden(
        self, ids: Tensor, at: Layout | None = None, caches: Sequence[KVCache] | None = None, backend: str = "auto"
    ) -> Tensor:
        """What the head reads of each token (B L C)."""
        at = Layout.dense(ids.shape[1], device=ids.device) if at is None else at
        x = self._embedded(ids, at, cached=caches is not None)
        for number, block in enumerate(self.blocks):
            x = block(x, at, backend=backend) if caches is None else block(x, cache=caches[number])
        hidden: Tensor = self.norm(x)
        return hidden

    def _embedded(self, ids: Tensor, at: Layout, cached: bool = False) -> Tensor:
        enc = self.encodings[0]
        if enc.length_dependent and "embed" in enc.points:
            if cached:
                raise ValueError(
                    f"{enc!r} embeds by the length of the whole text, which is not known while a cache grows; "
                    "read it without caches"
                )
            enc = enc.at(int(at.index.max()) + 1)
        return self.embed(self.tokens(ids), enc, at)

    def looks(self, ids: Tensor, at: Layout | None = None) -> list[tuple[Tensor, Tensor, Encoding, Tensor | None]]:
        """Turned queries and keys of each layer (B H L D), with the plain encoding that scores them and its features of
        the hidden states (B L N), where it asks for any: for statistics. How far a layer may look is in ``windows``.
        """
        at = Layout.dense(ids.shape[1], device=ids.device) if at is None else at
        x, layers = self._embedded(ids, at), []
        for block in self.blocks:
            enc: Encoding = block.enc.at(ids.shape[1])  # type: ignore[union-attr,operator]
            q, k, _ = block.project(x)  # type: ignore[operator]
            features = block.features(x, at)  # type: ignore[operator]
            layers.append((enc.query(q, at.pos), enc.key(k, at.pos), enc, features))
            x = block(x, at)
        return layers

    def caches(self, **how: Any) -> list[KVCache]:
        """Empty caches, one for each layer."""
        return [KVCache(enc, **how) for enc in self.encodings]

    def with_encoding(self, encoding: str | Sequence[str]) -> Decoder:
        """The same weights under another encoding that has none: a scaling or a position map, at test time."""
        other = Decoder(self.shape, encoding)
        learned = [name for name, _ in other.named_parameters() if ".enc." in name]
        if learned:
            raise ValueError(
                f"{other.specs[0]} has parameters of its own ({learned[0]}), which this model has not trained"
            )
        other.load_state_dict({name: value for name, value in self.state_dict().items() if ".enc." not in name})
        other.code_spread = self.code_spread
        return other.to(self.device)
