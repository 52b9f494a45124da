"""inspect and verify: the positions of a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from milepost.cli.shared import Device, Json, answer, aside, read_length, teaching, telling


@teaching
def inspect_command(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A folder, config.json, a GGUF file, a lab run's folder, or a name on the Hub."
        ),
    ],
    target_length: Annotated[
        str | None, typer.Option("--target-length", "--ctx-size", help="Tokens to serve, such as 131072 or 128k.")
    ] = None,
    weights: Annotated[bool, typer.Option("--weights", help="Also read the tensors that hold positions.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A folder to write: report.html, report.md and inspection.json. It must not exist, or be empty."
        ),
    ] = None,
    allow_unknown: Annotated[
        bool, typer.Option("--allow-unknown", help="Pass over keys that are unknown or contradictory, and say so.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Where position enters a checkpoint, layer by layer: scheme, base, scaling, slopes, buckets, tables, windows; and
    its lengths.

    From the config and the names of tensors alone, unless --weights is given. No code of the checkpoint is run, and no
    pickle opened.

    Example: `milepost inspect path/to/model --target-length 32k` or `milepost inspect model.gguf --weights --out
    inspected`
    """
    from milepost.checkpoints import inspect
    from milepost.checkpoints.inspection import report
    from milepost.draw.folder import check_folder
    from milepost.measure.results import provenance

    if out is not None:
        check_folder(out, model)
    found = inspect(
        model, target_length=read_length(target_length, "--target-length"), weights=weights, allow_unknown=allow_unknown
    )
    data = found.to_json() | {"provenance": provenance(what="inspect", weights=weights, target_length=found.target)}
    if out is not None:
        aside().print(f"open {report.save(data, out)}", soft_wrap=True)
    answer(data, report.document, as_json)


@teaching
def verify_command(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A folder with config.json and *.safetensors, or a name on the Hub.")
    ],
    device: Device = "cpu",
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16", "float64"], typer.Option(help="What the weights are loaded as.")
    ] = "float32",
    out: Annotated[
        Path | None,
        typer.Option(
            help="A folder to write: report.html, report.md and verification.json. It must not exist, or be empty."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Does a model, loaded and run, do with positions what its config asks for? Exit 1 when a check fails.

    Live frequencies and temperature of every layer, precision, the same logits alone, cached, padded and packed, biases
    under each attention implementation, lengths, and all of it again after a save and a reload. Every check has a
    tolerance derived from rounding, and a control.

    Example: `milepost verify path/to/model --out verified`
    """
    from milepost.checkpoints import verify
    from milepost.checkpoints.verification import report
    from milepost.draw.folder import check_folder

    if out is not None:
        check_folder(out, model)
    with telling() as tell:
        result = verify(model, device=device, dtype=dtype, tell=tell).to_json()
    if out is not None:
        aside().print(f"open {report.save(result, out)}", soft_wrap=True)
    answer(result, report.document, as_json)
    if not result["ok"]:
        raise typer.Exit(1)
