"""Positions as data: checks, a memo that lives and dies with a position tensor, remaps, and places on several axes.

A remap is a plain function from positions to positions. It changes what an encoding is *told*, never the order
of tokens (that is ``Layout.index``), so a mask can't leak through it:

    at = Layout.dense(4096)
    at = at.with_positions(interpolate(at.index, factor=4))

    interpolate   p / factor                                        Chen et al., arXiv:2306.15595
    randomised    a sorted random subset of 0 .. limit-1            Ruoss et al., arXiv:2305.16843
    skipped       a few chunks, each moved right by a random skip   Zhu et al., "PoSE", arXiv:2309.10400
    grouped       floor(p / group)                                  Jin et al., "SelfExtend", arXiv:2401.01325
    sinks         place in a cache that kept `sinks` + `window`     Xiao et al., arXiv:2309.17453

Positions of several axes have the shape (axes, batch, tokens), in the order in which a model reads its tokens:

    grid(14, 14)                  0 .. 13 on each axis, row by row                      ViT, Qwen-VL, Pixtral, rope-vit
    centred(14, 14)               the same, from -6.5 to 6.5: zero in the middle
    normalised(14, 14)            -1 + 1/14 .. 1 - 1/14: the middles of patches on an image that goes from -1 to 1
    normalised(14, 14, reach=tau) the same times 2 pi                                        DINOv3
    augmented(normalised(14, 14), rescale=2.0)    the same, moved and stretched at random in training      DINOv3
    prefixed(pos, 1)              class or register tokens before the patches
    multimodal(5, (4, 6), 3)      text, an image of 4 rows and 6 columns, text               Qwen2-VL
    xd(5, (4, 6), 3)              the same on four axes: index, column, row, number of the image    HunYuan VL

The first axis is always the rows (frames, for a video): a model that wants columns first (rope-vit, Llama 4, MAE's
codes) takes pos.flip(0). Give them to a layout: ``Layout.dense(196).with_positions(grid(14, 14))``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)
COUNTING = (torch.int64, torch.int32, torch.float64, torch.float32)
AXES = 3
"""Of text with images: frame, row, column."""


def extent(pos: Tensor) -> tuple[float, float]:
    """The smallest and the largest position, as Python numbers (one synchronisation)."""
    if pos.numel() == 0:
        return 0, 0
    low, high = pos.detach().aminmax()
    return low.item(), high.item()


def extents(pos: Tensor) -> list[tuple[float, float]]:
    """`extent` of each axis of positions (axes B L)."""
    if pos.numel() == 0:
        return [(0, 0)] * pos.shape[0]
    flat = pos.detach().flatten(1)
    return list(zip(flat.amin(1).tolist(), flat.amax(1).tolist(), strict=True))


def not_halved(fn: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """What moves and casts as ``fn`` does, but never to half precision."""

    def move(t: Tensor) -> Tensor:
        moved = fn(t)
        return t.to(moved.device) if moved.dtype in HALF else moved

    return move


def check_dtype(pos: Tensor) -> None:
    """Refuse positions that can't count: half precision can't tell 256 from 257."""
    if not isinstance(pos, Tensor):
        raise ValueError(
            f"positions must be a tensor, got {type(pos).__name__}; use torch.arange(L) or Layout.dense(L).pos"
        )
    if pos.dtype in HALF:
        raise ValueError(
            f"positions came in {str(pos.dtype)[6:]}, which can't tell 2048 from 2049 (bfloat16: 256 from 257); "
            "keep positions in int64, or in float32/float64 if they are fractional"
        )
    if pos.dtype not in COUNTING:
        raise ValueError(
            f"positions must be int64 or int32 (or float32, float64 where fractional), got {str(pos.dtype)[6:]}, "
            "whose differences may wrap around"
        )


def check_finite(pos: Tensor) -> None:
    """Refuse NaN and infinite positions."""
    low, high = extent(pos)
    if not (abs(low) < float("inf") and abs(high) < float("inf")):
        raise ValueError(f"positions must be finite, got values from {low} to {high}")


def _at_least(name: str, value: float, least: float) -> None:
    if not value >= least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def interpolate(pos: Tensor, factor: float) -> Tensor:
    """``pos / factor`` in float64: the positions of a text ``factor`` times too long, squeezed into the old range."""
    _at_least("factor", factor, 1)
    return pos.double() / factor


def randomised(length: int, limit: int, *, batch: int = 1, generator: torch.Generator | None = None) -> Tensor:
    """A sorted random subset of ``0 .. limit-1``, without repeats: shape ``(batch, length)``, another one for each
    row.
    """
    _at_least("length", length, 1)
    if length > limit:
        raise ValueError(
            f"can't draw {length} different positions from 0..{limit - 1}; raise limit to at least {length}"
        )
    noise = torch.rand(batch, limit, generator=generator)
    return noise.argsort(dim=-1)[:, :length].sort(dim=-1).values


def skipped(
    length: int, limit: int, *, chunks: int = 2, batch: int = 1, generator: torch.Generator | None = None
) -> Tensor:
    """PoSE-like: ``chunks`` runs of neighbours, each further right by a random skip; the last stays below ``limit``.

    Shape ``(batch, length)``. The first chunk starts at 0, as in PoSE, and the skips never shrink, so order is kept.
    """
    _at_least("chunks", chunks, 1)
    _at_least("length", length, chunks)
    if length > limit:
        raise ValueError(f"{length} tokens do not fit below limit {limit}; raise limit to at least {length}")
    which = torch.arange(length) * chunks // length  # the chunk of each token
    jumps = torch.randint(0, limit - length + 1, (batch, chunks), generator=generator).sort(dim=-1).values
    jumps[:, 0] = 0
    return torch.arange(length) + jumps[:, which]


def grouped(pos: Tensor, group: int) -> Tensor:
    """``floor(pos / group)``: neighbours share a position. For what an encoding is told only; masks come from the
    index.
    """
    _at_least("group", group, 1)
    return pos.div(group, rounding_mode="floor")


def sinks(length: int, *, sinks: int = 4, window: int) -> tuple[Tensor, Tensor]:
    """Which of ``length`` tokens a cache of ``sinks + window`` keeps, and the positions they are told: ``(kept, pos)``.

    ``kept`` are indices into the text; ``pos`` their places inside the cache, 0, 1, 2, ... without a gap.
    """
    _at_least("sinks", sinks, 0)
    _at_least("window", window, 1)
    everything = torch.arange(length)
    kept = everything if length <= sinks + window else torch.cat([everything[:sinks], everything[length - window :]])
    return kept, torch.arange(len(kept))


def grid(*sizes: int) -> Tensor:
    """Positions on a grid in row-major order: shape ``(axes, 1, tokens)``. ``grid(2, 3)`` is two rows of three."""
    if not sizes:
        raise ValueError("a grid needs at least one side, such as grid(24, 24)")
    for size in sizes:
        _at_least("every side of a grid", size, 1)
    axes: Any = torch.meshgrid(*[torch.arange(size) for size in sizes], indexing="ij")
    return torch.stack([axis.reshape(1, -1) for axis in axes])


def centred(*sides: int) -> Tensor:
    """Places on a grid with zero in its middle: float64, shape (axes, 1, tokens)."""
    middle = torch.tensor([(side - 1) / 2 for side in sides], dtype=torch.float64)
    return grid(*sides).double() - middle[:, None, None]


def normalised(*sides: int, reach: float = 1.0) -> Tensor:
    """The middles of patches on an image whose every axis goes from -reach to reach, whatever its size: float64, shape
    (axes, 1, tokens).
    """
    if not 0 < reach < float("inf"):
        raise ValueError(f"reach must be above 0 and finite, got {reach}")
    half = torch.tensor([side / 2 for side in sides], dtype=torch.float64)
    return centred(*sides) / half[:, None, None] * reach


def augmented(
    pos: Tensor,
    *,
    shift: float = 0.0,
    jitter: float = 1.0,
    rescale: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Places on an image that goes from -1 to 1, moved and stretched at random: for training only. ``pos`` is float,
    (axes, B, L), and each of its B images is drawn for itself.

    DINOv3 (Simeoni et al., 2025, arXiv:2508.10104): each axis is moved by a number from -shift to shift, then
    multiplied by one from 1/jitter to jitter, then all axes by one from 1/rescale to rescale, both drawn evenly on a
    log scale. Its released models have rescale=2. Multiply by the reach afterwards: ``augmented(...) * tau``.
    """
    if pos.dim() != 3 or not pos.is_floating_point():
        raise ValueError(
            "places on images are float, of shape (axes, B, L), such as normalised(14, 14); got "
            f"{str(pos.dtype)[6:]} of {tuple(pos.shape)}"
        )
    if not 0 <= shift < float("inf") or not all(1 <= most < float("inf") for most in (jitter, rescale)):
        raise ValueError(
            f"shift must be at least 0, jitter and rescale at least 1, all finite; got shift={shift}, jitter={jitter}, "
            f"rescale={rescale}"
        )
    axes, batch = pos.shape[:2]
    if shift > 0:
        pos = pos + pos.new_empty(axes, batch, 1).uniform_(-shift, shift, generator=generator)
    for most, alike in ((jitter, axes), (rescale, 1)):
        if most > 1:
            reach = math.log(most)
            pos = pos * pos.new_empty(alike, batch, 1).uniform_(-reach, reach, generator=generator).exp()
    return pos


def prefixed(pos: Tensor, count: int, place: Literal["above", "zero"] = "above") -> Tensor:
    """``pos`` (axes, B, L) with ``count`` tokens before it, such as a class token and registers: (axes, B, count + L).

    place="above" puts token n at (-1, n, 0, ...), a row above the image, where `grid` tables keep its own row.
    place="zero" puts all of them at zero, where a rotation leaves a vector as it is: rope-vit, DINOv3 and Llama 4 do
    not turn them.
    """
    check_dtype(pos)
    if pos.dim() != 3 or pos.shape[0] < 2:
        raise ValueError(
            f"tokens are put before positions of shape (axes, B, L) with two axes or more, got {tuple(pos.shape)}"
        )
    if count < 0 or place not in ("above", "zero"):
        raise ValueError(f'count must be at least 0 and place "above" or "zero", got count={count}, place={place!r}')
    before = pos.new_zeros(pos.shape[0], pos.shape[1], count)
    if place == "above":
        before[0], before[1] = -1, torch.arange(count, device=pos.device)
    return torch.cat([before, pos], dim=-1)


def xd(*parts: int | tuple[int, int]) -> Tensor:
    """Positions of text and images in a row on the four axes of XD: int64, shape (4, 1, tokens), axes index, column,
    row, number of the image.

    A number is so many tokens of text, which have their index on all four axes. (rows, columns) is an image after
    merging of patches; each row ends with one more token, so that it has rows * (columns + 1) tokens. They keep their
    index on the first axis, count column and row from 0, and have the number of their image, from 0, on the last.
    """
    positions, here, images = [], 0, 0
    for part in parts:
        sides = _sides(part, "a number of text tokens or (rows, columns)", 2)
        tokens = sides[0] if len(sides) == 1 else sides[0] * (sides[1] + 1)
        places = (here + torch.arange(tokens)).repeat(4, 1)
        if len(sides) == 2:
            places[1:3] = grid(sides[0], sides[1] + 1)[:, 0].flip(0)
            places[3], images = images, images + 1
        positions.append(places[:, None])
        here += tokens
    if not positions:
        raise ValueError("there is nothing to place: give at least one part, such as xd(5, (4, 6), 3)")
    return torch.cat(positions, dim=-1)


def multimodal(*parts: int | tuple[int, ...], start: int = 0) -> Tensor:
    """Positions of text, images and videos in a row, as M-RoPE wants them: int64, shape (3, 1, tokens), axes frame,
    row, column.

    A number is so many tokens of text, which count on all three axes alike. (rows, columns) is an image and (frames,
    rows, columns) a video, after merging of patches: its places are counted from where it begins. What follows begins
    one after the largest number so far: an image advances by max(rows, columns), not by its rows * columns tokens.
    Generation goes on at ``int(pos.max()) + 1``.
    """
    positions, here = [], start
    for part in parts:
        sides = _sides(part, "a number of text tokens, (rows, columns) or (frames, rows, columns)", 3)
        places = grid(*sides).expand(AXES, -1, -1) if len(sides) == 1 else grid(*((1,) * (AXES - len(sides)) + sides))
        positions.append(here + places)
        here += max(sides)
    if not positions:
        raise ValueError("there is nothing to place: give at least one part, such as multimodal(5, (4, 6), 3)")
    return torch.cat(positions, dim=-1)


def _sides(part: int | tuple[int, ...], kinds: str, most: int) -> tuple[int, ...]:
    """The sides of a part of a text with images: one for text, up to ``most`` for what is seen."""
    sides = tuple(part) if isinstance(part, tuple | list) else (part,)
    if not 1 <= len(sides) <= most or any(type(n) is not int or n < 1 for n in sides):
        raise ValueError(f"a part is {kinds}, each at least 1; got {part!r}")
    return sides
