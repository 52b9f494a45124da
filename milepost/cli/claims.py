"""claims: what the notes say of positional encodings, each with the experiment that decides it."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from milepost.cli.shared import Json, Offline, Workers, answer, aside, keeping, measuring, read_seeds, teaching


@teaching
def claims_command(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Claims, such as rope-sign; all of them if left out.")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Exact experiments alone: all of them within a minute.")
    ] = False,
    profile: Annotated[
        Literal["quick", "standard"],
        typer.Option(help="Size of the trained experiments: about half an hour, or many hours, on two cores."),
    ] = "quick",
    out: Annotated[
        Path | None, typer.Option(help="Folder for claims.json, claims.html and the models that are trained.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="A checkpoint on which claims about scaling are decided too: a folder, or a name on the Hub."
        ),
    ] = None,
    text: Annotated[Path | None, typer.Option(help="The text that the checkpoint reads: a file or a folder.")] = None,
    workers: Workers = None,
    seeds: Annotated[
        str,
        typer.Option(
            help="How many seeds are trained, or which, separated by commas; those of the profile if left out."
        ),
    ] = "",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a folder whose trainings were stopped.")] = False,
    offline: Offline = False,
    as_json: Json = False,
) -> None:
    """Claims about positional encodings, tested: for each one the evidence, the rule, and the verdict that follows.

    Verdicts are `holds`, `holds with a limit`, `fails` and `not decided here`. Without --out nothing is trained: the
    lab results that come with the package are read, and claims that need more are not decided.

    With --out, what those results lack is trained. Seeds that they do not have (3,4,5) ask for models that nobody has
    seen: then everything is trained.

    Example: `milepost claims rope-sign shift --json`, `milepost claims --exact` or
    `milepost claims --profile quick --out runs/claims --seeds 3,4,5`
    """
    from milepost.claims import report
    from milepost.claims.judge import choose, document, judge
    from milepost.measure.folder import one_run

    choose(ids or [], exact=exact)  # what is wrong with the ids is said first
    numbers = read_seeds(seeds)
    about = {"profile": profile, "exact": exact, "model": model, "seeds": numbers or "those of the profile"}
    with ExitStack() as around:
        if out is not None:
            around.enter_context(one_run(out))
            report.check_folder(out, model, resume)
            around.enter_context(keeping(lambda: out.exists() and any(out.iterdir()), out))
        with measuring() as tell:
            rows = judge(
                ids or [], exact=exact, profile=profile, out=out, resume=resume, workers=workers, model=model,
                text=text, seeds=numbers, tell=tell,
            )  # fmt: skip
        written = None if out is None else report.save(document(rows, **about), out)
    answer(rows, report.rows_document, as_json)
    if written is not None:
        aside().print(f"open {written}", soft_wrap=True)
