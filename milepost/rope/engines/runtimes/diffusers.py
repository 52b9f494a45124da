"""diffusers: what its diffusion transformers turn by, from the config.json of a pipeline's folder `transformer`.

    read_transformer({"_class_name": "FluxTransformer2DModel", "axes_dims_rope": [16, 56, 56]}).encoding
        "axial(head_dim=128, axes=3, split=(16, 56, 56), pairing='interleaved')"
    read_transformer(config).places(rows=64, columns=64, text=512)      the place of every token, on each axis

All of them are axial: each axis has channels and a spectrum of its own, and neighbouring channels are pairs. They
differ in the places that they give their tokens:

    Flux          frame, row, column; all tokens of the text are at 0, 0, 0
    Flux 2        frame, row, column, word: the text goes along an axis of its own
    Qwen-Image    rows and columns are counted from the middle; text has one number on all axes, from half the larger
                  side on, so that it lies on the diagonal beyond the image
    Z-Image       text is at 1, 2, ... on the first axis, and the image at the place after it
    Wan, HunyuanVideo    frame, row, column from 0; the text is not turned

LTX is none of these, and is refused: its frequencies run through all heads, so that each head has others.
Measured with diffusers 0.42.1 (measured/diffusers-0.42.1.json): the models themselves were run, and the angle of every
pair taken from their queries before and after the rotation.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from milepost.rope.config.keys import ConfigError, short

Place = tuple[float, ...]

HEADS: dict[str, tuple[str, tuple[int, ...] | None, str, float]] = {
    "FluxTransformer2DModel": ("axes_dims_rope", (16, 56, 56), "", 10000.0),
    "Flux2Transformer2DModel": ("axes_dims_rope", (32, 32, 32, 32), "rope_theta", 2000.0),
    "QwenImageTransformer2DModel": ("axes_dims_rope", (16, 56, 56), "", 10000.0),
    "ZImageTransformer2DModel": ("axes_dims", (32, 48, 48), "rope_theta", 256.0),
    "HunyuanVideoTransformer3DModel": ("rope_axes_dim", (16, 56, 56), "rope_theta", 256.0),
    "WanTransformer3DModel": ("attention_head_dim", None, "", 10000.0),
}
"""By class: the key of the channels of each axis with its default, the key of the base with its own."""


@dataclass(frozen=True)
class Transformer:
    """A diffusion transformer: its ``encoding`` as text, which `milepost.build` makes, and the places of its tokens."""

    kind: str
    encoding: str
    axes: int

    def places(self, *, rows: int, columns: int, frames: int = 1, text: int = 0) -> list[Place | None]:
        """The place of every token in the order in which attention has them; None where a token is not turned."""
        grid = list(itertools.product(range(frames), range(rows), range(columns)))
        if self.kind.startswith("Flux2"):
            return [*((0, 0, 0, word) for word in range(text)), *((*place, 0) for place in grid)]
        if self.kind.startswith("Flux"):
            return [*[(0, 0, 0)] * text, *grid]
        if self.kind.startswith("QwenImage"):
            first = max(rows // 2, columns // 2)
            down, right = rows - rows // 2, columns - columns // 2
            centred = [(frame, row - down, column - right) for frame, row, column in grid]
            return [*((first + word,) * 3 for word in range(text)), *centred]
        if self.kind.startswith("ZImage"):
            if text % 32 or len(grid) % 32:
                raise ValueError(
                    f"Z-Image fills text and image up to multiples of 32 tokens; got {text} and {len(grid)}, whose "
                    "filling is not described here: take multiples of 32"
                )
            return [*((text + 1 + frame, row, column) for frame, row, column in grid),
                    *((1 + word, 0, 0) for word in range(text))]  # fmt: skip
        return [*grid, *[None] * text]


def read_transformer(config: Mapping[str, Any]) -> Transformer:
    """What a diffusion transformer turns by; `ConfigError` where no encoding of milepost's does it."""
    kind = config.get("_class_name")
    if isinstance(kind, str) and kind.startswith("LTX"):
        raise ConfigError(
            f"{kind} deals one list of frequencies out over all heads, so that each head turns by others: no encoding "
            "of milepost's has fixed frequencies for each head"
        )
    if kind not in HEADS:
        near = difflib.get_close_matches(str(kind), HEADS, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(f"_class_name = {short(kind)} is not a transformer that was measured; {hint}There are "
                          f"{', '.join(HEADS)}")  # fmt: skip
    key, usual, base_key, base = HEADS[kind]
    split = _wan(_whole(config, key, 128)) if usual is None else _split(config, key, usual)
    base = float(config.get(base_key, base)) if base_key else base
    head = sum(split)
    named = "" if base == 10000.0 else f", base={base:g}"
    encoding = f"axial(head_dim={head}, axes={len(split)}{named}, split={split}, pairing='interleaved')"
    return Transformer(kind, encoding, len(split))


def _whole(config: Mapping[str, Any], key: str, usual: int) -> int:
    value = config.get(key, usual)
    if type(value) is not int or value < 6 or value % 2:
        raise ConfigError(f"{key} must be an even number of channels from 6 on, got {short(value)}")
    return value


def _split(config: Mapping[str, Any], key: str, usual: tuple[int, ...]) -> tuple[int, ...]:
    value = config.get(key, usual)
    even = isinstance(value, list | tuple) and all(type(n) is int and n >= 2 and n % 2 == 0 for n in value)
    if not even or len(value) != len(usual):
        raise ConfigError(f"{key} must be {len(usual)} even numbers of channels, got {short(value)}")
    return tuple(value)


def _wan(head: int) -> tuple[int, ...]:
    """Wan's share of channels: rows and columns a third each, rounded down to even numbers; frames have the rest."""
    side = 2 * (head // 6)
    return head - 2 * side, side, side
