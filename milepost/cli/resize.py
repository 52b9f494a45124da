"""resize: a learned table of positions for another grid or length."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import typer

from milepost.cli.shared import (
    Checkpoint,
    Json,
    NewFolder,
    Offline,
    read_length,
    refusing,
    show_written,
    teaching,
    telling,
)


def read_grid(text: str | None) -> tuple[int, int] | None:
    """``24x16`` as rows and columns."""
    if text is None:
        return None
    sides = re.fullmatch(r"\s*(\d{1,6})\s*[xX\u00d7]\s*(\d{1,6})\s*", text)
    if not sides or not all(int(n) for n in sides.groups()):
        raise ValueError(f"--grid is rows x columns of patches, such as 24x24, got {text!r}")
    return int(sides[1]), int(sides[2])


@teaching
def resize_command(
    model: Checkpoint,
    out: NewFolder,
    grid: Annotated[
        str | None, typer.Option(help="Rows x columns of patches, such as 24x24: for ViT, DeiT, DINOv2.")
    ] = None,
    length: Annotated[str | None, typer.Option(help="Tokens, such as 1024 or 1k: for BERT and its kin.")] = None,
    mode: Annotated[
        Literal["bicubic", "bilinear"], typer.Option(help="How a grid is resampled; transformers does it bicubically.")
    ] = "bicubic",
    antialias: Annotated[
        bool | None,
        typer.Option(
            "--antialias/--no-antialias",
            help="As timm does it, or not; by default as transformers does it for this model.",
        ),
    ] = None,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Write a checkpoint whose learned positions are for another image size, or a longer text; the source is only read.

    Ends by loading what was written with plain transformers, and by comparing it with transformers' own interpolation
    where that is right (exit 1 when a check fails, or when the model has nothing that could be resized).

    Example: `milepost resize path/to/vit --grid 24x24 --out vit-384`
    """
    from milepost.checkpoints.resizing import report
    from milepost.checkpoints.resizing.resize import resize
    from milepost.rope.engines.written import Refused

    with refusing(Refused, {"model": model} if as_json else None), telling() as tell:
        done = resize(
            model, grid=read_grid(grid), length=read_length(length, "--length"), out=out, mode=mode,
            antialias=antialias, tell=tell,
        )  # fmt: skip
    show_written(done, report.document, as_json)
