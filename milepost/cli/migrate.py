"""migrate: a model with other positions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from milepost.cli.shared import (
    Device,
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
