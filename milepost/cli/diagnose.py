"""diagnose: where a checkpoint breaks on your text."""

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
    read_lengths,
    teaching,
)


@teaching
def diagnose_command(
    model: AnyModel,
    text: Annotated[
        Path, typer.Option(help="What to read: a text file, a folder of text files, or a .npy file of token ids.")
    ],
    lengths: Annotated[str, typer.Option(help="Lengths to test, such as 1k,2k,4k; k is 1024.")],
    windows: Annotated[
        int,
        typer.Option(
            help="Windows of the longest length that are read, at least 2: more give closer intervals, and take longer."
        ),
    ] = 6,
    device: Device = "cpu",
    dtype: Dtype = "float32",
    tokenizer: Tokenizer = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A folder to write: report.html, report.md and diagnosis.json. It must not exist, or be empty."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Where does a model break on a text, how sharply, and why? A verdict in words, from what was measured.

    Loss by position and by length with intervals, the same passage at other positions, retrieval by depth and length,
    where every head looks, rotary angles never seen, and cached against uncached logits.

    Example: `milepost diagnose path/to/model --text moby-dick.txt --lengths 1k,2k,4k --out diagnosed`
    """
    from milepost.checkpoints import diagnose
    from milepost.checkpoints.diagnosis import report
    from milepost.draw.folder import check_folder

    wanted = read_lengths(lengths)
    if out is not None:
        check_folder(out, model)
    with measuring() as tell:
        data = diagnose(
            model, text, wanted, windows=windows, device=device, dtype=dtype, tokenizer=tokenizer, tell=tell
        ).to_json()
    if out is not None:
        aside().print(f"open {report.save(data, out)}", soft_wrap=True)
    answer(data, report.document, as_json)
