"""extend: a checkpoint for longer texts."""

from __future__ import annotations

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
