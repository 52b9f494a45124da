"""Block: one pre-norm layer that takes any encoding and any backend; and the weights that models start from.

    x += attention(norm(x)),   x += mlp(norm(x))

Decoder (text) and Encoder (images, signals) are made of it. Weights outside of the encoding are drawn for each name
apart, so that models with different encodings start from the very same numbers.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from milepost.attention import Attention, KVCache
from milepost.encoding import Encoding, Sum, parts_of
from milepost.lab.training.linear import RoundedLinear, feed_forward
from milepost.layout import Layout
from milepost.stack import layer_of


class DecoderBlock(Attention):
    """One layer of ``width`` channels: attention, whose queries see ``window`` tokens (None: all), then a feed-forward
    part four times as wide.
    """

    def __init__(self, width: int, heads: int, enc: Encoding, *, causal: bool = True, window: int | None = None):
        super().__init__(width, heads, enc, causal=causal)
        self.window = window
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = RoundedLinear(width, 3 * width, bias=False), RoundedLinear(width, width, bias=False)
        self.up, self.down = RoundedLinear(width, 4 * width), RoundedLinear(4 * width, width)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v of x (B L C) as they are, each B H L D."""
        return super().project(self.norm_1(x))

    def features(self, x: Tensor, at: Layout) -> Tensor | None:
        """The encoding's features of what q, k and v are made of."""
        return super().features(self.norm_1(x), at) if self.enc.feature_count else None

    def forward(
        self, x: Tensor, at: Layout | None = None, *, cache: KVCache | None = None, backend: str = "auto"
    ) -> Tensor:
        """x (B L C) after this layer."""
        if self.window is not None:
            at = at or (Layout.dense(x.shape[1], device=x.device) if cache is None else cache.next(x.shape[1]))
            at = at.windowed(self.window)
        x = x + super().forward(x, at, cache=cache, backend=backend)
        return x + feed_forward(self.norm_2(x), self.up, self.down)


class Stacked(nn.Module, ABC):
    """What Decoder and Encoder share: ``blocks``, each with an encoding, and a ``head``."""

    blocks: nn.ModuleList
    head: nn.Linear
    code_spread: float = 1.0
    """The standard deviation of the added code as its encoding gives it: it is divided by this, so that neither code
    nor tokens drown the other. It is 1 where no code is added, and in models of version 0.1, which did not do this."""

    @property
    def encodings(self) -> list[Encoding]:
        """The encoding of each layer."""
        return [block.enc for block in self.blocks]  # type: ignore[misc]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.head.weight.device

    def count(self) -> int:
        """Parameters."""
        return sum(p.numel() for p in self.parameters())

    def count_encoding(self) -> int:
        """Parameters of the encodings alone."""
        return sum(p.numel() for enc in self.encodings for p in enc.parameters())

    @abstractmethod
    def code(self, enc: Encoding) -> Tensor:
        """What an encoding adds to the tokens of a text of the trained length, or of the grid (L C)."""

    def embed(self, tokens: Tensor, enc: Encoding, at: Layout) -> Tensor:
        """Embedded tokens (B L C) with their positions, where the encoding puts any."""
        if self.code_spread == 1.0:
            return enc.embed(tokens, at.pos)
        return enc.embed(tokens * self.code_spread, at.pos) / self.code_spread

    def start_code(self) -> None:
        """Give the added code the variance of unit tokens: a table starts with it, a formula is divided by its own."""
        first = self.encodings[0]
        self.code_spread = 1.0
        for part in parts_of(first):
            if "embed" in part.points and (spread := float(self.code(part).std())) > 0:
                for parameter in part.parameters():
                    parameter.div_(spread)
        if "embed" in first.points and (spread := float(self.code(first).std())) > 0:
            self.code_spread = 1.0 if abs(spread - 1) < 1e-3 else spread


def build_by_layer(
    encoding: str | Sequence[str], layers: int, width: int, build: Callable[[str], Encoding]
) -> tuple[list[str], list[Encoding], list[int | None]]:
    """The spec, the encoding and the window of each layer: the first one embeds, the others do what they do inside of a
    layer. A spec may be a stack, which is the same text for each layer.
    """
    specs = [encoding] * layers if isinstance(encoding, str) else list(encoding)
    if len(specs) != layers:
        raise ValueError(f"a model of {layers} layers wants one encoding, or {layers}; got {len(specs)}")
    by_layer = [layer_of(build(spec), number) for number, spec in enumerate(specs)]
    encodings = [enc for enc, _ in by_layer]
    for number, enc in enumerate(encodings[1:], 1):
        if "embed" in enc.points and repr(enc) != repr(encodings[0]):
            raise ValueError(
                f"{enc!r} of layer {number} mixes position into the embedding, which is done once, before layer 0: "
                "give it to layer 0"
            )
    added = encodings[0].added_width
    if added >= width:
        raise ValueError(f"{encodings[0]!r} takes {added} of the {width} channels of the embedding, and leaves none")
    return specs, [encodings[0], *map(inside, encodings[1:])], [window for _, window in by_layer]


def inside(enc: Encoding) -> Encoding:
    """What an encoding does inside the layers: all but the embedding, which is the first layer's."""
    parts = [part for part in parts_of(enc) if set(part.points) - {"embed"}]
    if isinstance(enc, Sum) and len(parts) > 1:
        return Sum(*parts)
    return parts[0] if parts else Encoding()


def start(
    model: Stacked,
    seed: int,
    specs: Sequence[str],
    build: Callable[[str], Encoding],
    *,
    tokens: tuple[int, int],
    spread: float,
) -> None:
    """Initial weights, from the seed alone: the same for every encoding, but for those of the encoding itself.

    ``tokens``: the size of the weights that embed, of which more are drawn than the model has where some channels are
    the encoding's; ``spread`` is their standard deviation. The matrices of layers start with one over the root of
    their inputs, so that no layer makes its numbers smaller; the head starts small, so that at first every token is
    as likely as any other. What a code adds starts with the variance of the tokens.
    """
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        for name, parameter in model.named_parameters():
            if ".enc." in name:
                continue
            torch.manual_seed(zlib.crc32(f"{seed} {name}".encode()))
            if name.endswith("bias"):
                parameter.zero_()
            elif "norm" in name:
                parameter.fill_(1.0)
            else:
                rows, columns = tokens if name == "tokens.weight" else tuple(parameter.shape)
                size = {"tokens.weight": spread, "head.weight": 0.02}.get(name, columns**-0.5)
                deep = (2 * len(model.blocks)) ** -0.5 if name.endswith(("out.weight", "down.weight")) else 1.0
                parameter.copy_(torch.randn(rows, columns)[: parameter.shape[0], : parameter.shape[1]] * (size * deep))
        for number, (spec, enc) in enumerate(zip(specs, model.encodings, strict=True)):
            torch.manual_seed(zlib.crc32(f"{seed} encoding {number}".encode()))
            made, _ = layer_of(build(spec), number)
            enc.load_state_dict((made if number == 0 else inside(made)).state_dict())
        model.start_code()
