"""recommend: what to set for a longer text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from milepost.cli.shared import (
    AnyModel,
    Device,
    Dtype,
    Json,
    Tokenizer,
    answer,
    aside,
    measuring,
    read_length,
    teaching,
)


@teaching
def recommend_command(
    model: AnyModel,
    target_length: Annotated[str, typer.Option("--target-length", help="Tokens to serve, such as 8192 or 8k.")],
    text: Annotated[
        Path, typer.Option(help="What to measure on: a text file, a folder of text files, or a .npy file of token ids.")
    ],
    trained_length: Annotated[
        str | None, typer.Option("--trained-length", help="The trained length, where the model does not say it.")
    ] = None,
    windows: Annotated[
        int | None,
        typer.Option(
            help="Windows of the target length to report on; by default enough to score 2048 tokens, from 8 to 64."
        ),
    ] = None,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    tokenizer: Tokenizer = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A folder to write: report.html, report.md and recommendation.json. It must not exist, or be empty."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """What should be set for a longer text? Every scaling and training-free map, measured on yours.

    The factor or window of each is searched on one part of the text; gain, what short texts pay, and intervals are
    measured on the other. Ends with the config for transformers, vLLM, SGLang and llama.cpp. Exit 1 when nothing
    reaches the target.

    Example: `milepost recommend path/to/model --target-length 8k --text moby-dick.txt --out recommended`
    """
    from milepost.checkpoints import recommend
    from milepost.checkpoints.recommendation import report
    from milepost.draw.folder import check_folder

    target, trained = read_length(target_length, "--target-length"), read_length(trained_length, "--trained-length")
    assert target is not None
    if windows is not None and windows < 2:
        raise ValueError(f"--windows is at least 2, so that there is an interval; got {windows}")
    if out is not None:
        check_folder(out, model)
    with measuring() as tell:
        data = recommend(
            model, target_length=target, text=text, trained_length=trained, windows=windows, device=device, dtype=dtype,
            tokenizer=tokenizer, tell=tell,
        ).to_json()  # fmt: skip
    if out is not None:
        aside().print(f"open {report.save(data, out)}", soft_wrap=True)
    answer(data, report.document, as_json)
    if not data["works"]:
        raise typer.Exit(1)
