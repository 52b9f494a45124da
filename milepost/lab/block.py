"""Block: one pre-norm layer that takes any encoding and any backend; and the weights that models start from.

    x += attention(norm(x)),   x += mlp(norm(x))

Decoder (text) and Encoder (images, signals) are made of it. Weights outside of the encoding are drawn for each name
apart, so that models with different encodings start from the very same numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milepost.attention import Attention, KVCache
from milepost.encoding import Encoding, Sum
from milepost.layout import Layout


class Block(Attention):
    """One layer of ``width`` channels: attention, then a feed-forward part four times as wide."""

    def __init__(self, width: int, heads: int, enc: Encoding, *, causal: bool = True):
        super().__init__(width, heads, enc, causal=causal)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v of x (B L C) as they are, each B H L D."""
        return super().project(self.norm_1(x))

    def forward(
        self, x: Tensor, at: Layout | None = None, *, cache: KVCache | None = None, backend: str = "auto"
    ) -> Tensor:
        """x (B L C) after this layer."""
        x = x + super().forward(x, at, cache=cache, backend=backend)
        out: Tensor = x + self.down(F.gelu(self.up(self.norm_2(x))))
        return out


class Stacked(nn.Module):
    """What Decoder and Encoder share: ``blocks``, each with an encoding, and a ``head``."""

    blocks: nn.ModuleList
    head: nn.Linear

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


def build_by_layer(
    encoding: str | Sequence[str], layers: int, width: int, build: Callable[[str], Encoding]
) -> tuple[list[str], list[Encoding]]:
    """The spec and the encoding of each layer: the first one embeds, the others do what they do inside of a layer."""
    specs = [encoding] * layers if isinstance(encoding, str) else list(encoding)
    if len(specs) != layers:
        raise ValueError(f"a model of {layers} layers wants one encoding, or {layers}; got {len(specs)}")
    encodings = [build(spec) for spec in specs]
    for number, enc in enumerate(encodings[1:], 1):
        if "embed" in enc.points and specs[number] != specs[0]:
            raise ValueError(
                f"{enc!r} of layer {number} mixes position into the embedding, which is done once, before layer 0: "
                "give it to layer 0"
            )
    added = encodings[0].added_width
    if added >= width:
        raise ValueError(f"{encodings[0]!r} takes {added} of the {width} channels of the embedding, and leaves none")
    return specs, [encodings[0], *map(inside, encodings[1:])]


def inside(enc: Encoding) -> Encoding:
    """What an encoding does inside the layers: all but the embedding, which is the first layer's."""
    if isinstance(enc, Sum):
        parts = [part for part in enc.parts if set(part.points) - {"embed"}]  # type: ignore[arg-type]
        if len(parts) > 1:
            return Sum(*parts)  # type: ignore[arg-type]
        return parts[0] if parts else Encoding()  # type: ignore[return-value]
    return enc if set(enc.points) - {"embed"} or not enc.points else Encoding()


def start(
    model: nn.Module,
    seed: int,
    specs: Sequence[str],
    build: Callable[[str], Encoding],
    *,
    drawn: Mapping[str, tuple[int, int]],
    spread: float | None = 0.02,
) -> None:
    """Initial weights, from the seed alone: the same for every encoding, but for those of the encoding itself.

    ``model.blocks`` are its layers. ``drawn``: weights of which more are drawn than the model has, since some
    channels are the encoding's. ``spread`` is their standard deviation; None is one over the root of the inputs, so
    that no layer makes its numbers smaller.
    """
    blocks: Sequence[Block] = model.blocks  # type: ignore[assignment]
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
                deep = (2 * len(blocks)) ** -0.5 if name.endswith(("out.weight", "down.weight")) else 1.0
                rows, columns = drawn.get(name, tuple(parameter.shape))
                size = columns**-0.5 if spread is None else spread
                parameter.copy_(torch.randn(rows, columns)[: parameter.shape[0], : parameter.shape[1]] * (size * deep))
        for number, (spec, block) in enumerate(zip(specs, blocks, strict=True)):
            torch.manual_seed(zlib.crc32(f"{seed} encoding {number}".encode()))
            made = build(spec)
            block.enc.load_state_dict((made if number == 0 else inside(made)).state_dict())
