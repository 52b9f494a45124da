"""extend, migrate, resize and convert-layout: commands that write a checkpoint anew. The source is only read."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from milepost.cli.shared import (
    Checkpoint,
    Device,
    Dtype,
    Json,
    NewFolder,
    Offline,
    aside,
    print_json,
    read_length,
    refusing,
    show_written,
    teaching,
    telling,
)


@teaching
def extend_command(
    model: Checkpoint,
    target_length: Annotated[
        str, typer.Option("--target-length", "--ctx-size", help="Tokens to serve, such as 131072 or 128k.")
    ],
    out: NewFolder,
    method: Annotated[
        Literal["auto", "base", "linear", "ntk", "ntk_by_parts", "dynamic", "yarn", "llama3"],
        typer.Option("--method", "--rope-scaling", help="auto measures all of them on --text, and takes the best."),
    ] = "auto",
    text: Annotated[
        Path | None,
        typer.Option(
            help="A text file, a folder of them, or a .npy file of token ids: to measure, choose and tune on."
        ),
    ] = None,
    tune: Annotated[
        int | None, typer.Option(metavar="STEPS", help="Train so many steps at the new length, on one half of --text.")
    ] = None,
    tune_length: Annotated[
        str | None, typer.Option("--tune-length", help="Tokens of a training window, where the target is too long.")
    ] = None,
    rate: Annotated[float, typer.Option(help="Learning rate of --tune, after warm-up.")] = 2e-5,
    seed: Annotated[int, typer.Option(help="Decides the order of the training text.")] = 0,
    link: Annotated[bool, typer.Option("--link", help="Hard-link the weights instead of copying them.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a --tune that was killed.")] = False,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Write a checkpoint that other tools load, for longer texts; the source is only read.

    The factor is from the length that the model was trained for, also where it was extended before. Ends by verifying
    what was written (exit 1 when a check fails, or when the model has nothing that could be stretched) and, with
    --text, by showing the loss before and after.

    Example: `milepost extend path/to/model --target-length 8k --method yarn --out longer --text book.txt`
    """
    from milepost.checkpoints.extension import report
    from milepost.checkpoints.extension.extend import extend
    from milepost.rope.engines.written import Refused

    target = read_length(target_length, "--target-length")
    assert target is not None
    with refusing(Refused, {"model": model} if as_json else None), telling() as tell:
        done = extend(
            model, target_length=target, out=out, method=method, text=text, tune=tune,
            tune_length=read_length(tune_length, "--tune-length"), rate=rate, seed=seed, link=link, resume=resume,
            device=device, dtype=dtype, tell=tell,
        )  # fmt: skip
    show_written(done, report.document, as_json)


@teaching
def migrate_command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="GPT-2, OPT, or a Llama (to nope) in Hugging Face form; or a lab run's model."
        ),
    ],
    to: Annotated[Literal["rope", "alibi", "nope", "longer-table"], typer.Option(help="The positions that it gets.")],
    text: Annotated[
        Path,
        typer.Option(
            help="A text file, a folder of them, or a .npy file of token ids: one half is tuned on, the other measured."
        ),
    ],
    steps: Annotated[int, typer.Option(help="Training steps; 0 only replaces the positions.")],
    out: NewFolder,
    length: Annotated[
        str | None,
        typer.Option(help="Tokens to tune for; by default the old length, or twice that for a longer table."),
    ] = None,
    rate: Annotated[
        float, typer.Option(help="Learning rate after warm-up; it falls to 0 over the last fifth of the steps.")
    ] = 1e-4,
    batch: Annotated[int, typer.Option(help="Windows of text in a step, on each process.")] = 8,
    anneal: Annotated[
        bool,
        typer.Option(
            "--anneal", help="Fade the old positions over the first half of the steps, while the new come in."
        ),
    ] = False,
    seed: Annotated[int, typer.Option(help="Decides the order of the training text.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a migration that was killed.")] = False,
    device: Device = "cpu",
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Give a model other positions, in an architecture that any tool loads; the source is only read.

    Replaces the positions (proved by logits, with positions off and on), recovers by tuning, and tells how much of the
    loss was recovered, or that it was not. Exit 1 when a proof or a check of what was written fails.

    Example: `milepost migrate path/to/gpt2 --to rope --text book.txt --steps 500 --out turned`
    """
    from milepost.checkpoints import ProofError, migrate
    from milepost.checkpoints.migration import report

    with refusing(ProofError), telling() as tell:
        done = migrate(
            model, to=to, text=text, out=out, steps=steps, length=read_length(length, "--length"), rate=rate,
            batch=batch, anneal=anneal, seed=seed, resume=resume, device=device, tell=tell,
        )  # fmt: skip
    show_written(done, report.document, as_json)


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
    length: Annotated[str | None, typer.Option(help="Tokens, such as 1024 or 1k: for BERT and models like it.")] = None,
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


@teaching
def convert_layout_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A folder with config.json and *.safetensors.")],
    to: Annotated[
        Literal["half", "interleaved"], typer.Option(help="half: pairs (i, i + d/2); interleaved: pairs (2i, 2i + 1).")
    ],
    out: NewFolder,
    as_json: Json = False,
) -> None:
    """Reorder the channels of q and k for the other way of pairing them; ends with a proof by logits.

    Example: `milepost convert-layout path/to/model --to interleaved --out path/to/converted`
    """
    from milepost.checkpoints import ProofError, convert_layout

    with refusing(ProofError), telling() as tell:
        done = convert_layout(model, to, out, tell=tell)
    for note in (*done.notes, *(f"not copied: {name}" for name in done.left_out)):
        aside().print(f"note: {note}", soft_wrap=True)
    if as_json:
        print_json(asdict(done))
        return
    proof = done.proof
    typer.echo(f"wrote {done.out}: {done.count} tensors of {done.layers} layers, {done.source} to {done.target} pairs")
    apart = f"{proof.difference:.2g} apart (at most {proof.tolerance:.2g})"
    typer.echo(f"proof by logits: {apart}; without the conversion {proof.unconverted:.2g}")
