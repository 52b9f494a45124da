"""What classes that read no text are given: patches of a grid of 8 x 6, an image, a sound.

Each class wants them in a shape of its own, and none says which: they are tried in turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from milepost.checkpoints.families.bounds import CannotBuild
from milepost.checkpoints.families.small import Small

TALL, WIDE = 8, 6
"""Patches of the grid: two numbers, so that its axes can be told apart."""
FRAMES = 160
LARGEST = 1 << 23
"""Numbers of one input: an image of 1600 x 1600 in colour."""


def inputs(small: Small, names: set[str]) -> Iterator[dict[str, Any]]:
    """What may be given to a class, in the order in which it is tried."""
    main = next(
        (n for n in ("hidden_states", "pixel_values", "input_features", "input_values", "latents") if n in names), ""
    )
    more = _grid(names)
    if main in ("hidden_states", "pixel_values") and (more or "pixel_position_ids" in names):
        for shape in _patches(small):
            yield {main: _noise(*shape), **more, **_merges(names), **_places(names, shape)}
    if main == "pixel_values":
        for shape in _images(small):
            extra = {"image_sizes": torch.tensor([shape[-2:]])} if "image_sizes" in names else {}
            yield {main: _noise(*shape), **extra}
    if main in ("input_features", "input_values", "latents"):
        for shape in _sounds(small):
            yield {main: _noise(*shape), **_decoder(names)}
        if {"input_features", "input_values"} <= names:
            yield {"input_values": _noise(1, 1, 16000), "input_features": _noise(1, FRAMES, 160)}
            yield {"input_values": _noise(1, 1, 16000), "input_features": _noise(1, 50, 160)}
    if "past_values" in names:
        yield {"past_values": _noise(1, 1024)}


def beside(small: Small, names: set[str], rows: int) -> dict[str, Any]:
    """What some classes want beside the tokens of ``rows`` texts."""
    width = _number(small, "hidden_size", default=64)
    more: dict[str, Any] = {}
    if small.name == "VoxtralRealtimeTextModel":  # the time that is left, as it is given from outside
        more["t_cond"] = _noise(1, 1, width)
    if "image_encoder_embeddings" in names:
        vision = getattr(small.config, "vision_config", small.config)
        more["image_encoder_embeddings"] = _noise(rows, 1, 5, int(getattr(vision, "embed_dim", width)))
        more["image_attention_mask"] = torch.ones(rows, 1, 1, dtype=torch.long)
    if "num_patches" in names:
        more["num_patches"] = 1
    if "encoder_hidden_states" in names and small.name.endswith("Decoder"):
        more["encoder_hidden_states"] = _noise(rows, 5, _number(small, "cross_hidden_size", default=width))
    return more


def _noise(*shape: int) -> Tensor:
    if math.prod(shape) > LARGEST:
        raise CannotBuild(
            f"it reads {' x '.join(map(str, shape))} numbers at once, and {LARGEST} are the most that are made"
        )
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2))


def _number(small: Small, *names: str, default: int) -> int:
    """A size that the config has under one of these names."""
    parts = (small.config, getattr(small.config, "vision_config", None), getattr(small.config, "encoder_config", None))
    values = (getattr(part, name, None) for name in names for part in parts)
    return next((value for value in values if isinstance(value, int)), default)


def _grid(names: set[str]) -> dict[str, Any]:
    for name in ("grid_thw", "image_grid_thw", "grid_hws"):
        if name in names:
            return {name: torch.tensor([[1, TALL, WIDE]])}
    return {}


def _merges(names: set[str]) -> dict[str, Any]:
    return {"merge_sizes": torch.tensor([2])} if "merge_sizes" in names else {}


def _places(names: set[str], shape: tuple[int, ...]) -> dict[str, Any]:
    if "pixel_position_ids" not in names:
        return {}
    down, right = torch.meshgrid(torch.arange(TALL), torch.arange(WIDE), indexing="ij")
    return {"pixel_position_ids": torch.stack([right.flatten(), down.flatten()], -1)[None]}


def _patches(small: Small) -> Iterator[tuple[int, ...]]:
    side = _number(small, "patch_size", default=14)
    channels = _number(small, "in_channels", "num_channels", "in_chans", default=3)
    deep = _number(small, "temporal_patch_size", "patch_temporal", default=1)
    count = TALL * WIDE
    yield count, channels * deep * side * side
    yield 1, count, channels * deep * side * side
    yield count, channels, side, side
    yield 1, count, channels, side, side
    yield count, channels * side * side
    yield count, channels, deep, side, side


def _images(small: Small) -> Iterator[tuple[int, ...]]:
    side = _number(small, "patch_size", default=14)
    size = _number(small, "image_size", default=256)
    channels = _number(small, "num_channels", "in_channels", default=3)
    yield 1, channels, side * TALL, side * WIDE
    yield 1, channels, size, size
    yield 1, 2, channels, size, size


def _sounds(small: Small) -> Iterator[tuple[int, ...]]:
    bins = _number(small, "num_mel_bins", "feature_projection_input_dim", "mel_dim", default=80)
    width = _number(small, "hidden_size", default=64)
    yield 1, FRAMES, bins
    yield 1, bins, FRAMES
    yield 1, 16000
    yield 1, 1, 48000
    yield 1, width, FRAMES
    yield 1, FRAMES, width


def _decoder(names: set[str]) -> dict[str, Any]:
    return {"decoder_input_ids": torch.full((1, 67), 5)} if "decoder_input_ids" in names else {}
