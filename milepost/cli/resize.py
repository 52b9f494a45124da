"""resize: a learned table of positions for another grid or length."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from milepost.cli.shared import Json, answer, aside, print_json, read_length, teaching, telling


def read_grid(text: str | None) -> tuple[int, int] | None:
    """``24x16`` as rows and columns."""
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d{1,6})\s*[xX\u00d7]\s*(\d{1,6})\s*", text)
    if not found or not all(int(n) for n in found.groups()):
        raise ValueError(f"--grid is rows x columns of patches, such as 24x24, got {text!r}")
    return int(found[1]), int(found[2])


@teaching
def resize_command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A folder with config.json and *.safetensors, or a name on the Hub.")
    ],
    out: Annotated[Path, typer.Option(help="The folder to write; it must not exist, or be empty.")],
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
    as_json: Json = False,
) -> None:
    """Write a checkpoint whose learned positions are for another image size, or a longer text; the source is only read.

    Ends by loading what was written with plain transformers, and by comparing it with transformers' own interpolation where that is right (exit 1 when a
    check fails, or when the model has nothing that could be resized).

    Example: `milepost resize path/to/vit --grid 24x24 --out vit-384`
    """
    from milepost.checkpoints.resizing.resize import resize
    from milepost.report import resized as report
    from milepost.rope.engines.written import Refused

    try:
        with telling() as tell:
            done = resize(
                model,
                grid=read_grid(grid),
                length=read_length(length, "--length"),
                out=out,
                mode=mode,
                antialias=antialias,
                tell=tell,
            )
    except Refused as refusal:
        if as_json:
            print_json({"model": model, "refused": str(refusal)})
        typer.echo(f"milepost: {refusal}", err=True)
        raise typer.Exit(1) from None
    aside().print(f"open {Path(done.out) / 'milepost' / 'report.html'}", soft_wrap=True)
    answer(done.to_json(), report.terminal, as_json)
    if not done.ok:
        raise typer.Exit(1)
