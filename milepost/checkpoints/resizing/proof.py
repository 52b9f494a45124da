"""Proof of a resized folder: it is loaded as anybody would load it, with plain transformers, and run beside the source.

loads            every weight has its place, and none is missing
the table        what the loaded model holds is what was resized, to the last bit
interpolation    the new table is what transformers makes by itself from the old one (interpolate_pos_encoding), where
                 that is right: a square source, resampled as it does it; and both give the same output for the same
                 images
runs             a text as long as the new table gives finite numbers
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from milepost.checkpoints.model.quiet import first_line, quiet
from milepost.checkpoints.resizing.source import SQUARE, PositionTable


@dataclass(frozen=True)
class ResizeCheck:
    """One question and its answer: ``passed`` is None where the question has no meaning here."""

    name: str
    passed: bool | None
    sentence: str


def prove(
    source: PositionTable, folder: Path, table: Tensor, target: tuple[int, ...], *, plain: bool
) -> list[ResizeCheck]:
    """Every check of the written ``folder``; ``plain`` says that the table was resampled as transformers does it."""
    loaded, sentence = _load(source, folder)
    checks = [ResizeCheck("loads", loaded is not None, sentence)]
    if loaded is None:
        return checks
    held = _table(loaded)
    same = held.shape == table.shape and torch.equal(held, table.to(held.dtype))
    checks.append(
        ResizeCheck(
            "the table",
            same,
            f"{tuple(held.shape)} in the loaded model"
            + (", bit-equal to what was resized" if same else ": not what was resized"),
        )
    )
    if source.patch is None:
        return [*checks, _runs(loaded, target[0])]
    return [*checks, _interpolation(source, loaded, table, target, plain)]


def _load(source: PositionTable, folder: Path) -> tuple[Any, str]:
    """The model of a folder, in float32, and a sentence about how that went."""
    import transformers

    names = [n for n in source.config.get("architectures") or [] if isinstance(n, str) and hasattr(transformers, n)]
    made: Any = getattr(transformers, names[0]) if names else transformers.AutoModel
    try:
        with quiet():
            model, loading = made.from_pretrained(
                str(folder), dtype=torch.float32, use_safetensors=True, local_files_only=True, output_loading_info=True
            )
    except Exception as error:  # transformers' own errors are of many kinds
        return None, f"transformers can't load it: {first_line(error)}"
    wrong = sorted(map(str, (*loading["mismatched_keys"], *(loading["missing_keys"] if names else ()))))
    if wrong:
        return None, f"{made.__name__} of transformers misses {len(wrong)} weights, or has other shapes: {wrong[0]}"
    return model.eval(), f"{made.__name__} of transformers takes every weight"


def _embeddings(model: Any) -> Any:
    """The module that holds the table."""
    return next(
        module
        for module in model.modules()
        if hasattr(module, "position_embeddings") and not hasattr(module, "encoder")
    )


def _table(model: Any) -> Tensor:
    held = _embeddings(model).position_embeddings
    found: Tensor = (held.weight if hasattr(held, "weight") else held).detach()
    return found


@torch.no_grad()
def _interpolation(source: PositionTable, new: Any, table: Tensor, target: tuple[int, ...], plain: bool) -> ResizeCheck:
    name = "interpolation"
    if source.sides[0] != source.sides[1]:
        return ResizeCheck(
            name,
            None,
            f"transformers reads every table as a square, and this one is {source.sides[0]} x {source.sides[1]}: its "
            "own interpolation is wrong here",
        )
    if not plain:
        return ResizeCheck(
            name, None, "transformers resamples the table of this model in another way than was asked for"
        )
    old, sentence = _load(source, source.folder)
    if old is None:
        return ResizeCheck(name, False, f"the source: {sentence}")
    assert source.patch is not None
    height, width = target[0] * source.patch[0], target[1] * source.patch[1]
    own = _embeddings(old).interpolate_pos_encoding(
        torch.zeros(1, source.prefix + target[0] * target[1], table.shape[-1]), height, width
    )
    if not torch.equal(own.to(table.dtype), table):
        return ResizeCheck(
            name, False, f"transformers' own interpolation differs by up to {(own - table).abs().max().item():.2e}"
        )
    if table.dtype != torch.float32:
        return ResizeCheck(
            name, True, f"bit-equal to transformers' own, once that is rounded to {str(table.dtype)[6:]}"
        )
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randn(2, int(source.config.get("num_channels", 3)), height, width, generator=generator)
    how = {} if source.family in SQUARE else {"interpolate_pos_encoding": True}
    worst = (new(pixels)[0] - old(pixels, **how)[0]).abs().max().item()
    return ResizeCheck(
        name, worst == 0.0, f"bit-equal to transformers' own; outputs for two random images differ by {worst:.1e}"
    )


@torch.no_grad()
def _runs(model: Any, length: int) -> ResizeCheck:
    most = min(int(model.config.vocab_size), 1000)
    ids = torch.randint(most // 2, most, (1, length), generator=torch.Generator().manual_seed(0))
    try:
        fine = bool(torch.isfinite(model(ids)[0]).all())
    except Exception as error:  # transformers' own errors are of many kinds
        return ResizeCheck("runs", False, f"a text of {length} tokens: {first_line(error)}")
    return ResizeCheck(
        "runs", fine, f"a text of {length} tokens gives {'finite numbers' if fine else 'numbers that are not finite'}"
    )
