"""Encoder: a small pre-norm Transformer that sees all of its tokens, each at a place of several axes.

    x = tokens W,   x = block(x) for each layer,   logits = head(mean over tokens of norm(x))

Over the patches of an image it is a ViT. A place is a cell of a grid: (row, column) of an image, (frame, row, column)
of a video, and so on. An encoding of as many axes gets the cell; one of a single axis, made for text, gets the cell's
number, row by row. The mean knows no order, so that all that the model knows of places comes through the encoding.
Departure from ViT: no class token.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from milepost.encoding import Encoding, Sum, parts_of
from milepost.encodings.grid import Grid
from milepost.encodings.resize_table import resize_table
from milepost.lab.block import DecoderBlock, Stacked, build_by_layer, start
from milepost.layout import Layout
from milepost.positions import grid
from milepost.spec import build


@dataclass(frozen=True)
class EncoderShape:
    """The size of a model.

    ``sides`` is the grid that it is trained on, ``channels`` the numbers of a token, ``classes`` what it tells apart.
    """

    sides: tuple[int, ...]
    channels: int
    classes: int
    layers: int = 2
    width: int = 64
    heads: int = 4

    def __post_init__(self) -> None:
        sizes = [value for name, value in asdict(self).items() if name != "sides"]
        if len(self.sides) < 2 or min(*self.sides, *sizes) < 1 or self.width % (2 * self.heads):
            raise ValueError(
                "a model has two axes or more, sizes of at least 1, and a width that is a multiple of twice its heads; "
                f"got {self}"
            )

    def build(self, spec: str) -> Encoding:
        """The encoding of a spec, for a model of this size."""
        made = build(
            spec,
            heads=self.heads,
            head_dim=self.width // self.heads,
            width=self.width,
            length=math.prod(self.sides),
            sides=self.sides,
        )
        axes = len(self.sides)
        if made.axes not in (1, axes) and not made.flat:
            raise ValueError(
                f"{made!r} is for places of {made.axes} axes, and these have {axes}: "
                f"write axes={axes} where the encoding has that argument"
            )
        if len({part.axes for part in parts_of(made) if part.points}) > 1:
            raise ValueError(
                f"the parts of {made!r} count places on different numbers of axes, and all of them get the same place: "
                "choose parts of one kind"
            )
        if made.causal_only:
            raise ValueError(
                f"{made!r} has no meaning for keys after the query, and patches have no before and after: "
                "choose another, or a two-sided mode"
            )
        for part in parts_of(made):
            if isinstance(part, Grid) and part.sides != self.sides:
                given, ours = (" x ".join(map(str, sides)) for sides in (part.sides or (), self.sides))
                raise ValueError(
                    f"{part!r} is a table for {given} places, and the model is trained on {ours}: "
                    "leave sides= out, or train at that size"
                )
        return made

    def weights(self) -> int:
        """About how many numbers a model has."""
        return 12 * self.layers * self.width**2 + (self.channels + self.classes + math.prod(self.sides)) * self.width


class Encoder(Stacked):
    """An encoder of a shape; ``encoding`` is a spec for all layers, or a list with one for each."""

    def __init__(self, shape: EncoderShape, encoding: str | Sequence[str]):
        super().__init__()
        self.shape, self.sides = shape, shape.sides
        self.specs, encodings, windows = build_by_layer(encoding, shape.layers, shape.width, shape.build)
        if any(windows):
            raise ValueError(f"a window is for texts, and places on a grid have no order: leave it out of {encoding}")
        self.tokens = nn.Linear(shape.channels, shape.width - encodings[0].added_width)
        self.blocks = nn.ModuleList([DecoderBlock(shape.width, shape.heads, enc, causal=False) for enc in encodings])
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.classes)

    def start(self, seed: int) -> Encoder:
        """Initial weights, from the seed alone: the same for every encoding, but for those of the encoding itself."""
        whole = (self.shape.width, self.shape.channels)
        start(self, seed, self.specs, self.shape.build, tokens=whole, spread=self.shape.channels**-0.5)
        return self

    def code(self, enc: Encoding) -> Tensor:
        """What an encoding adds to the tokens on the model's grid (L C)."""
        nothing = torch.zeros(1, math.prod(self.sides), self.shape.width - enc.added_width, device=self.device)
        return enc.at(nothing.shape[1]).embed(nothing, self.layouts(nothing)[0].pos)[0, :, -enc.added_width :]

    def forward(self, x: Tensor, pos: Tensor | None = None) -> Tensor:
        """Logits (B classes) of tokens (B L channels), which are at ``pos`` (axes 1 L), or on the model's grid."""
        at = self.layouts(x, pos)
        seen = self.embedded(x, at[0])
        for block, where in zip(self.blocks, at, strict=True):
            seen = block(seen, where)
        logits: Tensor = self.head(self.norm(seen).mean(1))
        return logits

    def layouts(self, x: Tensor, pos: Tensor | None = None) -> list[Layout]:
        """Where the tokens are, as each layer's encoding counts it."""
        places = grid(*self.sides).to(x.device) if pos is None else pos
        if places.shape[-1] != x.shape[1]:
            raise ValueError(
                f"{x.shape[1]} tokens were given for a grid of {' x '.join(map(str, self.sides))}: "
                "cut the input as in training"
            )
        dense = Layout.dense(x.shape[1], device=x.device)
        on_grid = dense.with_positions(places)
        return [on_grid if enc.axes == len(self.sides) else dense for enc in self.encodings]

    def embedded(self, x: Tensor, at: Layout) -> Tensor:
        """Tokens (B L channels) as the first layer gets them (B L C)."""
        enc = self.encodings[0]
        return self.embed(self.tokens(x), enc.at(x.shape[1]) if enc.length_dependent else enc, at)

    def looks(self, x: Tensor) -> list[tuple[Tensor, Tensor, Encoding, Layout]]:
        """Turned queries and keys of each layer (B H L D), the plain encoding that scores them, and where they are."""
        at, layers = self.layouts(x), []
        seen = self.embedded(x, at[0])
        for block, where in zip(self.blocks, at, strict=True):
            enc: Encoding = block.enc.at(x.shape[1])  # type: ignore[union-attr,operator]
            q, k, _ = block.project(seen)  # type: ignore[operator]
            layers.append((enc.query(q, where.pos), enc.key(k, where.pos), enc, where))
            seen = block(seen, where)
        return layers

    def on_grid(self, *sides: int) -> Encoder:
        """The same model for another grid: learned tables of a grid are resized, everything else is as it was."""
        other = copy.deepcopy(self)
        other.sides = tuple(sides)
        for block in other.blocks:
            block.enc = resized(block.enc, other.sides)  # type: ignore[arg-type]
        return other

    def ends(self) -> bool:
        """Whether a table ends before the last place of the grid."""
        return any(
            (enc.end is not None and enc.axes == 1 and math.prod(self.sides) > enc.end)
            or (enc.sides is not None and any(side > end for side, end in zip(self.sides, enc.sides, strict=True)))
            for whole in self.encodings
            for enc in parts_of(whole)
        )


def resized(enc: Encoding, sides: tuple[int, ...]) -> Encoding:
    """``enc`` for another grid, its learned table resampled; what is no table of a grid stays as it is."""
    if isinstance(enc, Sum):
        return Sum(*[resized(part, sides) for part in parts_of(enc)])
    if not isinstance(enc, Grid) or enc.sides == sides:
        return enc
    assert enc.width is not None and enc.sides is not None
    made = Grid(enc.width, sides, enc.prefix, enc.bare, enc.how).to(enc.table)
    with torch.no_grad():
        if enc.how == "cells":
            made.table.copy_(resize_table(enc.table, source=enc.sides, target=sides, prefix=enc.prefix))
        else:
            by_axis = torch.split(enc.table[enc.prefix :], list(enc.sides))
            new = [
                resize_table(rows, source=(was,), target=(now,))
                for rows, was, now in zip(by_axis, enc.sides, sides, strict=True)
            ]
            made.table.copy_(torch.cat([enc.table[: enc.prefix], *new]))
    return made
